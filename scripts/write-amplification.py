#!/usr/bin/env python3
"""write-amplification.py HOLDFAST [--dir DIR] [--file-mib N] [--device-mib N] [--json FILE] [--codes 1+0,4+2]

What reaches the devices for each byte a user overwrites, in the burst (until the last write is answered and synced) and settled (when nothing is
staged, to be packed, cleaned or deleted any more). Each OSD has an ext4 of its own in a file of its own (needs root: loop mounts). The devices are
aged first: filled, and all of it deleted, so that segments are used again as on a device that has been used for long; `fill` is the part
of their room that the file takes. It prints a table; --json also writes every count. The counts are the program's own (`holdfast_disk_…`): all
that it writes to any file, its log, its state and its checkpoints too, without what ext4 adds. No figure here is a time."""
import argparse
import errno
import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
# Name, bytes of a write, writes under way at once, an fsync after each, bytes in all.
JOBS = [
    ("4 KiB, fsync each", 4096, 1, True, 8 * MIB),
    ("4 KiB, 32 at once", 4096, 32, False, 64 * MIB),
    ("64 KiB, 8 at once", 64 << 10, 8, False, 256 * MIB),
    ("1 MiB, 4 at once", MIB, 4, False, 512 * MIB),
]
COUNTERS = {
    "bytes": "holdfast_disk_write_bytes_total",
    "writes": "holdfast_disk_writes_total",
    "flushes": "holdfast_disk_flushes_total",
    "commands": "holdfast_meta_log_proposals_total",
    "wal_bytes": "holdfast_meta_log_wal_bytes_total",
    "shard_bytes": "holdfast_osd_put_bytes_total",
    "cleaned_bytes": "holdfast_osd_cleaned_bytes_total",
    "checkpoint_bytes": "holdfast_meta_checkpoint_bytes_total",
    "segments_created": "holdfast_osd_segments_created_total",
}


class Bed:
    def __init__(self, holdfast, work, code, device_mib):
        self.holdfast, self.work = holdfast, work
        k, m = (int(n) for n in code.split("+"))
        self.mounts, self.mnt = [], os.path.join(work, "mnt")
        os.makedirs(self.mnt)
        for n in range(k + m):
            image, point = os.path.join(work, f"image.{n}"), os.path.join(work, f"device.{n}")
            os.makedirs(point)
            with open(image, "wb") as f:
                f.truncate(device_mib * MIB)
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
            subprocess.run(["mount", "-o", "loop", image, point], check=True)
            self.mounts.append(point)
        self.dirs = [os.path.join(p, "data") for p in self.mounts]
        self.up = subprocess.Popen([holdfast, "up", *self.dirs, "--code", code, "--mount", self.mnt], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        for line in self.up.stdout:
            self.lines.append(line)
            if line.strip() == "ready":
                break
        else:
            raise SystemExit("it did not come up:\n" + "".join(self.lines))
        threading.Thread(target=lambda: self.lines.extend(self.up.stdout), daemon=True).start()

    def ask(self, *args):
        return subprocess.run([self.holdfast, *args, "--data", self.dirs[0]], check=True, capture_output=True, text=True).stdout

    def status(self):
        return json.loads(self.ask("status", "--json"))

    def counts(self):
        lines = [l for l in self.ask("admin", "metrics").splitlines() if not l.startswith("#")]
        total = lambda name: sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.split("{")[0].split(" ")[0] == name)
        return {key: total(name) for key, name in COUNTERS.items()}

    def settle(self, seconds=900):
        """Until nothing is owed any more and the counters stand still."""
        end, still, before = time.monotonic() + seconds, 0, None
        while still < 8:
            assert time.monotonic() < end, "its debt is not worked off: " + json.dumps(self.status()["debt"])
            s, now = self.status(), self.counts()["bytes"]
            owed = s["debt"]["cleaning_bytes"] + s["debt"]["deleting"] + s["metadata"]["packs"]["staged_bytes"] + s["metadata"]["orphans_queued"]
            still = still + 1 if owed == 0 and now == before else 0
            before = now
            time.sleep(0.5)

    def close(self):
        self.up.terminate()
        try:
            self.up.wait(120)
        except subprocess.TimeoutExpired:
            self.up.kill()
        subprocess.run(["umount", "-l", self.mnt], capture_output=True)
        for point in self.mounts:
            subprocess.run(["umount", point], check=False)


