"""The soak: load through both doors, kills, device faults and replacements by seed, held against an oracle.

What always holds when it ends well: nothing acknowledged was lost and nothing wrong was ever read; redundancy is back (`health ok`, nothing
missing, queued or lost, and a deep scrub finds nothing); after everything was deleted, all but the reserve is free on every OSD. It prints its
seed first, and a failing seed gives the same faults in the same order again.
Every OSD has a device of its own (an ext4 in a file), two of them on a faultdisk; the metadata log has its copies on three of them. Needs root.
"""
import argparse
import errno
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
from cluster import HOLDFAST, REPO, Cluster, run, wait_for  # noqa: E402
from devices import Device  # noqa: E402

BLOCK = 4096
OSDS, PARITY = 6, 2
# Of each device, and which of them lie on a faultdisk.
DEVICE_MIB, FAULTY = 640, (4, 5)
FAULTDISK = os.environ.get("FAULTDISK", str(REPO / "target/release/faultdisk"))


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

    def check(self, name, data, settle=True):
        """What was read: `None` for nothing. A version in doubt that is seen is taken for the one that counts, unless caches may show it."""
        may = [self.acked, *self.begun]
        for v in may:
            if v <= 0 and data is None or v > 0 and data == content(name, v, self.size(v)):
                if settle:
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
        life, self.settles = self.soak.life, True
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
                self.settles = True
                self.look()
                return now
            if up and self.soak.tolerant(error):
                time.sleep(0.2)
                # What a failed write left may be seen in the kernel's cache and not be stored.
                self.settles = False
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
        self.blocks[n].check(f"{self.name}/{n}", data if data.strip(b"\0") else None, self.settles)

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
        self.items[name].check(name, data, self.settles)

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
        self.items[name].check(name, data, self.settles)

    def look(self):
        for name in self.items:
            self.one(name)

    def names(self):
        return [(name, item) for name, item in self.items.items()]


