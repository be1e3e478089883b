//! Tables of GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d), computed at compile time.
//!
//! What always holds: every table is derived from [`mul_slow`], the definition of the field's product.
//! What it leaves out: anything that depends on a code.

const POLYNOMIAL: u16 = 0x11d;

/// The definition: carry-less product, reduced by the polynomial.
const fn mul_slow(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut product) = (a as u16, b, 0u16);
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= POLYNOMIAL;
        }
        b >>= 1;
    }
    product as u8
}

/// `NIBBLES[c]`: c·x for x in 0..16, then c·(x << 4) for x in 0..16. Two look-ups and a xor make a product; this is
/// also the shape `pshufb` and `tbl` take.
pub static NIBBLES: [[u8; 32]; 256] = {
    let mut t = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            t[c][x] = mul_slow(c as u8, x as u8);
            t[c][16 + x] = mul_slow(c as u8, (x as u8) << 4);
            x += 1;
        }
        c += 1;
    }
    t
};

/// `AFFINE[c]`: multiplication by c as the 8×8 bit matrix that `gf2p8affineqb` takes. Result bit i is the parity of
/// (byte 7-i of the matrix & x), so byte 7-i has bit j set where c·2^j has bit i set.
pub static AFFINE: [u64; 256] = {
    let mut t = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut j = 0;
        while j < 8 {
            let column = mul_slow(c as u8, 1 << j);
            let mut i = 0;
            while i < 8 {
                if column >> i & 1 == 1 {
                    t[c] |= 1 << ((7 - i) * 8 + j);
                }
                i += 1;
            }
            j += 1;
        }
        c += 1;
    }
    t
};

/// `INVERSE[a]`·a = 1; `INVERSE[0]` is 0 and means nothing.
pub static INVERSE: [u8; 256] = {
    let mut t = [0; 256];
    let mut a = 1;
    while a < 256 {
        // The group has 255 elements, so a^254 is the inverse.
        let (mut power, mut i) = (1, 0);
        while i < 254 {
            power = mul_slow(power, a as u8);
            i += 1;
        }
        t[a] = power;
        a += 1;
    }
    t
};

pub fn mul(a: u8, b: u8) -> u8 {
    let t = &NIBBLES[a as usize];
    t[(b & 15) as usize] ^ t[16 + (b >> 4) as usize]
}