def fill(path, size):
    with open(path, "r+b" if os.path.exists(path) else "wb") as f:
        for _ in range(size // (4 * MIB)):
            f.write(os.urandom(4 * MIB))
        f.flush()
        os.fsync(f.fileno())


def age(path, size):
    """Fills the devices and deletes all of it: from then on segments are used again instead of being made (and zeroed)."""
    with open(path, "wb") as f:
        try:
            for _ in range(size // (4 * MIB)):
                f.write(os.urandom(4 * MIB))
            f.flush()
            os.fsync(f.fileno())
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
    os.unlink(path)


def overwrite(path, file_bytes, size, at_once, sync, total, seed):
    """Direct writes at random places; all of them answered and synced when it returns."""
    rng = random.Random(seed)
    places = iter([rng.randrange(file_bytes // size) * size for _ in range(total // size)])
    lock, failed = threading.Lock(), []

    def work(n):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
            buf = mmap.mmap(-1, max(size, mmap.PAGESIZE))
            buf.write(random.Random(seed + n).randbytes(size))
            while True:
                with lock:
                    at = next(places, None)
                if at is None:
                    break
                os.pwrite(fd, memoryview(buf)[:size], at)
                if sync:
                    os.fsync(fd)
            os.fsync(fd)
            os.close(fd)
        except OSError as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(at_once)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if failed:
        raise failed[0]


def measure(holdfast, work, code, file_mib, device_mib):
    bed = Bed(holdfast, work, code, device_mib)
    try:
        path, file_bytes = os.path.join(bed.mnt, "file"), file_mib * MIB
        room = bed.status()["space"]["usable_total"]
        age(os.path.join(bed.mnt, "filler"), room * 9 // 10)
        bed.settle()
        # Twice, so that what was written first lies among what is free.
        fill(path, file_bytes)
        fill(path, file_bytes)
        bed.settle()
        rows = []
        for number, (name, size, at_once, sync, total) in enumerate(JOBS):
            begin = bed.counts()
            overwrite(path, file_bytes, size, at_once, sync, total, number)
            burst = {key: value - begin[key] for key, value in bed.counts().items()}
            bed.settle()
            settled = {key: value - begin[key] for key, value in bed.counts().items()}
            rows.append({"code": code, "job": name, "operations": total // size, "user_bytes": total, "fill": round(file_bytes / room, 2),
                         "burst": burst, "settled": settled})
            show(rows[-1])
        assert bed.status()["health"] == "ok"
        return rows
    finally:
        bed.close()


def show(r):
    ops, user, b, s = r["operations"], r["user_bytes"], r["burst"], r["settled"]
    print(f"| {r['code']} | {100 * r['fill']:.0f} % | {r['job']} | {b['bytes'] / user:.2f} | {s['bytes'] / user:.2f} | {b['writes'] / ops:.2f} | {b['flushes'] / ops:.3f} | "
          f"{b['commands'] / ops:.3f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("holdfast")
    p.add_argument("--dir", default="/var/tmp", help="where the devices' files lie; not tmpfs")
    p.add_argument("--file-mib", type=int, default=256)
    p.add_argument("--device-mib", type=int, default=768)
    p.add_argument("--codes", default="1+0,4+2")
    p.add_argument("--json")
    a = p.parse_args()
    rows = []
    print("| code | full | overwrites | bytes per user byte, burst | settled | device writes per operation | flushes per operation | commands per operation |")
    print("|---|---|---|---|---|---|---|---|")
    for code in a.codes.split(","):
        work = tempfile.mkdtemp(prefix="holdfast-amplification.", dir=a.dir)
        try:
            rows += measure(os.path.abspath(a.holdfast), work, code, a.file_mib, a.device_mib)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    sys.exit(main())
