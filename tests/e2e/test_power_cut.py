"""Power cuts: all folders on one ext4 over one recording disk, cut at any record, torn and reordered.

What was acknowledged before the cut must be there: an fsynced file, a PUT, a created file, a rename. The control runs the same
checker with the product's own flushes suppressed and must find losses of each kind.
"""
import os
import random
import signal
import subprocess
import time

import pytest

from cluster import REPO, Cluster, run, wait_for

FAULTDISK = os.environ.get("FAULTDISK", str(REPO / "target/release/faultdisk"))
CUTS = int(os.environ.get("HOLDFAST_CUTS", "40"))
SIZE = "768M"
# Of the disk, what an ext4 for the metadata takes where the rest is an OSD's block device.
META_BYTES = 256 << 20
KINDS = ("file", "put", "create", "rename")


class RecordingDisk:
    """An ext4 on a disk that remembers every write and flush; with `device`, only on its beginning, and the rest is a device of its own."""

    def __init__(self, work, device=False):
        self.dir, self.back, self.log = (os.path.join(work, n) for n in ("fd", "back", "log"))
        self.point = os.path.join(work, "disk")
        os.mkdir(self.dir)
        os.mkdir(self.point)
        self.server = subprocess.Popen([FAULTDISK, "serve", self.dir, self.back, SIZE, f"log={self.log}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("the recording disk", lambda: os.path.exists(os.path.join(self.dir, "ctl")))
        self.loop, self.device = attach(os.path.join(self.dir, "disk"), device)
        run("mkfs.ext4", "-q", "-F", self.loop)
        run("mount", self.loop, self.point)
        self.ctl = open(os.path.join(self.dir, "ctl"), "wb", buffering=0)

    def mark(self, text):
        self.ctl.write(f"mark {text}\n".encode())

    def close(self):
        subprocess.run(["umount", self.point], capture_output=True)
        for d in filter(None, (self.loop, self.device)):
            subprocess.run(["losetup", "-d", d], capture_output=True)
        self.ctl.close()
        end = time.monotonic() + 10
        while subprocess.run(["umount", self.dir], capture_output=True).returncode != 0 and time.monotonic() < end:
            time.sleep(0.1)
        try:
            self.server.wait(20)
        except subprocess.TimeoutExpired:
            self.server.send_signal(signal.SIGKILL)
            self.server.wait(10)


def attach(image, device):
    """Loop devices: (the filesystem's, the OSD's if it has one)."""
    loop = lambda *part: run("losetup", "-f", "--show", "--direct-io=on", *part, image).stdout.strip()
    if not device:
        return loop(), None
    return loop("--sizelimit", META_BYTES), loop("--offset", META_BYTES)


def cluster(work, point, device, env=None):
    options = ["--memory", "128M"]
    if not device:
        return Cluster(work, dirs=[os.path.join(point, "data")], env=env, options=options)
    meta = os.path.join(point, "meta")
    c = Cluster(work, osds=None, dirs=[device], env=env, options=[*options, "--meta", meta, "--format-devices"])
    c.data = meta
    return c


def workload(c, disk, rounds, rng):
    """Acknowledged steps of four kinds, each marked in the disk's own record before and after."""
    s3 = c.s3()
    f = os.open(c.path("file"), os.O_RDWR | os.O_CREAT)
    d = os.open(c.mnt, os.O_RDONLY)
    for n in range(1, rounds + 1):
        disk.mark(f"begin file {n}")
        body = version(n, rng.choice([104, 4096, 9000, 150_000]))  # whole units of eight bytes
        os.pwrite(f, body, 0)
        os.ftruncate(f, len(body))
        os.fsync(f)
        disk.mark(f"done file {n}")

        disk.mark(f"begin put {n}")
        s3.put_object(Bucket="home", Key="put", Body=version(n, rng.choice([10, 5000, 200_000])))
        disk.mark(f"done put {n}")

        disk.mark(f"begin create {n}")
        with open(c.path(f"create.{n}"), "wb") as g:
            g.write(version(n, 3000))
            g.flush()
            os.fsync(g.fileno())
        disk.mark(f"done create {n}")

        with open(c.path("tmp"), "wb") as g:
            g.write(version(n, 5000))
            g.flush()
            os.fsync(g.fileno())
        disk.mark(f"begin rename {n}")
        os.rename(c.path("tmp"), c.path("rename"))
        os.fsync(d)
        disk.mark(f"done rename {n}")
    os.close(f)
    os.close(d)


def version(n, size):
    return (f"{n:08}".encode() * (size // 8 + 1))[:max(size, 8)]


def number(data):
    """The version a content is, or None when it is no whole version."""
    if len(data) < 8 or not data[:8].isdigit():
        return None
    n = int(data[:8])
    return n if data == version(n, len(data)) else None


def record(work, env=None, rounds=14, seed=1, device=False):
    """Runs the workload on a recording disk; answers the log and [(record number, mark)]."""
    disk = RecordingDisk(work, device)
    c = cluster(work, disk.point, disk.device, env)
    try:
        c.start()
        os.sync()
        disk.mark("start")
        workload(c, disk, rounds, random.Random(seed))
        c.kill()
    finally:
        c.destroy()
        disk.close()
    info = run(FAULTDISK, "info", disk.log).stdout
    marks = [(int(m.split(":", 1)[0]), m.split(":", 1)[1]) for m in info.split(" marks ", 1)[1].strip().split(",")]
    return disk.log, marks


def losses(work, log, marks, cut, seed, device=False):
    """The kinds of acknowledged steps that are gone, or worse, after a cut at record `cut`."""
    image, point = os.path.join(work, "image"), os.path.join(work, "cut")
    os.makedirs(point, exist_ok=True)
    run(FAULTDISK, "replay", log, image, SIZE, f"upto={cut}", "keep=0.5", f"seed={seed}", "sector=4096")
    begun, done = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for at, text in marks:
        if at <= cut and " " in text:
            what, kind, n = text.split(" ")
            (begun if what == "begin" else done)[kind] = int(n)
    loop, osd = attach(image, device)
    run("mount", loop, point)
    c = cluster(work, point, osd)
    try:
        try:
            c.start()
        except AssertionError as e:
            return {k: f"does not start: {e}" for k in KINDS if done[k]}
        lost = {}
        for kind in ("file", "put", "rename"):
            data = read(c.path(kind))
            if data is None or (data == b"" and kind == "file"):
                if done[kind]:
                    lost[kind] = "gone"
                continue
            n = number(data)
            # Between a truncation and its end, the file may be a longer version's beginning: only for a step in flight.
            in_flight = begun[kind] > done[kind]
            if kind == "file" and n is None and in_flight and whole_bytes(data, done[kind], begun[kind]):
                continue
            if n is None or not done[kind] <= n <= begun[kind]:
                lost[kind] = f"version {n}, acknowledged {done[kind]}, begun {begun[kind]}"
        s3 = c.s3()
        if done["put"] and "put" not in lost:
            got = s3.get_object(Bucket="home", Key="put")["Body"].read()
            if got != read(c.path("put")):
                lost["put"] = "the doors differ"
        for n in range(1, done["create"] + 1):
            if read(c.path(f"create.{n}")) != version(n, 3000):
                lost["create"] = f"create.{n}"
        c.stop()
        return lost
    finally:
        c.destroy()
        run("umount", point)
        for d in filter(None, (loop, osd)):
            run("losetup", "-d", d)


def whole_bytes(data, low, high):
    """A file in the middle of an unacknowledged overwrite: every eight bytes are some version's or a hole."""
    units = [data[i:i + 8] for i in range(0, len(data), 8)]
    return all(u == bytes(len(u)) or any(f"{n:08}".encode().startswith(u) for n in range(low, high + 1)) for u in units)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None


def cut_points(marks, count, seed):
    start = next(at for at, text in marks if text == "start")
    end = max(at for at, _ in marks)
    rng = random.Random(seed)
    return [rng.randint(start + 1, end) for _ in range(count)]


@pytest.mark.timeout(900)
def test_acknowledged_work_survives_power_cuts(work):
    log, marks = record(work)
    bad = []
    for i, cut in enumerate(cut_points(marks, CUTS, seed=11)):
        lost = losses(work, log, marks, cut, seed=i)
        if lost:
            bad.append((cut, i, lost))
    assert not bad, f"{len(bad)} of {CUTS} cuts lost something acknowledged: {bad[:5]}"


@pytest.mark.timeout(600)
def test_acknowledged_work_on_a_block_device_survives_power_cuts(work):
    log, marks = record(work, device=True)
    bad = []
    for i, cut in enumerate(cut_points(marks, CUTS // 4, seed=12)):
        lost = losses(work, log, marks, cut, seed=i, device=True)
        if lost:
            bad.append((cut, i, lost))
    assert not bad, f"{len(bad)} of {CUTS // 4} cuts lost something acknowledged: {bad[:5]}"


@pytest.mark.timeout(600)
def test_the_checker_finds_losses_when_flushes_are_suppressed(work):
    log, marks = record(work, env={"HOLDFAST_UNSAFE_SKIP_FLUSH": "1"}, rounds=10)
    found = set()
    for i, cut in enumerate(cut_points(marks, 24, seed=5)):
        found |= set(losses(work, log, marks, cut, seed=i))
        if found == set(KINDS):
            return
    raise AssertionError(f"the control found losses only of {sorted(found)}: the test above proves nothing for the others")
