"""The soak's devices: each an ext4 of its own, some on a faultdisk that can be told to fail, hang or turn bits."""
import os
import subprocess
import time

from cluster import run, wait_for


class Device:
    """An ext4 over a loop device over a file, or over the file that a faultdisk serves."""

    def __init__(self, work, number, mib, faultdisk=None):
        self.number, self.mib, self.faultdisk, self.server = number, mib, faultdisk, None
        base = os.path.join(work, f"device{number}")
        self.point, self.served, self.image = os.path.join(base, "fs"), os.path.join(base, "disk"), os.path.join(base, "image")
        self.data = os.path.join(self.point, "data")
        os.makedirs(self.point)
        if faultdisk:
            os.makedirs(self.served)
            self.server = subprocess.Popen([faultdisk, "serve", self.served, self.image, f"{mib}M"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for("the faultdisk", lambda: os.path.exists(os.path.join(self.served, "ctl")))
        else:
            with open(self.image, "wb") as f:
                f.truncate(mib << 20)
        self.loop = None
        self.make()

    def tell(self, *commands):
        """To the faultdisk."""
        with open(os.path.join(self.served, "ctl"), "wb", buffering=0) as ctl:
            for c in commands:
                ctl.write(f"{c}\n".encode())

    def make(self):
        """A new empty device in the place of what was there. Nothing may use it."""
        self.detach()
        if self.server:
            self.tell("unhang", "eio read 0", "eio write 0", "eio flush 0", "lie 0", "bad-clear")
        backing = os.path.join(self.served, "disk") if self.server else self.image
        self.loop = run("losetup", "-f", "--show", "--direct-io=on", backing).stdout.strip()
        # Without a journal's lazy work, so that what is written is the cluster's.
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.loop)
        run("mount", self.loop, self.point)

    def detach(self):
        if self.loop is None:
            return
        end = time.monotonic() + 60
        while os.path.ismount(self.point) and subprocess.run(["umount", self.point], capture_output=True).returncode != 0:
            assert time.monotonic() < end, f"{self.point} stays in use"
            time.sleep(0.2)
        run("losetup", "-d", self.loop, check=False)
        self.loop = None

    def close(self):
        if self.server:
            try:
                self.tell("unhang", "eio read 0", "eio write 0", "eio flush 0")
            except OSError:
                pass
        subprocess.run(["umount", "-l", self.point], capture_output=True)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], capture_output=True)
        if self.server:
            subprocess.run(["umount", "-l", self.served], capture_output=True)
            try:
                self.server.wait(20)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
