#!/usr/bin/env python3
"""Parity of every code, by arithmetic that shares nothing with the product's: products by long multiplication of polynomials,
inverses by search, sums in the order of the definition. Prints what objstore/ec/tests/it/golden.txt must hold."""

CODES = [(1, 1), (1, 2), (2, 1), (2, 2), (4, 2), (8, 3), (12, 4), (16, 4), (16, 8), (24, 8)]
LENGTH = 256


def product(a, b):
    """Of two polynomials over GF(2), reduced by x^8 + x^4 + x^3 + x^2 + 1."""
    p = 0
    for i in range(8):
        if b >> i & 1:
            p ^= a << i
    for i in range(14, 7, -1):
        if p >> i & 1:
            p ^= 0x11d << (i - 8)
    return p


def inverse(a):
    return next(b for b in range(256) if product(a, b) == 1)


def data(shard, position):
    return (shard * 131 + position * 17 + (position * position * 7 >> 3) + 5 * shard * position) & 0xff


def lines():
    for k, m in CODES:
        shards = [[data(j, p) for p in range(LENGTH)] for j in range(k)]
        for row in range(k, k + m):
            out = [0] * LENGTH
            for column in range(k):
                c = inverse(row ^ column)
                times = [product(c, x) for x in range(256)]
                out = [o ^ times[x] for o, x in zip(out, shards[column])]
            yield f"{k} {m} {row} {bytes(out).hex()}"


if __name__ == "__main__":
    for line in lines():
        print(line)
