"""Random operations on the mount, by seed, with restarts, held against a plain in-memory filesystem. Both bindings.

HOLDFAST_SEED replays one seed; HOLDFAST_MODEL_OPS sets how many operations.
"""
import errno
import mmap
import os
import random

import pytest

from cluster import Cluster

OPS = int(os.environ.get("HOLDFAST_MODEL_OPS", "600"))
SIZES = (0, 1, 100, 4095, 4096, 5000, 65536, 70_000, 300_000, 1 << 20)


class Node:
    """An inode of the reference: a file's bytes, or a directory's entries."""

    def __init__(self, directory=False):
        self.data = bytearray()
        self.entries = {} if directory else None
        self.links = 2 if directory else 1


class Model:
    """Right by being simple: one class, no caching, no partial failures."""

    def __init__(self):
        self.root = Node(True)

    def walk(self, path):
        node = self.root
        for name in filter(None, path.split("/")):
            if node.entries is None:
                raise OSError(errno.ENOTDIR, path)
            if name not in node.entries:
                raise OSError(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def parent(self, path):
        head, name = os.path.split(path)
        node = self.walk(head)
        if node.entries is None:
            raise OSError(errno.ENOTDIR, path)
        return node, name

    def file(self, path):
        node = self.walk(path)
        if node.entries is not None:
            raise OSError(errno.EISDIR, path)
        return node

    def create(self, path):
        d, name = self.parent(path)
        if name in d.entries:
            raise OSError(errno.EEXIST, path)
        d.entries[name] = Node()

    def mkdir(self, path):
        d, name = self.parent(path)
        if name in d.entries:
            raise OSError(errno.EEXIST, path)
        d.entries[name] = Node(True)

    def write(self, path, offset, data):
        f = self.file(path)
        if data and len(f.data) < offset:
            f.data.extend(bytes(offset - len(f.data)))
        f.data[offset:offset + len(data)] = data

    def truncate(self, path, size):
        f = self.file(path)
        del f.data[size:]
        f.data.extend(bytes(size - len(f.data)))

    def unlink(self, path):
        d, name = self.parent(path)
        node = self.walk(path)
        if node.entries is not None:
            raise OSError(errno.EISDIR, path)
        del d.entries[name]
        node.links -= 1

    def rmdir(self, path):
        d, name = self.parent(path)
        node = self.walk(path)
        if node.entries is None:
            raise OSError(errno.ENOTDIR, path)
        if node.entries:
            raise OSError(errno.ENOTEMPTY, path)
        del d.entries[name]

    def link(self, old, new):
        node = self.walk(old)
        d, name = self.parent(new)
        if name in d.entries:
            raise OSError(errno.EEXIST, new)
        if node.entries is not None:
            raise OSError(errno.EPERM, old)
        d.entries[name] = node
        node.links += 1

    def rename(self, old, new):
        d, name = self.parent(old)
        node = self.walk(old)
        to, to_name = self.parent(new)
        if node.entries is not None and (new + "/").startswith(old + "/") and new != old:
            raise OSError(errno.EINVAL, new)
        target = to.entries.get(to_name)
        if target is node:
            return
        if target is not None:
            if (old + "/").startswith(new + "/"):
                raise OSError(errno.ENOTEMPTY, new)
            if node.entries is None and target.entries is not None:
                raise OSError(errno.EISDIR, new)
            if node.entries is not None and target.entries is None:
                raise OSError(errno.ENOTDIR, new)
            if target.entries:
                raise OSError(errno.ENOTEMPTY, new)
            target.links -= 1
        del d.entries[name]
        to.entries[to_name] = node

    def paths(self, node=None, prefix=""):
        for name, child in (node or self.root).entries.items():
            yield f"{prefix}/{name}", child
            if child.entries is not None:
                yield from self.paths(child, f"{prefix}/{name}")


class Real:
    """The same operations on the mount; writes by several ways."""

    def __init__(self, root, rng):
        self.root, self.rng = root, rng

    def p(self, path):
        return self.root + path

    def create(self, path):
        os.close(os.open(self.p(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def mkdir(self, path):
        os.mkdir(self.p(path))

    def write(self, path, offset, data):
        way = self.rng.choice(("buffered", "direct", "sync", "append", "mmap"))
        p = self.p(path)
        size = os.stat(p).st_size
        if way == "direct" and offset % 4096 == 0 and len(data) % 4096 == 0 and data:
            fd = os.open(p, os.O_WRONLY | os.O_DIRECT)
            page = mmap.mmap(-1, len(data))
            page.write(data)
            assert os.pwrite(fd, page, offset) == len(data)
        elif way == "append" and offset == size:
            fd = os.open(p, os.O_WRONLY | os.O_APPEND)
            assert os.write(fd, data) == len(data)
        elif way == "mmap" and data and offset + len(data) <= size:
            fd = os.open(p, os.O_RDWR)
            m = mmap.mmap(fd, size)
            m[offset:offset + len(data)] = bytes(data)
            m.flush()
            m.close()
        else:
            fd = os.open(p, os.O_WRONLY | (os.O_SYNC if way == "sync" else 0))
            done = 0
            while done < len(data):
                done += os.pwrite(fd, data[done:], offset + done)
        if self.rng.random() < 0.2:
            os.fsync(fd)
        os.close(fd)

    def truncate(self, path, size):
        os.truncate(self.p(path), size)

    def unlink(self, path):
        os.unlink(self.p(path))

    def rmdir(self, path):
        os.rmdir(self.p(path))

    def link(self, old, new):
        os.link(self.p(old), self.p(new))

    def rename(self, old, new):
        os.rename(self.p(old), self.p(new))


def outcome(call):
    try:
        call()
        return None
    except OSError as e:
        return e.errno


def compare(model, root):
    want = {}
    for path, node in model.paths():
        want[path] = node
    got = {}
    for base, dirs, files in os.walk(root):
        for n in dirs + files:
            full = os.path.join(base, n)
            got[full[len(root):]] = full
    assert set(got) == set(want), f"names differ: {sorted(set(got) ^ set(want))[:5]}"
    for path, node in want.items():
        st = os.lstat(got[path])
        if node.entries is None:
            assert st.st_size == len(node.data), f"{path}: size {st.st_size}, should be {len(node.data)}"
            assert st.st_nlink == node.links, f"{path}: {st.st_nlink} links, should be {node.links}"
            with open(got[path], "rb") as f:
                data = f.read()
            if data != node.data:
                at = next(i for i, (a, b) in enumerate(zip(data, node.data)) if a != b)
                raise AssertionError(f"{path}: differs at byte {at} of {len(data)}")


@pytest.mark.parametrize("binding", ["dev", "fuser"])
def test_random_operations_with_restarts(work, binding):
    seed = int(os.environ.get("HOLDFAST_SEED", random.randrange(1 << 30)))
    rng = random.Random(seed)
    c = Cluster(work, s3=False, options=["-o", f"binding={binding}", "--memory", "128M"])
    c.start()
    model = Model()
    try:
        real = Real(c.mnt, random.Random(seed + 1))
        for n in range(OPS):
            every = ["", *(p for p, _ in model.paths())]
            dirs = ["", *(p for p, x in model.paths() if x.entries is not None)]
            files = [p for p, x in model.paths() if x.entries is None] or ["/none"]
            fresh = lambda: f"{rng.choice(dirs)}/n{rng.randrange(12)}"
            op = rng.choices(("write", "create", "mkdir", "truncate", "unlink", "rmdir", "link", "rename", "read"), (30, 15, 6, 10, 6, 3, 5, 8, 10))[0]
            if op == "write":
                f = rng.choice(files)
                size = len(model.file(f).data) if f != "/none" else 0
                offset = rng.choice((0, size, rng.randrange(size + 1), rng.randrange(size + 10_000), rng.randrange(64) * 4096))
                args = (f, offset, rng.randbytes(rng.choice(SIZES)))
            elif op == "truncate":
                args = (rng.choice(files), rng.choice((0, 1, 4096, 10_000, 100_000, rng.randrange(500_000))))
            elif op in ("create", "mkdir"):
                args = (fresh(),)
            elif op == "unlink":
                args = (rng.choice(files),)
            elif op == "rmdir":
                args = (rng.choice(dirs[1:] or ["/none"]),)
            elif op in ("link", "rename"):
                args = (rng.choice(every[1:] or ["/none"]), rng.choice((fresh(), rng.choice(every[1:] or ["/none"]))))
            else:
                f = rng.choice(files)
                if f != "/none":
                    node, at, length = model.file(f), rng.randrange(100_000), rng.choice(SIZES)
                    fd = os.open(c.mnt + f, os.O_RDONLY)
                    got = b""
                    while piece := os.pread(fd, length - len(got), at + len(got)):
                        got += piece
                    os.close(fd)
                    assert got == node.data[at:at + length], f"seed {seed} step {n}: read of {f} at {at}"
                continue
            want = outcome(lambda: getattr(model, op)(*args))
            got = outcome(lambda: getattr(real, op)(*args))
            assert got == want or {got, want} <= {errno.ENOTEMPTY, errno.EEXIST}, f"seed {seed} step {n}: {op} {args[:2]}: {got}, should be {want}"
            if rng.random() < 0.02:
                compare(model, c.mnt)
            if rng.random() < 0.006:
                c.restart()
                compare(model, c.mnt)
        compare(model, c.mnt)
        c.restart()
        compare(model, c.mnt)
        c.stop()
    except (AssertionError, OSError) as e:
        raise AssertionError(f"seed {seed}: {e}") from e
    finally:
        c.destroy()
