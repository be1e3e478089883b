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


def test_the_log_follows_osds_that_are_replaced_added_and_removed(work):
    c = six(work)
    c.start()
    disk = [os.path.join(work, f"disk{n}") for n in range(8)]

    def known():
        return {m["path"].removesuffix("/meta/wal"): m["role"] for m in c.status()["metadata"]["log"]}

    def osd(*args):
        return run(HOLDFAST, "admin", "osd", *args, "--data", c.data).stdout

    try:
        assert known() == dict(zip(disk, ["copy"] * 3 + ["spare"] * 3))
        write(c, range(0, 4))
        # One with a copy is replaced by a new one: what is answered relies on the old one no more.
        said = osd("replace", "1", disk[6])
        assert "osd.1 is new" in said and "relies on" not in said, said
        shutil.rmtree(disk[1])
        now = known()
        assert disk[1] not in now and disk[6] in now and list(now.values()).count("copy") == 3, now
        write(c, range(4, 8))
        # One more comes, and one with a copy goes.
        osd("add", disk[7])
        assert disk[7] in known()
        healthy(c)
        osd("drain", "2")
        assert disk[2] not in known()
        wait_for("drained", lambda: [o["state"] for o in c.status()["osds"] if o["id"] == "osd.2"] == ["drained"], 120)
        osd("remove", "2")
        shutil.rmtree(disk[2])
        now = known()
        assert sorted(now) == sorted(disk[n] for n in (0, 3, 4, 5, 6, 7)) and list(now.values()).count("copy") == 3, now
        write(c, range(8, 12))
        healthy(c)
        now = known()
        # Four of those that were there at first are gone, two of them by accident: as many as may be lost. One held a copy, the other did not.
        c.kill()
        lost = [next(n for n in (3, 4, 5) if now[disk[n]] == role) for role in ("copy", "spare")]
        for n in lost:
            shutil.rmtree(disk[n])
        c.dirs = [disk[n] for n in (0, 3, 4, 5, 6, 7) if n not in lost]
        c.start()
        check(c, range(0, 12))
        wait_for("three copies", lambda: list(known().values()).count("copy") == 3)
        # A folder that is made anew where it was counts again at once.
        replaced_in_place(c, lost)
        wait_for("all known", lambda: sorted(known().values()) == ["copy"] * 3 + ["spare"] * 3)
        healthy(c)
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
        told = run(HOLDFAST, "dump", backup).stdout
        assert " image " in told and told.count(" row ") > 5 and "ERROR" not in told, told[:2000]
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
        assert any("meta confirm" in why for why in c.status()["reasons"])
        write(c, range(10, 12))
        check(c, [*range(0, 5), 10, 11])
        meta("confirm", "--data", c.data)
        assert not any("meta confirm" in why for why in c.status()["reasons"])
        c.restart()
        check(c, [*range(0, 5), 10, 11])
        assert "sound" in meta("check", "--data", c.data).stdout
        # In use: a restore is refused.
        r = meta("restore", backup, "--data", c.data, "--yes", check=False)
        assert r.returncode != 0 and "in use" in r.stderr, r.stderr
        c.stop()
    finally:
        c.destroy()


def replaced_in_place(c, numbers):
    for n in numbers:
        run(HOLDFAST, "admin", "osd", "replace", str(n), "--data", c.data, "--yes")


def healthy(c):
    def ok():
        s = c.status()
        return s["health"] == "ok" and s["repair"]["queued"] == 0 and not s["reasons"]
    wait_for("health ok", ok, 120)