class Soak:
    def __init__(self, work, seed, seconds):
        self.seed, self.seconds, self.random = seed, seconds, random.Random(seed)
        faultdisk = FAULTDISK if os.path.exists(FAULTDISK) else None
        self.devices = []
        for n in range(OSDS):
            self.devices.append(Device(work, n, DEVICE_MIB, faultdisk if n in FAULTY else None))
        self.dirs = [d.data for d in self.devices]
        self.cluster = Cluster(work, osds=None, dirs=self.dirs, code=f"{OSDS - PARITY}+{PARITY}")
        self.life, self.up, self.stopping, self.broken = 0, threading.Event(), threading.Event(), threading.Event()
        self.faults, self.hurt, self.began = [], set(), time.monotonic()
        self.bearable_until = 0.0

    def say(self, text):
        print(f"[{time.monotonic() - self.began:7.1f}s] {text}", flush=True)

    def tolerant(self, error):
        """Whether this error may be an answer at this moment: devices are hurt and writes may have to wait, or all is full."""
        return bool(self.hurt) or time.monotonic() < self.bearable_until

    def start(self):
        self.cluster.start(180)
        self.life += 1
        self.up.set()

    # ---- faults ----
    def kill(self):
        self.up.clear()
        self.cluster.kill()
        self.start()

    def restart(self):
        self.up.clear()
        self.cluster.stop(300)
        self.start()

    def segments(self, osd):
        found = pathlib.Path(self.dirs[osd], f"osd.{osd}").rglob("*.segment")
        return sorted(str(p) for p in found if p.stat().st_size)

    def garbage(self):
        """Random bytes over segments of an OSD, under the running process."""
        osd = self.pick()
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

    def replace(self, osd):
        run(HOLDFAST, "admin", "osd", "replace", str(osd), "--data", self.cluster.data, timeout=600)

    def remove(self):
        """An OSD's folder goes away with the process; a new one takes its place."""
        osd = self.pick(also_first=False)
        self.up.clear()
        self.cluster.kill()
        shutil.rmtree(os.path.join(self.dirs[osd], f"osd.{osd}"), ignore_errors=True)
        self.start()
        self.replace(osd)
        return f"removed and replaced osd.{osd}"

    def new_device(self):
        """A whole device is exchanged for an empty one, the metadata's copy on it with it."""
        osd = self.pick(also_first=False)
        self.up.clear()
        self.cluster.kill()
        self.devices[osd].make()
        self.start()
        self.replace(osd)
        return f"exchanged the device of osd.{osd}"

    def mirror(self):
        """The copy of the metadata log on a device is lost with a kill, or what it holds is."""
        osd = self.pick(also_first=False)
        self.up.clear()
        self.cluster.kill()
        meta = pathlib.Path(self.dirs[osd], "meta")
        segments = sorted(meta.rglob("*.segment"))
        if segments and self.random.random() < 0.5:
            with open(self.random.choice(segments), "r+b") as f:
                f.write(self.random.randbytes(256 << 10))
            what = "damaged"
        else:
            shutil.rmtree(meta, ignore_errors=True)
            what = "removed"
        self.start()
        return f"{what} the metadata on device {osd}"

    def failing(self):
        """A device answers errors to everything; it is exchanged."""
        osd = self.pick(among=FAULTY)
        self.devices[osd].tell("eio write 1", "eio read 1", "eio flush 1")
        time.sleep(self.random.uniform(1, 4))
        self.up.clear()
        self.cluster.kill()
        self.devices[osd].make()
        self.start()
        self.replace(osd)
        return f"errors from device {osd}, which was then exchanged"

    def hanging(self):
        """A device does not answer for a while."""
        osd = self.pick(among=FAULTY)
        self.devices[osd].tell("hang")
        time.sleep(self.random.uniform(1, 6))
        self.devices[osd].tell("unhang")
        return f"device {osd} hung for a while"

    def full(self):
        """Everything is filled; then what filled it is deleted, and it heals without a restart."""
        self.bearable_until = float("inf")
        written = 0
        try:
            for n in range(1 << 20):
                with open(self.cluster.path(f"filler.{n % 64}"), "ab") as f:
                    f.write(content("filler", 1, 4 << 20))
                    f.flush()
                    os.fsync(f.fileno())
                written += 4
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise Lost(f"a full cluster answers {e!r}") from e
        for name in [n for n in os.listdir(self.cluster.mnt) if n.startswith("filler.")]:
            os.unlink(self.cluster.path(name))

        def heals():
            try:
                with open(self.cluster.path("heals"), "wb") as f:
                    f.write(bytes(8 << 20))
                    f.flush()
                    os.fsync(f.fileno())
                os.unlink(self.cluster.path("heals"))
                return True
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise Lost(f"after the deletes: {e!r}") from e
                time.sleep(0.5)
                return False

        wait_for("room after the deletes", heals, 240)
        self.bearable_until = time.monotonic() + 20
        return f"full after {written} MiB more, and healed"

    def scrub(self):
        run(HOLDFAST, "admin", "scrub", "--detach", *self.random.choice([[], ["--deep"]]), "--data", self.cluster.data)
        return "asked for a scrub"

    def pick(self, also_first=True, among=range(OSDS)):
        """An OSD that may be hurt: never more than the code survives."""
        if len(self.hurt) >= PARITY:
            self.mend(600)
        osd = self.random.choice([o for o in among if also_first or o > 0])
        self.hurt.add(osd)
        return osd

    def events(self):
        menu = [self.kill] * 4 + [self.restart, self.scrub, self.full] + [self.garbage] * 2 + [self.remove, self.new_device] + [self.mirror] * 2
        return menu + [self.failing, self.hanging] if self.devices[FAULTY[0]].server else menu

    # ---- the course ----
    def whole(self):
        """Redundancy is what it should be, by the cluster's own books."""
        s = self.cluster.status()
        queued = s["repair"]["queued"] + s["repair"]["waiting"] + s["repair"]["lost"]
        copies = [m["role"] for m in s["metadata"]["log"]].count("copy")
        return s["health"] == "ok" and queued == 0 and s["metadata"]["missing"] == 0 and copies == PARITY + 1

    def scrubbed(self, seconds):
        """How many faults a deep scrub found."""
        run(HOLDFAST, "admin", "scrub", "--deep", "--data", self.cluster.data, timeout=seconds)
        return self.cluster.status()["scrub"]["deep"]["faults"]

    def mend(self, seconds):
        """Lets repair bring redundancy back, so that other devices may be hurt."""
        if not self.hurt:
            return
        # One that left service (a device that hung for too long) is exchanged, as an operator would.
        for osd in [o["id"] for o in self.cluster.status()["osds"] if o["state"] in ("failed", "lost")]:
            self.replace(int(osd.removeprefix("osd.")))
        self.scrubbed(seconds)
        wait_for("redundancy to be back", self.whole, seconds)
        self.bearable_until = max(self.bearable_until, time.monotonic() + 10)
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
            w.settles = True
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

    def taken(self):
        """Of each OSD: bytes that nobody can have, live bytes, and what is owed."""
        s = self.cluster.status()
        return {o["id"]: (o["total"] - o["free"], o["live"], o["debt"]) for o in s["osds"]}, s

    def run(self):
        self.start()
        self.cluster.s3().list_buckets()
        empty, _ = self.taken()
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
        self.check_broken(workers)
        self.stopping.set()
        for w in workers:
            w.join(150)
            assert not w.is_alive(), f"{w.kind} {w.number} does not end"
        self.check_broken(workers)
        self.say("verifying")
        checked = self.verify(workers)
        self.mend(600)
        wait_for("redundancy to be back at the end", self.whole, 600)
        faults = self.scrubbed(600)
        if faults:
            raise Lost(f"a deep scrub after the repair finds {faults} faults")
        self.say("again after a restart")
        self.restart()
        self.verify(workers)
        # What went through all this is told of whole.
        self.cluster.stop(300)
        told = run(HOLDFAST, "dump", self.cluster.data, timeout=600).stdout.count("\n")
        self.start()
        full, _ = self.taken()
        returned = self.empty_again(empty)
        summary = {
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.began),
            "operations": {k: sum(w.ops for w in workers if w.kind == k) for k in ("blocks", "files", "objects")},
            "bytes_written": sum(w.bytes for w in workers),
            "errors_borne": sum(w.waits for w in workers),
            "lives": self.life,
            "faults": {k: self.faults.count(k) for k in sorted(set(self.faults))},
            "names_checked": checked,
            "records_dumped": told,
            "health": self.cluster.status()["health"],
            "taken_before": sum(t for t, _, _ in empty.values()),
            "taken_full": sum(t for t, _, _ in full.values()),
            "taken_after_deletion": sum(t for t, _, _ in returned.values()),
        }
        self.cluster.stop(300)
        return summary

    def empty_again(self, empty):
        """Deletes everything: then each OSD holds nothing and owes nothing, and all of its room is to be had but what the empty one kept."""
        for name in os.listdir(self.cluster.mnt):
            path = self.cluster.path(name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        s3 = self.cluster.s3()
        # A client that was cut off leaves its upload open.
        for upload in s3.list_multipart_uploads(Bucket="home").get("Uploads", []):
            s3.abort_multipart_upload(Bucket="home", Key=upload["Key"], UploadId=upload["UploadId"])
        os.sync()
        # The segment that is written to, and the next.
        kept = 2 * max(os.path.getsize(p) for n in range(OSDS) for p in self.segments(n))
        seen = {}

        def back():
            osds, s = self.taken()
            seen.update(osds=osds, debt=s["debt"], stripes=s["metadata"]["stripes"], inodes=s["metadata"]["inodes"])
            owed = s["debt"]["deleting"] + s["debt"]["cleaning_bytes"] + s["metadata"]["orphans_queued"] + s["metadata"]["stripes"]
            free = all(taken <= empty[osd][0] + kept and live == 0 for osd, (taken, live, _) in osds.items())
            return owed == 0 and free and s["space"]["state"] == "ok"

        try:
            wait_for("the space of what was deleted", back, 300)
        except AssertionError as e:
            raise Lost(f"{e}: {seen}; at the start {empty}, and {kept} may be kept") from e
        return seen["osds"]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("minutes", nargs="?", type=float, default=10)
    p.add_argument("--seed", type=int, default=None, help="of a run to replay")
    p.add_argument("--dir", default=os.environ.get("HOLDFAST_TEST_DIR", "/var/tmp"), help="where the devices lie; not tmpfs")
    a = p.parse_args()
    seed = a.seed if a.seed is not None else int.from_bytes(os.urandom(4), "little")
    work = tempfile.mkdtemp(prefix="holdfast-soak.", dir=a.dir)
    print(f"seed {seed}; replay with: scripts/soak.sh {a.minutes:g} --seed {seed}", flush=True)
    soak = None
    try:
        soak = Soak(work, seed, a.minutes * 60)
        summary = soak.run()
        print(json.dumps(summary, indent=1))
        print("soak: passed")
    except BaseException as e:
        print(f"soak: FAILED with seed {seed}: {e!r}\n--- the last of the cluster's own words ---", flush=True)
        print("\n".join(soak.cluster.lines[-60:]) if soak else "")
        raise SystemExit(1) if isinstance(e, Exception) else e
    finally:
        if soak:
            soak.stopping.set()
            soak.cluster.destroy()
            for device in soak.devices:
                device.close()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
