"""OSDs on raw block devices: loop devices, one set for each test, detached at its end."""
import os
import pty
import shutil
import subprocess
import threading

import pytest

from cluster import HOLDFAST, Cluster, run, wait_for
from test_codes import check, check_mount, fill, fill_mount
from test_refusals import refused

MIB = 1 << 20


class Loops:
    def __init__(self, work):
        self.work, self.devices, self.images = work, [], []

    def add(self, mib=256):
        image = os.path.join(self.work, f"image.{len(self.images)}")
        with open(image, "wb") as f:
            f.truncate(mib * MIB)
        self.images.append(image)
        self.devices.append(None)
        return self.attach(len(self.images) - 1)

    def attach(self, i, *options):
        self.devices[i] = run("losetup", "-f", "--show", *options, self.images[i]).stdout.strip()
        return self.devices[i]

    def detach(self, i):
        if self.devices[i]:
            run("losetup", "-d", self.devices[i])
            gone = lambda: self.devices[i] not in run("losetup", "-n", "-O", "NAME,BACK-FILE", "-a").stdout.split()
            wait_for("the loop device to go", gone, 20)
            self.devices[i] = None

    def close(self):
        for d in filter(None, self.devices):
            subprocess.run(["losetup", "-d", d], capture_output=True)


@pytest.fixture
def loops(work):
    l = Loops(work)
    yield l
    l.close()


def cluster(work, devices, *options):
    c = Cluster(work, osds=None, dirs=devices, options=["--meta", os.path.join(work, "meta"), "--format-devices", *options])
    c.data = os.path.join(work, "meta")
    return c


def test_a_cluster_on_block_devices(work, loops):
    devices = [loops.add() for _ in range(3)]
    c = cluster(work, devices, "--code", "2+1")
    try:
        c.start()
        status = c.status()
        assert [o["path"] for o in status["osds"]] == devices and status["health"] == "ok"
        assert len({o["domain"] for o in status["osds"]}) == 3, "each device is a flush domain of its own"
        assert all(200 * MIB < o["total"] < 256 * MIB for o in status["osds"]), status["osds"]
        fill(c, "home")
        fill_mount(c)
        refused("dump", devices[0], says="in use")
        refused("up", devices[1], "--meta", os.path.join(work, "other"), "--format-devices", says="in use")
        c.kill()
        c.start()
        check(c, "home")
        check_mount(c)
        c.stop()
        out = run(HOLDFAST, "dump", devices[0]).stdout
        assert "osd-superblock" in out and " shard " in out, out[:500]

        # Other names, and none of them said: they are found by what is on them.
        for i in range(3):
            loops.detach(i)
        for i in (2, 0, 1):
            loops.attach(i)
        c.dirs = []
        c.start()
        assert [o["path"] for o in c.status()["osds"]] == loops.devices and c.status()["health"] == "ok"
        check(c, "home")
        c.stop()

        # One is gone.
        loops.detach(1)
        c.start()
        assert c.status()["health"] == "degraded"
        check(c, "home")
        check_mount(c)
        c.stop()
        # It is back, under whatever name.
        loops.attach(1)
        c.start()
        assert c.status()["health"] == "ok"
        check_mount(c)
        c.stop()
        # One was emptied: lost, and never formatted by itself.
        loops.detach(2)
        os.truncate(loops.images[2], 0)
        os.truncate(loops.images[2], 256 * MIB)
        loops.attach(2)
        c.dirs = list(loops.devices)
        c.start()
        assert c.status()["health"] == "degraded"
        check(c, "home")
        c.stop()
        with open(loops.images[2], "rb") as f:
            assert f.read(MIB) == bytes(MIB), "it was written to"
    finally:
        c.destroy()


def test_devices_with_something_on_them(work, loops):
    d, meta = loops.add(128), ["--meta", os.path.join(work, "meta"), "--format-devices"]

    def holds(says, *command, data=None, undo=True):
        if command:
            run(*command, d)
        if data:
            offset, mark = data
            with open(d, "r+b") as f:
                f.seek(offset)
                f.write(mark)
        before = open(d, "rb").read()
        said = refused("up", d, *meta, says=says)
        assert d in said and len(said.splitlines()) == 1, said
        assert open(d, "rb").read() == before, "it was written to"
        assert not os.path.exists(os.path.join(work, "meta"))
        with open(d, "r+b") as f:
            f.write(bytes(MIB))
            f.seek(127 * MIB)
            f.write(bytes(MIB))

    holds("ext4", "mkfs.ext4", "-q")
    holds("swap space", "mkswap")
    holds("XFS", data=(0, b"XFSB"))
    holds("LVM", data=(512, b"LABELONE"))
    holds("md array", data=(4096, b"\xfc\x4e\x2b\xa9"))
    holds("GPT", data=(512, b"EFI PART"))
    holds("Btrfs", data=(0x10000 + 64, b"_BHRfS_M"))
    run("mkfs.ext4", "-q", d)
    m = os.path.join(work, "m")
    os.mkdir(m)
    run("mount", d, m)
    try:
        refused("up", d, *meta, says=f"is mounted on {m}")
    finally:
        run("umount", m)
    loops.detach(0)
    refused("up", loops.attach(0, "-r"), *meta, says="read-only")
    refused("up", loops.add(8), *meta, says="too small")


