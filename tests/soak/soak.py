"""The soak: load through both doors, kills, device faults and replacements by seed, held against an oracle.

What always holds when it ends well: nothing acknowledged was lost and nothing wrong was ever read; redundancy is back (`health ok`);
after everything was deleted the space is back. It prints its seed first, and a failing seed gives the same faults in the same order again.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from botocore.exceptions import BotoCoreError, ClientError  # noqa: E402
from cluster import HOLDFAST, Cluster, run, wait_for  # noqa: E402

BLOCK = 4096
OSDS, PARITY = 6, 2


class Lost(AssertionError):
    """The oracle knows better than the cluster."""


def body(name, version, size):
    """The bytes of a version: they say which it is."""
    seed = hashlib.sha256(f"{name}:{version}".encode()).digest()
    return (version.to_bytes(8, "little") + seed) * (size // 40 + 1)


def content(name, version, size):
    return body(name, version, size)[:size]


class Item:
    """One name: the version that was acknowledged, and those that may have been written since. Version 0 is absence."""

    def __init__(self, sizes):
        self.acked, self.begun, self.sizes, self.size_of = 0, [], sizes, {}

    def size(self, version):
        return self.size_of.get(version, 0)

    def next(self, absent=False, size=None):
        """Begins a version; a removal is a negative one."""
        version = max(abs(v) for v in [self.acked, *self.begun]) + 1
        self.size_of[version] = size or self.sizes[version % len(self.sizes)]
        self.begun.append(-version if absent else version)
        return version

    def answered(self):
        self.acked, self.begun = self.begun[-1], []
        self.size_of = {v: s for v, s in self.size_of.items() if v == self.acked}

    def check(self, name, data):
        """What was read: `None` for nothing. A version in doubt that is seen is taken for the one that counts."""
        may = [self.acked, *self.begun]
        for v in may:
            if v <= 0 and data is None or v > 0 and data == content(name, v, self.size(v)):
                self.acked, self.begun = v, [b for b in self.begun if abs(b) > abs(v)]
                return
        shown = "nothing" if data is None else f"{len(data)} bytes of version {int.from_bytes(data[:8], 'little')}"
        raise Lost(f"{name}: {shown} where version {self.acked} was acknowledged and {self.begun} begun")


class Worker(threading.Thread):
    """Works on names of its own until it is told to stop; when the cluster is gone it waits for the next life and looks what is there."""

    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak, self.number, self.random = soak, number, random.Random(f"{soak.seed}:{self.kind}:{number}")
        self.ops = self.bytes = self.waits = 0
        self.failure = None

    def run(self):
        life = self.soak.life
        try:
            while not self.soak.stopping.is_set():
                try:
                    self.step()
                    self.ops += 1
                except Lost:
                    raise
                except (OSError, ClientError, BotoCoreError) as e:
                    life = self.after_error(e, life)
        except BaseException as e:  # noqa: B036 - told by the main thread
            self.failure = e
            self.soak.broken.set()

    def after_error(self, error, life):
        """An error is borne while the cluster is down or was; on a whole cluster it is a fault of its own."""
        self.waits += 1
        deadline = time.monotonic() + 120
        while not self.soak.stopping.is_set():
            up, now = self.soak.up.is_set(), self.soak.life
            if up and now != life:
                self.look()
                return now
            if up and self.soak.tolerant():
                time.sleep(0.2)
                self.look()
                return life
            if time.monotonic() > deadline:
                raise Lost(f"{self.kind} {self.number}: {error!r} while the cluster was up") from error
            time.sleep(0.05)
        return life


class Blocks(Worker):
    """Overwrites blocks of one file and syncs."""

    kind, count = "blocks", 256

    def __init__(self, soak, number):
        super().__init__(soak, number)
        self.name = f"blocks.{number}"
        self.blocks = [Item([BLOCK]) for _ in range(self.count)]
        self.file = None

    def opened(self):
        if self.file is None:
            self.file = os.open(self.soak.cluster.path(self.name), os.O_RDWR | os.O_CREAT)
        return self.file

    def step(self):
        f = self.opened()
        touched = {self.random.randrange(self.count) for _ in range(self.random.randint(1, 8))}
        for n in touched:
            v = self.blocks[n].next()
            os.pwrite(f, content(f"{self.name}/{n}", v, BLOCK), n * BLOCK)
            self.bytes += BLOCK
        os.fsync(f)
        for n in touched:
            self.blocks[n].answered()
        if self.random.random() < 0.1:
            n = self.random.randrange(self.count)
            self.one(f, n)

    def one(self, f, n):
        data = os.pread(f, BLOCK, n * BLOCK)
        self.blocks[n].check(f"{self.name}/{n}", data if data.strip(b"\0") else None)

    def look(self):
        if self.file is not None:
            try:
                os.close(self.file)
            except OSError:
                pass
            self.file = None
        f = self.opened()
        for n in range(self.count):
            self.one(f, n)

    def names(self):
        return []


class Files(Worker):
    """Makes, replaces and removes whole files: new ones are renamed over the old, then the directory is synced."""

    kind, count = "files", 40

    def __init__(self, soak, number):
        super().__init__(soak, number)
        self.dir = f"files.{number}"
        self.items = {f"{self.dir}/f{n}": Item([100, 5000, 70_000, 300_000, 1 << 20, (4 << 20) + 17]) for n in range(self.count)}

    def step(self):
        c = self.soak.cluster
        os.makedirs(c.path(self.dir), exist_ok=True)
        name = self.random.choice(sorted(self.items))
        item = self.items[name]
        if self.random.random() < 0.25:
            self.one(name)
        elif item.acked > 0 and self.random.random() < 0.15:
            item.next(absent=True)
            os.unlink(c.path(name))
            self.sync_dir()
            item.answered()
        else:
            v = item.next()
            data = content(name, v, item.size(v))
            with open(c.path(name + ".new"), "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.rename(c.path(name + ".new"), c.path(name))
            self.sync_dir()
            item.answered()
            self.bytes += len(data)

    def sync_dir(self):
        d = os.open(self.soak.cluster.path(self.dir), os.O_RDONLY)
        try:
            os.fsync(d)
        finally:
            os.close(d)

    def one(self, name):
        path = self.soak.cluster.path(name)
        try:
            with open(path, "rb") as f:
                data = f.read()
        except FileNotFoundError:
            data = None
        self.items[name].check(name, data)

    def look(self):
        for name in self.items:
            self.one(name)

    def names(self):
        return [(name, item) for name, item in self.items.items()]


class Objects(Worker):
    """PUT, multipart, GET and DELETE over S3, in the bucket that is mounted."""

    kind, count = "objects", 40

    def __init__(self, soak, number):
        super().__init__(soak, number)
        self.items = {f"objects.{number}/o{n}": Item([10, 3000, 66_000, 400_000, 2 << 20]) for n in range(self.count)}
        self.client = None

    def s3(self):
        if self.client is None or self.client[0] != self.soak.life:
            self.client = (self.soak.life, self.soak.cluster.s3())
        return self.client[1]

    def step(self):
        s3 = self.s3()
        name = self.random.choice(sorted(self.items))
        item = self.items[name]
        r = self.random.random()
        if r < 0.25:
            self.one(name)
        elif item.acked > 0 and r < 0.37:
            item.next(absent=True)
            s3.delete_object(Bucket="home", Key=name)
            item.answered()
        elif r < 0.42:
            v = item.next(size=6 << 20)
            data = content(name, v, item.size(v))
            u = s3.create_multipart_upload(Bucket="home", Key=name)["UploadId"]
            cut = 5 << 20
            parts = [s3.upload_part(Bucket="home", Key=name, UploadId=u, PartNumber=i + 1, Body=p)["ETag"] for i, p in enumerate([data[:cut], data[cut:]])]
            s3.complete_multipart_upload(
                Bucket="home", Key=name, UploadId=u, MultipartUpload={"Parts": [{"PartNumber": i + 1, "ETag": e} for i, e in enumerate(parts)]})
            item.answered()
            self.bytes += len(data)
        else:
            v = item.next()
            data = content(name, v, item.size(v))
            s3.put_object(Bucket="home", Key=name, Body=data)
            item.answered()
            self.bytes += len(data)

    def one(self, name):
        try:
            data = self.s3().get_object(Bucket="home", Key=name)["Body"].read()
        except ClientError as e:
            if e.response["Error"]["Code"] not in ("NoSuchKey", "404"):
                raise
            data = None
        self.items[name].check(name, data)

    def look(self):
        for name in self.items:
            self.one(name)

    def names(self):
        return [(name, item) for name, item in self.items.items()]


class Soak:
    def __init__(self, work, seed, seconds):
        self.seed, self.seconds, self.random = seed, seconds, random.Random(seed)
        self.dirs = [os.path.join(work, f"d{n}") for n in range(OSDS)]
        self.cluster = Cluster(work, osds=None, dirs=self.dirs, code=f"{OSDS - PARITY}+{PARITY}")
        self.life, self.up, self.stopping, self.broken = 0, threading.Event(), threading.Event(), threading.Event()
        self.faults, self.hurt, self.began = [], set(), time.monotonic()
        self.can_replace = run(HOLDFAST, "admin", "osd", "replace", "--help", check=False).returncode == 0
        self.can_scrub = run(HOLDFAST, "admin", "scrub", "--help", check=False).returncode == 0

    def say(self, text):
        print(f"[{time.monotonic() - self.began:7.1f}s] {text}", flush=True)

    def tolerant(self):
        """Whether an error may be an answer at this moment: devices are hurt, and writes may have to wait."""
        return bool(self.hurt)

    def start(self):
        self.cluster.start()
        self.life += 1
        self.up.set()

    # ---- faults ----
    def kill(self):
        self.up.clear()
        self.cluster.kill()
        self.start()

    def restart(self):
        self.up.clear()
        self.cluster.stop()
        self.start()

    def segments(self, osd):
        found = pathlib.Path(self.dirs[osd], f"osd.{osd}").rglob("*.segment")
        return sorted(str(p) for p in found if p.stat().st_size)

    def garbage(self):
        """Random bytes over segments of an OSD, under the running process."""
        osd = self.pick()
        if osd is None:
            return None
        segments = self.segments(osd)
        chosen = self.random.sample(segments, k=max(1, len(segments) // 3)) if segments else []
        for path in chosen:
            with open(path, "r+b") as f:
                size = os.path.getsize(path)
                at = self.random.randrange(0, max(1, size - (1 << 20)))
                f.seek(at)
                f.write(self.random.randbytes(1 << 20))
                f.flush()
                os.fsync(f.fileno())
        return f"garbage over {len(chosen)} segments of osd.{osd}"

    def remove(self):
        """An OSD's folder goes away with the process; a new one takes its place."""
        osd = self.pick(also_first=False)
        if osd is None:
            return None
        self.up.clear()
        self.cluster.kill()
        shutil.rmtree(os.path.join(self.dirs[osd], f"osd.{osd}"), ignore_errors=True)
        self.start()
        run(HOLDFAST, "admin", "osd", "replace", str(osd), "--data", self.cluster.data, timeout=300)
        return f"removed and replaced osd.{osd}"

    def pick(self, also_first=True):
        """An OSD that may be hurt: never more than the code survives."""
        may = sorted(self.hurt) if len(self.hurt) >= PARITY else range(0 if also_first else 1, OSDS)
        may = [o for o in may if also_first or o > 0]
        if not may:
            return None
        osd = self.random.choice(list(may))
        self.hurt.add(osd)
        return osd

    def events(self):
        menu = [self.kill] * 4 + [self.restart]
        menu += [self.garbage] * 2
        if self.can_replace:
            menu += [self.remove] * 2
        return menu

    # ---- the course ----
    def healthy(self):
        return self.cluster.status()["health"] == "ok"

    def mend(self, seconds):
        """Lets repair bring redundancy back, so that other devices may be hurt."""
        if not self.hurt or not self.can_replace:
            return
        if self.can_scrub:
            run(HOLDFAST, "admin", "scrub", "--deep", "--data", self.cluster.data, timeout=seconds)
        wait_for("health ok", self.healthy, seconds)
        self.hurt.clear()

    def check_broken(self, workers):
        for w in workers:
            if w.failure is not None:
                raise w.failure

    def verify(self, workers):
        """Everything, through both doors, from the devices."""
        self.cluster.drop_caches()
        s3 = self.cluster.s3()
        checked = 0
        for w in workers:
            w.look()
            checked += getattr(w, "count", 0)
            for name, item in w.names():
                try:
                    with open(self.cluster.path(name), "rb") as f:
                        data = f.read()
                except FileNotFoundError:
                    data = None
                item.check(name, data)
                try:
                    data = s3.get_object(Bucket="home", Key=name)["Body"].read()
                except ClientError as e:
                    if e.response["Error"]["Code"] not in ("NoSuchKey", "404"):
                        raise
                    data = None
                item.check(name, data)
        return checked

    def run(self):
        self.start()
        empty = self.cluster.status()["space"]["used"]
        workers = [Blocks(self, n) for n in range(2)] + [Files(self, n) for n in range(2)] + [Objects(self, n) for n in range(2)]
        for w in workers:
            w.start()
        end = time.monotonic() + self.seconds
        pause = max(2.0, min(12.0, self.seconds / 10))
        menu = self.events()
        while time.monotonic() < end and not self.broken.wait(self.random.uniform(0.5, 1.5) * pause):
            event = self.random.choice(menu)
            what = event() or event.__name__
            self.faults.append(event.__name__)
            self.say(f"{what}; {sum(w.ops for w in workers)} operations, {sum(w.bytes for w in workers) >> 20} MiB so far")
            if len(self.hurt) >= PARITY:
                self.mend(300)
        self.stopping.set()
        for w in workers:
            w.join(150)
            assert not w.is_alive(), f"{w.kind} {w.number} does not end"
        self.check_broken(workers)
        self.say("verifying")
        checked = self.verify(workers)
        self.mend(600)
        if self.can_replace:
            wait_for("health ok at the end", self.healthy, 600)
        self.say("again after a restart")
        self.restart()
        self.verify(workers)
        if not self.hurt:
            # What went through all this is told of whole.
            self.cluster.stop()
            run(HOLDFAST, "dump", self.cluster.data, timeout=300)
            self.start()
        used = self.cluster.status()["space"]["used"]
        returned = self.empty_again(empty)
        summary = {
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.began),
            "operations": {k: sum(w.ops for w in workers if w.kind == k) for k in ("blocks", "files", "objects")},
            "bytes_written": sum(w.bytes for w in workers),
            "lives": self.life,
            "faults": {k: self.faults.count(k) for k in sorted(set(self.faults))},
            "names_checked": checked,
            "health": self.cluster.status()["health"],
            "used_before": empty,
            "used_full": used,
            "used_after_deletion": returned,
        }
        self.cluster.stop()
        return summary

    def empty_again(self, empty):
        """Deletes everything; the space must come back but for what logs and metadata keep."""
        for name in os.listdir(self.cluster.mnt):
            path = self.cluster.path(name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        os.sync()
        kept = empty + (64 << 20) * OSDS * 2
        used = [0]

        def back():
            used[0] = self.cluster.status()["space"]["used"]
            return used[0] <= kept

        try:
            wait_for("the space of what was deleted", back, 240)
        except AssertionError as e:
            raise Lost(f"{e}: {used[0]} bytes are used, {empty} were at the start") from e
        return used[0]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("minutes", nargs="?", type=float, default=10)
    p.add_argument("--seed", type=int, default=None, help="of a run to replay")
    p.add_argument("--dir", default=os.environ.get("HOLDFAST_TEST_DIR", "/var/tmp"), help="where the devices lie; not tmpfs")
    a = p.parse_args()
    seed = a.seed if a.seed is not None else int.from_bytes(os.urandom(4), "little")
    work = tempfile.mkdtemp(prefix="holdfast-soak.", dir=a.dir)
    print(f"seed {seed}; replay with: scripts/soak.sh {a.minutes:g} --seed {seed}", flush=True)
    soak = Soak(work, seed, a.minutes * 60)
    try:
        summary = soak.run()
        print(json.dumps(summary, indent=1))
        print("soak: passed")
    except BaseException as e:
        print(f"soak: FAILED with seed {seed}: {e!r}\n--- the last of the cluster's own words ---", flush=True)
        print("\n".join(soak.cluster.lines[-60:]))
        raise SystemExit(1) if isinstance(e, Exception) else e
    finally:
        soak.stopping.set()
        soak.cluster.destroy()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
