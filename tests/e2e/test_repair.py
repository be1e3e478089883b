"""OSDs come, go, rot and are replaced while the cluster serves; redundancy comes back, and everything reads right."""
import glob
import hashlib
import json
import mmap
import os
import random
import shutil
import subprocess
import threading

from cluster import HOLDFAST, Cluster, run, wait_for

SECONDS = 90


def content(n, size):
    return (hashlib.sha256(str(n).encode()).digest() * (size // 32 + 1))[:size]


SIZES = [1, 5000, 65536, 65537, 300_000, 1 << 20, (4 << 20) + 17]


def fill(c, tag):
    for i, size in enumerate(SIZES):
        with open(c.path(f"{tag}{i}"), "wb") as f:
            f.write(content(f"{tag}{i}", size))
            f.flush()
            os.fsync(f.fileno())


def check(c, *tags):
    c.drop_caches()
    for tag in tags:
        for i, size in enumerate(SIZES):
            assert open(c.path(f"{tag}{i}"), "rb").read() == content(f"{tag}{i}", size), f"{tag}{i}"


def osd(c, *args):
    return run(HOLDFAST, "admin", "osd", *args, "--data", c.data).stdout


def refused(c, *args, says):
    r = run(HOLDFAST, "admin", "osd", *args, "--data", c.data, check=False)
    assert r.returncode != 0 and says in r.stderr, (r.stdout, r.stderr)


def healthy(c):
    s = c.status()
    return s if s["health"] == "ok" and s["repair"]["state"] == "idle" else None


def until_healthy(c):
    return wait_for("health ok", lambda: healthy(c), SECONDS)


def states(c):
    return {o["id"]: o["state"] for o in c.status()["osds"]}


def destroy_osd(c, n):
    shutil.rmtree(os.path.join(c.data, f"osd.{n}"))


def test_an_osd_is_replaced_under_load_and_then_any_two_others_may_go(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        c.stop()
        destroy_osd(c, 2)
        c.start()
        assert states(c)["osd.2"] == "lost"
        fill(c, "narrow")
        stop, failures, written = threading.Event(), [], []

        def load():
            n = 0
            while not stop.is_set():
                try:
                    name = f"load{n % 20}"
                    data = content(n, 200_000)
                    with open(c.path(name), "wb") as f:
                        f.write(data)
                        f.flush()
                        os.fsync(f.fileno())
                    written.append((name, data))
                    assert open(c.path("a4"), "rb").read() == content("a4", SIZES[4])
                    n += 1
                except BaseException as e:  # noqa: B902 — reported by the test's own thread
                    failures.append(e)
                    return

        loader = threading.Thread(target=load)
        loader.start()
        said = osd(c, "replace", "2")
        assert "osd.2 is new" in said
        s = until_healthy(c)
        assert s["repair"]["repaired_stripes"] >= len([z for z in SIZES if z > 65536]), s["repair"]
        stop.set()
        loader.join(60)
        assert not failures, failures[0]
        assert set(states(c).values()) == {"up"}
        # What was written narrower meanwhile is wide again.
        wait_for("re-encoded", lambda: c.status()["repair"]["reencoded_stripes"] >= 3, SECONDS)
        until_healthy(c)
        c.sync()
        c.stop()
        destroy_osd(c, 0)
        destroy_osd(c, 5)
        c.start()
        check(c, "a", "narrow")
        for name, data in dict(written).items():
            assert open(c.path(name), "rb").read() == data, name
    finally:
        c.destroy()


def test_an_osd_is_added_another_drained_and_removed(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        refused(c, "drain", "1", says="needs 6")
        refused(c, "remove", "1", says="needs 6")
        refused(c, "drain", "77", says="there is no osd.77")
        new = os.path.join(work, "seventh")
        assert "osd.6 is in service" in osd(c, "add", new)
        refused(c, "remove", "1", says="drain")
        assert "is being emptied" in osd(c, "drain", "1")
        wait_for("drained", lambda: states(c)["osd.1"] == "drained", SECONDS)
        assert "may be deleted" in osd(c, "remove", "1")
        assert "osd.1" not in states(c)
        shutil.rmtree(os.path.join(c.data, "osd.1"))
        until_healthy(c)
        check(c, "a")
        # The folder that came later need not be named.
        c.restart()
        assert sorted(states(c)) == ["osd.0", "osd.2", "osd.3", "osd.4", "osd.5", "osd.6"] and set(states(c).values()) == {"up"}
        until_healthy(c)
        check(c, "a")
        assert c.status()["repair"]["repaired_stripes"] == 0, "nothing lacked"
        listed = osd(c, "list")
        assert "osd.6" in listed and new in listed
    finally:
        c.destroy()


def test_stripes_written_narrower_are_widened_when_osds_return(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        c.stop()
        kept = os.path.join(work, "kept")
        os.mkdir(kept)
        for n in (1, 4):
            os.rename(os.path.join(c.data, f"osd.{n}"), os.path.join(kept, f"osd.{n}"))
        c.start()
        fill(c, "narrow")
        # Deleted while two OSDs were away: they hold it still, and drop it when they are back.
        os.unlink(c.path("a6"))
        c.stop()
        for n in (1, 4):
            os.rename(os.path.join(kept, f"osd.{n}"), os.path.join(c.data, f"osd.{n}"))
        c.start()
        wait_for("widened", lambda: c.status()["repair"]["reencoded_stripes"] >= 4, SECONDS)
        until_healthy(c)
        c.stop()
        destroy_osd(c, 0)
        destroy_osd(c, 2)
        c.start()
        check(c, "narrow")
    finally:
        c.destroy()


def rot(c, n, seed):
    """Every segment of a running OSD gets random bytes behind its header."""
    rng = random.Random(seed)
    for p in glob.glob(os.path.join(c.data, f"osd.{n}", "log", "*.segment")):
        with open(p, "r+b") as f:
            f.seek(64 << 10)
            for _ in range(8):
                f.write(rng.randbytes(1 << 20))
            f.flush()
            os.fsync(f.fileno())


def test_bit_rot_is_found_by_a_deep_scrub_and_repaired(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        c.sync()
        until_healthy(c)
        rot(c, 3, 1)
        said = run(HOLDFAST, "admin", "scrub", "--deep", "--data", c.data).stdout
        assert "deep scrub:" in said and " 0 faults" not in said, said
        s = until_healthy(c)
        assert s["scrub"]["deep"]["faults"] > 0 and s["repair"]["repaired_stripes"] > 0
        said = run(HOLDFAST, "admin", "scrub", "--deep", "--data", c.data).stdout
        assert " 0 faults" in said, said
        light = run(HOLDFAST, "admin", "scrub", "--data", c.data).stdout
        assert "light scrub:" in light and " 0 faults" in light
        # The two others may go now.
        rot(c, 0, 2)
        rot(c, 5, 3)
        check(c, "a")
        assert "scrub" in run(HOLDFAST, "status", "--data", c.data).stdout
    finally:
        c.destroy()


def test_a_stale_copy_of_an_osd_is_told_and_not_believed(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        c.stop()
        copy = os.path.join(work, "copy")
        shutil.copytree(os.path.join(c.data, "osd.3"), copy)
        c.start()
        fill(c, "b")
        c.stop()
        shutil.rmtree(os.path.join(c.data, "osd.3"))
        shutil.copytree(copy, os.path.join(c.data, "osd.3"))
        c.start()
        s = c.status()
        told = next(o for o in s["osds"] if o["id"] == "osd.3")
        assert told["state"] == "lost" and "went back in time" in told["why"], told
        assert s["health"] == "degraded"
        check(c, "a", "b")
        osd(c, "replace", "3")
        until_healthy(c)
        c.restart()
        assert set(states(c).values()) == {"up"}
        check(c, "a", "b")
        # Replaced, the old one is not believed either.
        c.stop()
        shutil.rmtree(os.path.join(c.data, "osd.3"))
        shutil.copytree(copy, os.path.join(c.data, "osd.3"))
        c.start()
        told = next(o for o in c.status()["osds"] if o["id"] == "osd.3")
        assert told["state"] == "lost" and "replaced" in told["why"], told
    finally:
        c.destroy()


def test_a_copy_taken_while_it_ran_is_told_by_its_last_record(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        c.sync()
        copy = os.path.join(work, "copy")
        shutil.copytree(os.path.join(c.data, "osd.3"), copy)
        fill(c, "b")
        c.stop()
        shutil.rmtree(os.path.join(c.data, "osd.3"))
        shutil.copytree(copy, os.path.join(c.data, "osd.3"))
        c.start()
        told = next(o for o in c.status()["osds"] if o["id"] == "osd.3")
        assert told["state"] == "lost" and "newest record" in told["why"], told
        check(c, "a", "b")
    finally:
        c.destroy()


def test_a_replacement_that_would_lose_data_is_refused(work):
    c = Cluster(work, osds=6).start()
    try:
        fill(c, "a")
        c.stop()
        destroy_osd(c, 0)
        destroy_osd(c, 1)
        c.start()
        refused(c, "replace", "2", says="would lose")
        foreign = os.path.join(work, "foreign")
        os.mkdir(foreign)
        open(os.path.join(foreign, "thesis.tex"), "w").write("precious")
        refused(c, "replace", "0", foreign, says="thesis.tex")
        refused(c, "add", c.mnt, says="mount point")
        check(c, "a")
        new = os.path.join(work, "new")
        osd(c, "replace", "0", new)
        osd(c, "replace", "1")
        until_healthy(c)
        c.restart()
        assert set(states(c).values()) == {"up"}
        paths = {o["id"]: o["path"] for o in c.status()["osds"]}
        assert paths["osd.0"].startswith(new)
        check(c, "a")
    finally:
        c.destroy()


def test_an_osd_that_is_still_being_filled_does_not_count_after_a_restart(work):
    c = Cluster(work, osds=3, code="2+1").start()
    try:
        fill(c, "a")
        for n in range(24):
            with open(c.path(f"big{n}"), "wb") as f:
                f.write(content(n, 16 << 20))
        c.sync()
        until_healthy(c)
        osd(c, "replace", "0")
        c.kill()
        c.start()
        # At once: what the one of before still lacks, only this one has.
        r = run(HOLDFAST, "admin", "osd", "replace", "1", "--data", c.data, check=False)
        if r.returncode != 0:
            assert "is needed" in r.stderr, r.stderr
            until_healthy(c)
            osd(c, "replace", "1")
        until_healthy(c)
        assert set(states(c).values()) == {"up"}
        check(c, "a")
        for n in range(24):
            assert open(c.path(f"big{n}"), "rb").read() == content(n, 16 << 20), n
    finally:
        c.destroy()


def test_a_replacement_cut_short_by_a_crash_is_ended_by_the_next_start(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        c.stop()
        # As a crash between the two writes of the cluster file leaves it: named as forming, the place half made.
        path = os.path.join(c.data, "holdfast.json")
        f = json.load(open(path))
        f["epoch"] += 1
        f["osds"][4]["life"] = {"state": "forming", "log": "00" * 15 + "07", "opened": 0, "stable": 0}
        json.dump(f, open(path, "w"))
        os.unlink(os.path.join(c.data, "osd.4", "superblock"))
        c.start()
        until_healthy(c)
        assert set(states(c).values()) == {"up"}
        c.stop()
        destroy_osd(c, 1)
        destroy_osd(c, 2)
        c.start()
        check(c, "a")
    finally:
        c.destroy()


def test_what_a_lost_osd_still_has_is_not_given_up_while_it_is_needed(work):
    c = Cluster(work, osds=3, code="2+1").start()
    try:
        fill(c, "a")
        c.sync()
        c.stop()
        destroy_osd(c, 1)
        superblock = os.path.join(c.data, "osd.0", "superblock")
        kept = open(superblock, "rb").read()
        with open(superblock, "r+b") as f:
            f.write(b"\xff" * 64)
        c.start()
        assert states(c) == {"osd.0": "lost", "osd.1": "lost", "osd.2": "up"}
        new = os.path.join(work, "new")
        for args in (["0"], ["0", new]):
            refused(c, "replace", *args, says="is needed")
        assert not os.path.exists(new)
        # Nothing is needed of one that is gone.
        osd(c, "replace", "1", new)
        c.stop()
        open(superblock, "wb").write(kept)
        c.start()
        until_healthy(c)
        check(c, "a")
        # What it has is on the others now.
        osd(c, "replace", "0", os.path.join(work, "newer"))
        until_healthy(c)
        check(c, "a")
    finally:
        c.destroy()


def named_and_no_more(c, new):
    """NEWDIR as a crash leaves it between its first cluster file and the others."""
    f = json.load(open(os.path.join(c.data, "holdfast.json")))
    f["dirs"].append(new)
    f["index"] = len(f["dirs"]) - 1
    json.dump(f, open(os.path.join(new, "holdfast.json"), "w"))


def test_a_change_cut_short_by_a_crash_is_asked_for_again(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        new = [os.path.join(work, f"new{n}") for n in range(5)]
        for n, d in enumerate(new):
            os.mkdir(d)
            open(os.path.join(d, "lock"), "w").close()
        open(os.path.join(new[0], "holdfast.json.tmp"), "w").write("{")
        named_and_no_more(c, new[1])
        # Named at a start it is told of, not taken.
        c.stop()
        c.dirs.append(new[1])
        r = run(*c.command(), check=False)
        assert r.returncode != 0 and "leave it out" in r.stderr, r.stderr
        c.dirs.pop()
        c.start()
        assert "osd.6 is in service" in osd(c, "add", new[0])
        assert "osd.7 is in service" in osd(c, "add", new[1])
        named_and_no_more(c, new[2])
        for d in new[2:4]:
            until_healthy(c)
            assert "osd.0 is new" in osd(c, "replace", "0", d)
            assert "already" in osd(c, "replace", "0", d)
        # What is more than that is somebody's.
        open(os.path.join(new[4], "lock"), "w").write("precious")
        refused(c, "add", new[4], says="nothing was changed")
        os.truncate(os.path.join(new[4], "lock"), 0)
        named_and_no_more(c, new[4])
        os.mkdir(os.path.join(new[4], "osd.0"))
        refused(c, "add", new[4], says="taken out of this cluster")
        until_healthy(c)
        c.restart()
        assert set(states(c).values()) == {"up"} and len(states(c)) == 8
        until_healthy(c)
        check(c, "a")
    finally:
        c.destroy()


def direct(path, data):
    """Written to the OSDs and not published: neither synced nor closed."""
    block = mmap.mmap(-1, len(data))
    block.write(data)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    assert os.write(fd, block) == len(data)
    return fd


def test_what_is_published_after_an_osd_was_replaced_keeps_all_its_bytes(work):
    c = Cluster(work, osds=3, code="2+1").start()
    try:
        fill(c, "a")
        until_healthy(c)
        names = [f"open{n}" for n in range(8)]
        fds = [direct(c.path(name), content(name, 1 << 20)) for name in names]
        osd(c, "replace", "0")
        until_healthy(c)
        for fd in fds:
            os.fsync(fd)
            os.close(fd)
        c.sync()
        until_healthy(c)
        c.stop()
        destroy_osd(c, 1)
        c.start()
        check(c, "a")
        for name in names:
            assert open(c.path(name), "rb").read() == content(name, 1 << 20), name
    finally:
        c.destroy()


def test_an_osd_with_a_write_that_is_not_published_yet_is_not_removed(work):
    c = Cluster(work, osds=2, code="1+0").start()
    try:
        names = [f"open{n}" for n in range(8)]
        fds = [direct(c.path(name), content(name, 1 << 20)) for name in names]
        for n in ("0", "1"):
            refused(c, "remove", n, says="nothing was changed")
        for fd in fds:
            os.fsync(fd)
            os.close(fd)
        c.drop_caches()
        for name in names:
            assert open(c.path(name), "rb").read() == content(name, 1 << 20), name
        # It takes part again.
        assert set(states(c).values()) == {"up"}
    finally:
        c.destroy()


def test_a_new_osd_refuses_what_ended_sessions_still_send(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        c.kill()
        c.start()
        until_healthy(c)
        new = os.path.join(work, "new")
        osd(c, "add", new)
        osd(c, "replace", "0")
        c.kill()
        for folder in (os.path.join(new, "osd.6"), os.path.join(c.data, "osd.0")):
            assert " fence " in run(HOLDFAST, "dump", folder).stdout, folder
    finally:
        c.destroy()


def test_the_counts_of_a_new_osd_are_shown_and_those_of_one_that_left_are_not(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        until_healthy(c)
        puts = lambda n: c.metrics().get(f'holdfast_osd_puts_total{{osd="{n}"}}')
        assert puts(0) > 0 and puts(6) is None
        osd(c, "replace", "0")
        until_healthy(c)
        osd(c, "add", os.path.join(work, "new"))
        # Since it was made anew: what it was filled with.
        filled = puts(0)
        assert filled > 0 and puts(6) == 0
        for n in range(10):
            c.s3().put_object(Bucket="home", Key=f"more{n}", Body=content(n, 300_000))
        assert puts(6) > 0 and puts(0) > filled
        until_healthy(c)
        osd(c, "drain", "0")
        wait_for("drained", lambda: states(c)["osd.0"] == "drained", SECONDS)
        osd(c, "remove", "0")
        assert puts(0) is None and puts(6) > 0
    finally:
        c.destroy()


def test_several_folders_one_replaced_by_another(work):
    dirs = [os.path.join(work, f"d{n}") for n in range(4)]
    c = Cluster(work, dirs=dirs, code="2+1").start()
    try:
        fill(c, "a")
        c.stop()
        shutil.rmtree(dirs[2])
        c.start()
        assert states(c)["osd.2"] == "lost"
        new = os.path.join(work, "d9")
        osd(c, "replace", "2", new)
        until_healthy(c)
        c.restart()
        assert set(states(c).values()) == {"up"}
        # Asked by the folder that came later, too.
        assert json.loads(run(HOLDFAST, "status", "--data", new, "--json").stdout)["health"] == "ok"
        until_healthy(c)
        # A folder that can neither be read nor written any more is replaced while the cluster serves.
        shutil.rmtree(dirs[3])
        open(dirs[3], "w").close()
        osd(c, "replace", "3", os.path.join(work, "d10"))
        until_healthy(c)
        check(c, "a")
        os.unlink(dirs[3])
        c.restart()
        assert set(states(c).values()) == {"up"}
        until_healthy(c)
        c.stop()
        # A whole folder that was lost is taken again in its place, and the next start knows it, after a kill too.
        shutil.rmtree(dirs[1])
        c.start()
        assert states(c)["osd.1"] == "lost"
        osd(c, "replace", "1")
        c.kill()
        c.start()
        until_healthy(c)
        c.stop()
        shutil.rmtree(os.path.join(dirs[1], "osd.1"))
        c.start()
        check(c, "a")
    finally:
        c.destroy()


def test_progress_is_shown(work):
    c = Cluster(work).start()
    try:
        fill(c, "a")
        table = run(HOLDFAST, "status", "--data", c.data).stdout
        assert "repair" in table and "scrub" in table
        assert {"state", "queued", "rate_bytes_s", "eta_s", "repaired_bytes"} <= set(c.status()["repair"])
        assert any(k.startswith("holdfast_repair_stripes_total") for k in c.metrics())
        assert subprocess.run([HOLDFAST, "admin", "osd", "replace", "--data", c.data], capture_output=True).returncode != 0
    finally:
        c.destroy()