def test_devices_are_asked_for_and_kept_apart(work, loops):
    a, b = loops.add(128), loops.add(128)
    meta = os.path.join(work, "meta")
    refused("up", a, says="--meta DIR")
    refused("up", a, a, "--meta", meta, says="twice")
    refused("up", "--meta", meta, says="name the devices")
    refused("up", work, "--meta", meta, says="not a block device")
    refused("up", a, "--meta", meta, "--code", "2+1", says="needs 3 OSDs")
    said = refused("up", a, "--meta", meta, says="--format-devices")
    assert a in said and "128 MiB" in said and not os.path.exists(meta)
    assert open(a, "rb").read(MIB) == bytes(MIB)

    def answer(text):
        """On a terminal there is a question."""
        master, slave = pty.openpty()
        p = subprocess.Popen([HOLDFAST, "up", a, "--meta", meta], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(slave)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(p.stdout), daemon=True)
        reader.start()
        os.write(master, text.encode() + b"\n")
        try:
            wait_for("an answer", lambda: p.poll() is not None or any(l.startswith("ready") for l in lines), 60)
        finally:
            p.terminate()
            code = p.wait(60)
            os.close(master)
        return code, p.stderr.read(), lines

    code, said, _ = answer("no")
    assert code != 0 and "Everything on this device will be lost" in said and a in said and "nothing was changed" in said
    assert not os.path.exists(meta)
    code, said, lines = answer("yes")
    assert code == 0 and "ready\n" in lines, said

    # It is a cluster now: of this folder only, not of folders, and not to be formatted again.
    other = os.path.join(work, "other")
    refused("up", a, "--meta", other, "--format-devices", says="osd.0 of another cluster")
    refused("up", meta, says="--meta")
    refused("up", a, "--meta", meta, "--code", "2+1", says="does not match")
    c = Cluster(os.path.join(work, "f"), osds=1, mount=False, s3=False)
    c.start()
    c.stop()
    refused("up", "--meta", c.data, says="lie in folders")
    second = cluster(os.path.join(work, "s"), [b])
    os.mkdir(os.path.join(work, "s"))
    second.start()
    second.stop()
    refused("up", b, "--meta", meta, says="another cluster")
    shutil.rmtree(second.data)


def test_devices_are_replaced_and_added_while_the_cluster_runs(work, loops):
    devices = [loops.add() for _ in range(3)]
    spare, fourth = loops.add(), loops.add()
    c = cluster(work, devices, "--code", "2+1")
    osd = lambda *args, check=True: run(HOLDFAST, "admin", "osd", *args, "--data", c.data, check=check)
    says = lambda text, *args: (lambda r: r.returncode != 0 and text in r.stderr or pytest.fail(r.stdout + r.stderr))(osd(*args, check=False))

    def healthy():
        s = c.status()
        return s["health"] == "ok" and s["repair"]["state"] == "idle" and all(o["state"] == "up" for o in s["osds"])

    try:
        c.start()
        fill(c, "home")
        fill_mount(c)
        run("mkfs.ext4", "-q", spare)
        says("ext4", "replace", "1", spare, "--format-devices")
        with open(spare, "r+b") as f:
            f.write(bytes(MIB))
        says("--format-devices", "replace", "1", spare)
        says("in use", "replace", "1", devices[2], "--format-devices")
        says("not a block device", "add", os.path.join(work, "folder"), "--format-devices")
        says("name the device", "replace", "1")
        osd("replace", "1", spare, "--format-devices")
        wait_for("redundancy", healthy, 90)
        assert [o["path"] for o in c.status()["osds"]] == [devices[0], spare, devices[2]]
        osd("add", fourth, "--format-devices")
        wait_for("redundancy", healthy, 90)
        c.stop()
        # Any one may go now, and the old device is not needed.
        c.dirs = []
        loops.detach(1)
        loops.detach(0)
        c.start()
        assert c.status()["health"] == "degraded"
        check(c, "home")
        check_mount(c)
        c.stop()
        # Emptied and named, a device is made anew in its place.
        os.truncate(loops.images[0], 0)
        os.truncate(loops.images[0], 256 * MIB)
        emptied = loops.attach(0)
        c.start()
        osd("replace", "0", emptied, "--format-devices")
        wait_for("redundancy", healthy, 90)
        check(c, "home")
        c.restart()
        assert c.status()["health"] == "ok"
        check_mount(c)
    finally:
        c.destroy()
