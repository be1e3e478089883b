"""kill -9 under load: every fsynced byte and acknowledged object is there, nothing is half visible.

HOLDFAST_KILL_ROUNDS sets the rounds (10 here).
"""
import hashlib
import os
import random
import threading

from botocore.exceptions import BotoCoreError, ClientError

from cluster import Cluster

ROUNDS = int(os.environ.get("HOLDFAST_KILL_ROUNDS", "10"))
BLOCK = 4096


class Writer(threading.Thread):
    """Appends records to a file and remembers how many were acknowledged by fsync."""

    def __init__(self, cluster, name, seed):
        super().__init__(daemon=True)
        self.path, self.random = cluster.path(name), random.Random(seed)
        self.synced = 0  # records
        self.written = 0

    @staticmethod
    def record(name, n):
        h = hashlib.sha256(f"{name}:{n}".encode()).digest()
        return (h * (BLOCK // len(h)))[:BLOCK]

    def run(self):
        try:
            with open(self.path, "wb", buffering=0) as f:
                while True:
                    for _ in range(self.random.randint(1, 6)):
                        f.write(self.record(self.path, self.written))
                        self.written += 1
                    os.fsync(f.fileno())
                    self.synced = self.written
        except OSError:
            pass  # the daemon was killed

    def check(self):
        data = open(self.path, "rb").read() if os.path.exists(self.path) else b""
        assert len(data) >= self.synced * BLOCK, f"{self.path}: {len(data)} bytes, {self.synced * BLOCK} were fsynced"
        for n in range(len(data) // BLOCK):
            got = data[n * BLOCK:(n + 1) * BLOCK]
            want = self.record(self.path, n)
            if n < self.synced:
                assert got == want, f"{self.path}: record {n} of {self.synced} fsynced is wrong"
            else:
                assert got in (want, bytes(BLOCK)), f"{self.path}: record {n} is neither old nor new"


class Overwriter(threading.Thread):
    """Overwrites one block again and again: after a crash it is the last fsynced version or a later one."""

    def __init__(self, cluster, name):
        super().__init__(daemon=True)
        self.path = cluster.path(name)
        self.begun = self.synced = 0

    @staticmethod
    def version(n):
        return n.to_bytes(8, "little") * 1024

    def run(self):
        try:
            f = os.open(self.path, os.O_RDWR | os.O_CREAT)
            while True:
                self.begun += 1
                os.pwrite(f, self.version(self.begun), 0)
                os.fsync(f)
                self.synced = self.begun
        except OSError:
            pass

    def check(self):
        data = open(self.path, "rb").read() if os.path.exists(self.path) else b""
        if self.synced == 0 and not data:
            return
        n = int.from_bytes(data[:8], "little")
        assert self.synced <= n <= self.begun and data == self.version(n), f"version {n}, fsynced {self.synced}, begun {self.begun}"


class Putter(threading.Thread):
    """PUTs objects of many sizes and remembers those that were acknowledged; half are overwritten or deleted later."""

    def __init__(self, cluster, round_, seed):
        super().__init__(daemon=True)
        self.s3, self.random, self.prefix = cluster.s3(), random.Random(seed), f"r{round_}/"
        self.state = {}  # key → set of acceptable contents (None: absent)

    def run(self):
        n = 0
        try:
            while True:
                key = f"{self.prefix}o{self.random.randint(0, 20)}"
                old = self.state.get(key, {None})
                if self.random.random() < 0.2:
                    self.state[key] = old | {None}
                    self.s3.delete_object(Bucket="home", Key=key)
                    self.state[key] = {None}
                else:
                    n += 1
                    size = self.random.choice([0, 10, 5000, 70_000, 300_000, 5_000_000])
                    body = (f"{key}:{n}:".encode() * (size // 8 + 1))[:size]
                    self.state[key] = old | {body}
                    self.s3.put_object(Bucket="home", Key=key, Body=body)
                    self.state[key] = {body}
        except (ClientError, BotoCoreError):
            pass

    def check(self, cluster):
        s3 = cluster.s3()
        for key, acceptable in self.state.items():
            try:
                got = s3.get_object(Bucket="home", Key=key)["Body"].read()
            except ClientError as e:
                assert e.response["Error"]["Code"] == "NoSuchKey", e
                got = None
            assert got in acceptable, f"{key}: {None if got is None else len(got)} bytes is not what was acknowledged"
            path = cluster.path(key)
            assert (open(path, "rb").read() if os.path.exists(path) else None) == got, f"{key}: the doors differ"


class Renamer(threading.Thread):
    """Replaces a file by writing a temporary one, fsync, rename, fsync of the folder: never absent, never half."""

    def __init__(self, cluster, name):
        super().__init__(daemon=True)
        self.dir, self.path = cluster.mnt, cluster.path(name)
        self.begun = self.done = 0

    def run(self):
        try:
            d = os.open(self.dir, os.O_RDONLY)
            while True:
                self.begun += 1
                with open(self.path + ".tmp", "wb") as f:
                    f.write(f"{self.begun}\n".encode() * 1000)
                    f.flush()
                    os.fsync(f.fileno())
                os.rename(self.path + ".tmp", self.path)
                os.fsync(d)
                self.done = self.begun
        except OSError:
            pass

    def check(self):
        if self.done == 0 and not os.path.exists(self.path):
            return
        data = open(self.path, "rb").read()
        n = int(data.split(b"\n", 1)[0])
        assert self.done <= n <= self.begun and data == f"{n}\n".encode() * 1000


def test_kill_9_under_load(work):
    seed = int(os.environ.get("HOLDFAST_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    c = Cluster(work)
    c.start()
    try:
        for round_ in range(ROUNDS):
            load = [Writer(c, f"w{round_}.{i}", rng.random()) for i in range(3)] + [Overwriter(c, f"o{round_}"), Renamer(c, f"n{round_}")]
            putter = Putter(c, round_, rng.random())
            for t in [*load, putter]:
                t.start()
            putter.join(rng.uniform(0.3, 1.5))  # a time, not a synchronisation: the kill falls anywhere
            c.kill()
            for t in [*load, putter]:
                t.join(30)
                assert not t.is_alive()
            c.start()
            for t in load:
                t.check()
            putter.check(c)
            assert sum(t.synced for t in load if hasattr(t, "synced")) > 0, "nothing was fsynced: the round proves nothing"
        assert c.status()["health"] == "ok"
        c.stop()
    finally:
        print(f"seed {seed}")
        c.destroy()
