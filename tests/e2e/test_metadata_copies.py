"""The metadata log on several devices (folders that count as devices): lost copies, stale copies, too few to tell."""
import hashlib
import os
import shutil
import subprocess

import pytest

from cluster import HOLDFAST, Cluster, run, wait_for

SEPARATE = {"HOLDFAST_TEST_FOLDERS_ARE_DEVICES": "1"}


def content(n, size):
    return (hashlib.sha256(str(n).encode()).digest() * (size // 32 + 1))[:size]


def six(work):
    return Cluster(work, dirs=[os.path.join(work, f"disk{n}") for n in range(6)], code="4+2", env=SEPARATE)


def write(c, numbers):
    for n in numbers:
        with open(c.path(f"f{n}"), "wb") as f:
            f.write(content(n, 5000 * (n % 7 + 1)))
            f.flush()
            os.fsync(f.fileno())


def check(c, numbers):
    assert sorted(os.listdir(c.mnt)) == sorted(f"f{n}" for n in numbers)
    for n in numbers:
        assert open(c.path(f"f{n}"), "rb").read() == content(n, 5000 * (n % 7 + 1)), n


def roles(c):
    return [m["role"] for m in c.status()["metadata"]["log"]]


def test_folders_on_one_device_get_one_copy_of_the_log(work):
    c = Cluster(work, dirs=[os.path.join(work, f"disk{n}") for n in range(3)], mount=False, s3=False)
    c.start()
    try:
        assert roles(c) == ["copy"]
    finally:
        c.destroy()


def test_the_log_survives_two_of_six_devices_and_no_stale_copy_is_believed(work):
    c = six(work)
    c.start()
    try:
        assert roles(c) == ["copy", "copy", "copy", "spare", "spare", "spare"]
        write(c, range(0, 5))
        c.kill()
        # Two devices that hold copies are gone; what was synced is there, and others get copies.
        kept = os.path.join(work, "away")
        for n in (1, 2):
            os.rename(os.path.join(work, f"disk{n}"), f"{kept}{n}")
        c.start()
        check(c, range(0, 5))
        wait_for("three copies", lambda: roles(c).count("copy") == 3)
        s = c.status()
        assert s["health"] == "degraded" and "copies" in run(HOLDFAST, "status", "--data", c.data).stdout, s
        write(c, range(5, 10))
        c.kill()
        # They come back with what they had: an old part of the log.
        for n in (1, 2):
            os.rename(f"{kept}{n}", os.path.join(work, f"disk{n}"))
        c.start()
        check(c, range(0, 10))
        assert c.metrics()["holdfast_meta_log_mirrors"] == 3
        c.stop()
    finally:
        c.destroy()


def test_too_few_devices_to_tell_which_copy_is_the_newest_are_refused(work):
    c = six(work)
    c.start()
    try:
        write(c, range(0, 3))
        c.stop()
        for n in (3, 4, 5):
            shutil.rmtree(os.path.join(work, f"disk{n}", "meta"))
        for n in (1,):
            shutil.rmtree(os.path.join(work, f"disk{n}", "meta"))
        r = run(*c.command(), check=False, env=c.env)
        assert r.returncode != 0 and "majority" in r.stderr and "--accept-stale" in r.stderr, r.stderr
        c.options.append("--accept-stale")
        c.start()
        check(c, range(0, 3))
        assert any("majority" in why for why in c.status()["reasons"])
        c.stop()
        # From then on those decide that were there.
        c.options.remove("--accept-stale")
        c.start()
        check(c, range(0, 3))
        c.stop()
    finally:
        c.destroy()


def meta(*args, check=True, **kw):
    return run(HOLDFAST, "admin", "meta", *args, check=check, **kw)


def test_a_backup_is_restored_into_a_cluster_whose_metadata_is_gone(work):
    c = Cluster(work, dirs=[os.path.join(work, f"disk{n}") for n in range(6)], code="4+2")
    c.start()
    backup = os.path.join(work, "holdfast.meta")
    try:
        write(c, range(0, 5))
        assert "sound" in meta("check", "--data", c.data).stdout
        said = meta("backup", backup, "--data", c.data).stdout
        assert "records" in said, said
        write(c, range(5, 8))
        c.stop()
        assert "sound" in meta("check", "--data", c.data).stdout
        shutil.rmtree(os.path.join(c.data, "meta"))
        r = meta("check", "--data", c.data, check=False)
        assert r.returncode == 1, r.stdout
        assert run(*c.command(), check=False, env=c.env).returncode != 0
        # Nothing happens unasked, nor with a damaged backup.
        r = meta("restore", backup, "--data", c.data, check=False, stdin=subprocess.DEVNULL)
        assert r.returncode != 0 and "lost by the restore" in r.stdout and "nothing was changed" in r.stderr, r.stdout + r.stderr
        bad = os.path.join(work, "bad.meta")
        data = bytearray(open(backup, "rb").read())
        data[len(data) // 2] ^= 1
        open(bad, "wb").write(data)
        r = meta("restore", bad, "--data", c.data, "--yes", check=False)
        assert r.returncode != 0 and "damaged" in r.stderr, r.stderr
        r = meta("restore", backup, "--data", c.data, "--yes")
        assert "incarnation" in r.stdout and "confirm" in r.stdout, r.stdout
        c.start()
        check(c, range(0, 5))
        assert any("restored" in why for why in c.status()["reasons"])
        write(c, range(10, 12))
        check(c, [*range(0, 5), 10, 11])
        meta("confirm", "--data", c.data)
        assert not any("restored" in why for why in c.status()["reasons"])
        c.restart()
        check(c, [*range(0, 5), 10, 11])
        assert "sound" in meta("check", "--data", c.data).stdout
        # In use: a restore is refused.
        r = meta("restore", backup, "--data", c.data, "--yes", check=False)
        assert r.returncode != 0 and "in use" in r.stderr, r.stderr
        c.stop()
    finally:
        c.destroy()
