"""OSDs come, go, rot and are replaced while the cluster serves; redundancy comes back, and everything reads right."""
import glob
import hashlib
import json
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