def test_any_two_of_six_devices_may_go_the_states_own_included(work):
    c = six(work)
    c.start()
    kept = os.path.join(work, "kept")
    try:
        keys = open(os.path.join(c.data, "credentials")).read()
        objects, n = {}, 0
        # The state moves on from one pair to the next. With a snapshot and without one, and with one that lies back.
        for lost, snapshot in (((0, 1), False), ((2, 4), True), ((3, 5), True)):
            write(c, range(n, n + 4))
            if snapshot:
                assert "images" in meta("snapshot", "--data", c.data).stdout
            write(c, range(n + 4, n + 8))
            s3 = c.s3()
            if not objects:
                s3.create_bucket(Bucket="objects")
            for size in (10, 5000, 300_000):
                objects[f"o{n}-{size}"] = content(n + size, size)
                s3.put_object(Bucket="objects", Key=f"o{n}-{size}", Body=objects[f"o{n}-{size}"])
            # Small writes that nothing has packed yet, at the very end.
            for small in range(n, n + 4):
                with open(c.path(f"f{small}"), "r+b") as f:
                    f.write(content(small, 100))
                    f.flush()
                    os.fsync(f.fileno())
            home = c.status()["metadata"]["path"]
            c.kill()
            assert os.path.dirname(home) == os.path.join(work, f"disk{lost[0]}"), home
            for d in lost:
                shutil.move(os.path.join(work, f"disk{d}"), f"{kept}{d}-{n}")
            n += 8
            c.data = next(d for d in c.dirs if os.path.exists(d))
            c.start()
            assert any(line.startswith("rebuilt: ") and f"disk{lost[0]}" in line for line in c.lines), c.output
            s = c.status()
            assert s["health"] == "degraded" and s["metadata"]["rebuilt"], s
            check(c, range(n))
            s3 = c.s3()
            for key, body in objects.items():
                assert s3.get_object(Bucket="objects", Key=key)["Body"].read() == body, key
            assert open(os.path.join(c.data, "credentials")).read() == keys
            assert "sound" in meta("check", "--data", c.data).stdout
            replaced_in_place(c, lost)
            # The new folders take part in the log at once.
            wait_for("all known", lambda: sorted(roles(c)) == ["copy"] * 3 + ["spare"] * 3)
            # That one copy of three was found is told until the next start.
            c.restart()
            healthy(c)
            check(c, range(n))
        # The first folder comes back as it was when it went: it is told, and harms nothing.
        c.stop()
        shutil.rmtree(os.path.join(work, "disk0"))
        shutil.move(f"{kept}0-0", os.path.join(work, "disk0"))
        c.start()
        assert any("stale" in w and "disk0" in w for w in c.status()["warnings"]), c.status()["warnings"]
        assert any("osd.0" in why for why in c.status()["reasons"])
        check(c, range(n))
        write(c, range(n, n + 2))
        check(c, range(n + 2))
        for d in c.dirs:
            assert os.stat(os.path.join(d, "credentials")).st_mode & 0o777 == 0o600
        c.stop()
    finally:
        c.destroy()


def test_a_state_that_is_there_and_cannot_be_used_is_not_rebuilt(work):
    c = six(work)
    c.start()
    try:
        write(c, range(3))
        meta("snapshot", "--data", c.data)
        c.stop()
        path = os.path.join(c.data, "meta", "meta.super")
        whole = open(path, "rb").read()
        for bad, said in ((whole[:8] + b"\x09" + whole[9:], "newer"), (whole[:20] + b"\xff" + whole[21:], "damaged")):
            open(path, "wb").write(bad)
            r = run(*c.command(), check=False, env=c.env)
            assert r.returncode != 0 and said in r.stderr and "nothing was changed" in r.stderr, r.stderr
        open(path, "wb").write(whole)
        c.start()
        check(c, range(3))
        assert c.status()["metadata"]["rebuilt"] is None
        c.stop()
        # The folder is there, and its metadata is not: it is rebuilt where it was.
        shutil.rmtree(os.path.join(c.data, "meta"))
        c.start()
        check(c, range(3))
        s = c.status()
        assert s["metadata"]["rebuilt"] and s["metadata"]["path"] == os.path.join(c.data, "meta"), s["metadata"]
        assert s["metadata"]["snapshot"]["covers"], s["metadata"]
        # What snapshots wrote, beside what the log did.
        m = c.metrics()
        assert m["holdfast_meta_snapshot_bytes_total"] <= m["holdfast_meta_log_wal_bytes_total"] + (1 << 20), m
        c.stop()
    finally:
        c.destroy()
