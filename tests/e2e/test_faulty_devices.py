"""Devices that fail, hang, are slow, lie, rot or shrink while the cluster serves: each is a disk of its own whose faults are the test's.

Whatever one device does, what was acknowledged is read, writes go on, and `status` names the device.
"""
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from cluster import HOLDFAST, Cluster, run, wait_for
from test_power_cut import FAULTDISK
from test_repair import check, fill, osd, refused, states, until_healthy

MIB = 1 << 20
BAD = "osd.1"


class FaultyDisk:
    """A block device behind which stands a process that takes orders."""

    def __init__(self, work, n, mib=256):
        self.dir = os.path.join(work, f"disk.{n}")
        os.mkdir(self.dir)
        self.back = self.dir + ".back"
        self.device = None
        self.server = subprocess.Popen([FAULTDISK, "serve", self.dir, self.back, f"{mib}M"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("the disk", lambda: os.path.exists(os.path.join(self.dir, "ctl")))
        self.attach()

    def attach(self):
        self.device = run("losetup", "-f", "--show", "--direct-io=on", os.path.join(self.dir, "disk")).stdout.strip()

    def detach(self):
        run("losetup", "-d", self.device)
        gone = lambda: self.device not in run("losetup", "-n", "-O", "NAME", "-a").stdout.split()
        wait_for("the loop device to go", gone, 20)
        self.device = None

    def swap(self, image):
        """The device holds what a copy of it holds."""
        self.detach()
        with open(image, "rb") as a, open(self.back, "r+b") as b:
            shutil.copyfileobj(a, b, MIB)
        self.attach()

    def order(self, text):
        with open(os.path.join(self.dir, "ctl"), "wb", buffering=0) as ctl:
            ctl.write(text.encode() + b"\n")

    def close(self):
        for text in ("unhang", "lat-us 0", "eio read 0", "eio write 0", "eio flush 0"):
            self.order(text)
        if self.device:
            subprocess.run(["losetup", "-d", self.device], capture_output=True)
        end = time.monotonic() + 10
        while subprocess.run(["umount", self.dir], capture_output=True).returncode != 0 and time.monotonic() < end:
            time.sleep(0.1)
        try:
            self.server.wait(20)
        except subprocess.TimeoutExpired:
            self.server.send_signal(signal.SIGKILL)
            self.server.wait(10)


@pytest.fixture
def disks(work):
    made = []
    try:
        for n in range(4):
            made.append(FaultyDisk(work, n))
        yield made
    finally:
        for d in made:
            d.close()


def start(work, disks, options=("--code", "2+1")):
    """OSDs on the disks themselves; the metadata lies elsewhere."""
    c = Cluster(work, osds=None, dirs=[d.device for d in disks], options=["--meta", os.path.join(work, "meta"), "--format-devices", *options])
    c.data = os.path.join(work, "meta")
    return c.start()


def named(c, *wanted):
    """The state of the bad device, if it is one of those and `status` says why."""
    bad = next(o for o in c.status()["osds"] if o["id"] == BAD)
    return bad["state"] if bad["state"] in wanted and bad["why"] else None


def mended(c):
    """Nothing lacks a shard any more, though the device is still named."""
    s = c.status()
    return s["repair"]["state"] == "idle" and s["repair"]["lost"] == 0 and s["metadata"]["missing"] == 0


def until_mended(c):
    c.drop_caches()
    run(HOLDFAST, "admin", "scrub", "--data", c.data)
    wait_for("repair to end", lambda: mended(c), 90)


def warned(c):
    return any(w.startswith(BAD) for w in c.status()["warnings"])


def test_a_device_that_fails_every_read_is_named_and_survived(work, disks):
    c = start(work, disks)
    try:
        fill(c, "before")
        assert not warned(c)
        c.drop_caches()
        disks[1].order("eio read 1")
        check(c, "before")
        fill(c, "after")
        check(c, "before", "after")
        # A few reads that fail are made good one by one; many in a row, and the device is out of service.
        wait_for("status names the device", lambda: warned(c) or named(c, "failed"))
        run(HOLDFAST, "admin", "scrub", "--deep", "--data", c.data)
        until_mended(c)
        check(c, "before", "after")
        c.stop()
    finally:
        c.destroy()


# A shard whose flush fails is not sent elsewhere before an fsync is answered: where none may lack, the fsync says EIO.
@pytest.mark.parametrize("fault, code", [("eio write 1", "2+1"), ("eio flush 1", "2+2"), ("hang", "2+1")])
def test_a_device_that_fails_or_hangs_is_named_and_survived(work, disks, fault, code):
    c = start(work, disks, ("--code", code))
    try:
        fill(c, "before")
        c.drop_caches()
        disks[1].order(fault)
        # Reading and writing go on, whichever of the two it takes to notice.
        check(c, "before")
        fill(c, "after")
        check(c, "before", "after")
        wait_for("status names the device", lambda: named(c, "failed"))
        assert c.status()["health"] != "failed"
        # What it had is made anew on the other three, if it fits there.
        if code == "2+1":
            until_mended(c)
        assert {id for id, state in states(c).items() if state == "up"} == {"osd.0", "osd.2", "osd.3"}
        check(c, "before", "after")
        disks[1].order("unhang")
        c.stop()
    finally:
        disks[1].order("unhang")
        c.destroy()


def test_a_slow_device_is_named_and_keeps_nobody_waiting_for_ever(work, disks):
    c = start(work, disks)
    try:
        fill(c, "before")
        disks[1].order("lat-us 2500000")
        writer = threading.Thread(target=fill, args=(c, "slow"))
        writer.start()
        wait_for("status names the device", lambda: named(c, "slow", "failed"))
        writer.join(90)
        assert not writer.is_alive()
        check(c, "before", "slow")
        disks[1].order("lat-us 0")
        fill(c, "after")
        until_healthy(c)
        check(c, "before", "slow", "after")
        c.stop()
    finally:
        disks[1].order("lat-us 0")
        c.destroy()


def test_rot_on_a_device_is_found_and_mended(work, disks):
    c = start(work, disks)
    try:
        fill(c, "a")
        # Behind what the device says of itself and its segments' heads.
        disks[1].order(f"flip {4 * MIB} {28 * MIB} 4000")
        check(c, "a")
        assert warned(c), c.status()["warnings"]
        run(HOLDFAST, "admin", "scrub", "--deep", "--data", c.data)
        until_healthy(c)
        check(c, "a")
        c.stop()
        c.start()
        until_healthy(c)
        check(c, "a")
        c.stop()
    finally:
        c.destroy()


def test_a_device_that_lost_what_it_said_was_stable_is_told_and_replaced(work, disks):
    c = start(work, disks)
    try:
        fill(c, "before")
        c.stop()
        then = os.path.join(work, "then")
        shutil.copyfile(disks[1].back, then)
        c.start()
        fill(c, "lost")
        c.kill()
        # The power goes, and none of it had left the device's cache.
        disks[1].swap(then)
        c.dirs = [d.device for d in disks]
        c.start()
        check(c, "before", "lost")
        assert named(c, "lost") and any("back in time" in r for r in c.status()["reasons"]), c.status()["reasons"]
        refused(c, "replace", "1", "--format-devices", says="holds osd.1 of")
        # Whoever says so erases it.
        with open(disks[1].device, "r+b", buffering=0) as d:
            for at in (0, 255 * MIB):
                d.seek(at)
                d.write(bytes(MIB))
        osd(c, "replace", "1", "--format-devices")
        until_healthy(c)
        # Any other one may go now.
        c.kill()
        disks[2].detach()
        c.dirs = [d.device for d in disks if d.device]
        c.start()
        check(c, "before", "lost")
        c.stop()
    finally:
        c.destroy()
