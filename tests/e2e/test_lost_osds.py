"""Lost and corrupt OSDs: any two of six, while reading; beyond the code's strength, errors but never wrong bytes."""
import errno
import glob
import hashlib
import itertools
import os
import random
import re
import shutil
import threading

import pytest
from botocore.exceptions import ClientError

from cluster import Cluster, wait_for


def content(n, size):
    return (hashlib.sha256(str(n).encode()).digest() * (size // 32 + 1))[:size]


# Small ones are whole copies, large ones coded, one spans chunks.
SIZES = {f"f{n}": s for n, s in enumerate([1, 100, 4096, 5000, 65536, 65537, 200_000, 1 << 20, (4 << 20) + 17, 9 << 20])}


def fill(c):
    for i, (name, size) in enumerate(SIZES.items()):
        with open(c.path(name), "wb") as f:
            f.write(content(i, size))
            f.flush()
            os.fsync(f.fileno())
        c.s3().put_object(Bucket="home", Key=f"s3/{name}", Body=content(i, size))


def check(c, may_fail=False):
    """Right bytes through both doors. Answers how many reads failed with an error (only allowed when said so)."""
    failed = 0
    for i, (name, size) in enumerate(SIZES.items()):
        want = content(i, size)
        for path in (name, f"s3/{name}"):
            try:
                with open(c.path(path), "rb") as f:
                    got = f.read()
                assert got == want, f"{path}: wrong bytes through the mount"
            except OSError as e:
                assert may_fail and e.errno == errno.EIO, f"{path}: {e}"
                failed += 1
            try:
                got = c.s3().get_object(Bucket="home", Key=path)["Body"].read()
                assert got == want, f"{path}: wrong bytes through S3"
            except Exception as e:
                assert may_fail, f"{path}: {e}"
                failed += 1
    return failed


def segments(c, osd):
    return [p for p in glob.glob(os.path.join(c.data, f"osd.{osd}", "**"), recursive=True) if os.path.isfile(p) and os.path.getsize(p) >= 1 << 20]


def overwrite(c, osd, rng):
    """Every segment of an OSD becomes random bytes, in place, under the running process."""
    found = segments(c, osd)
    assert found, f"osd.{osd} has no segments"
    for p in found:
        with open(p, "r+b") as f:
            for _ in range(os.path.getsize(p) >> 20):
                f.write(rng.randbytes(1 << 20))
            f.flush()
            os.fsync(f.fileno())


def errors(c):
    m = c.metrics()
    return sum(v for k, v in m.items() if k.startswith("holdfast") and ("corrupt" in k or "crc_fail" in k or "shard_errors" in k or "degraded_reads" in k))


@pytest.mark.parametrize("lost", [(0, 1), (2, 5), (3, 4)])
def test_two_of_six_overwritten_with_garbage_while_reading(work, lost):
    rng = random.Random(repr(lost))
    c = Cluster(work)
    c.start()
    try:
        fill(c)
        c.sync()
        check(c)
        before = errors(c)
        stop, failures = threading.Event(), []

        def read_on():
            while not stop.is_set():
                try:
                    check(c)
                except BaseException as e:  # noqa: B902 — reported by the test's own thread
                    failures.append(e)
                    return

        reader = threading.Thread(target=read_on)
        reader.start()
        for osd in lost:
            overwrite(c, osd, rng)
        c.drop_caches()
        check(c)
        stop.set()
        reader.join(120)
        assert not failures, failures[0]
        assert errors(c) > before, "no error was counted: the fault did not land"
        s = c.status()
        assert {o["id"] for o in s["osds"] if o["state"] == "damaged"} <= {f"osd.{n}" for n in lost}, s
        # Writes go on.
        c.s3().put_object(Bucket="home", Key="after", Body=b"x" * 300_000)
        with open(c.path("after2"), "wb") as f:
            f.write(b"y" * 300_000)
            f.flush()
            os.fsync(f.fileno())
        c.drop_caches()
        assert open(c.path("after"), "rb").read() == b"x" * 300_000
        assert open(c.path("after2"), "rb").read() == b"y" * 300_000
        # The next start finds what was overwritten, says so, reads round it, and has it repaired.
        c.restart()
        assert all(re.search(rf"osd\.{n}: \d+ places of its log .* not readable", c.output) for n in lost), c.output
        check(c)
        wait_for("health ok", lambda: c.status()["health"] == "ok", 90)
        check(c)
    finally:
        c.destroy()


@pytest.mark.parametrize("lost", [(0, 3), (4, 5)])
def test_two_of_six_removed_and_restarted(work, lost):
    c = Cluster(work)
    c.start()
    try:
        fill(c)
        c.stop()
        shutil.rmtree(os.path.join(c.data, f"osd.{lost[0]}"))
        for p in glob.glob(os.path.join(c.data, f"osd.{lost[1]}", "*")):
            shutil.rmtree(p) if os.path.isdir(p) else os.unlink(p)  # an empty folder is lost too
        c.start()
        assert "osd." in c.output and "lost" in c.output.lower(), c.output
        s = c.status()
        assert s["health"] == "degraded", s
        assert sorted(o["id"] for o in s["osds"] if o["state"] != "up") == sorted(f"osd.{n}" for n in lost)
        assert not os.path.exists(os.path.join(c.data, f"osd.{lost[0]}")) or not os.listdir(os.path.join(c.data, f"osd.{lost[0]}")), "it was formatted by itself"
        check(c)
        before = c.metrics()
        with open(c.path("narrow"), "wb") as f:
            f.write(content(99, 3 << 20))
            f.flush()
            os.fsync(f.fileno())
        c.s3().put_object(Bucket="home", Key="narrow.s3", Body=content(98, 3 << 20))
        c.drop_caches()
        assert open(c.path("narrow"), "rb").read() == content(99, 3 << 20)
        assert open(c.path("narrow.s3"), "rb").read() == content(98, 3 << 20)
        c.restart()
        check(c)
        assert open(c.path("narrow"), "rb").read() == content(99, 3 << 20)
    finally:
        c.destroy()


def test_five_of_six_lost_gives_errors_or_right_bytes(work):
    c = Cluster(work)
    c.start()
    try:
        fill(c)
        c.stop()
        for osd in (0, 1, 2, 4, 5):
            shutil.rmtree(os.path.join(c.data, f"osd.{osd}"))
        c.start()
        assert c.status()["health"] == "failed"
        assert check(c, may_fail=True) > 0
    finally:
        c.destroy()


def test_five_of_six_corrupt_gives_errors_or_right_bytes(work):
    c = Cluster(work)
    c.start()
    try:
        fill(c)
        c.sync()
        for osd in (0, 1, 2, 3, 5):
            overwrite(c, osd, random.Random(osd))
        c.drop_caches()
        assert check(c, may_fail=True) > 0
    finally:
        c.destroy()
