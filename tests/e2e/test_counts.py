"""What an operation costs in flushes, commands, stripes and copies: counts do not depend on the machine."""
import mmap
import os
import time

import pytest

from cluster import Cluster, wait_for

OPS = 20


@pytest.fixture(scope="module", params=[(1, "1+0", 1), (6, "4+2", 3)], ids=lambda p: p[1])
def counted(request, module_work):
    """A cluster with background publishing out of the way, and how many shards a small stripe has."""
    osds, code, copies = request.param
    c = Cluster(os.path.join(module_work, code), osds=osds, code=code)
    os.makedirs(c.work)
    c.start()
    fd = os.open(c.path("file"), os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    page = mmap.mmap(-1, 8 << 20)
    page.write(os.urandom(8 << 20))
    os.pwrite(fd, page, 0)
    os.fsync(fd)
    c.s3().put_object(Bucket="home", Key="warm", Body=b"x" * 4096)
    yield c, copies, fd
    os.close(fd)
    c.destroy()


BACKGROUND = [f"holdfast_meta_{what}_total" for what in ("packs_written", "checkpoints", "stripes_deleted", "orphans_reaped")]


def idle(c):
    """Waits until nothing waits to be packed or deleted."""
    def done():
        m = c.status()["metadata"]
        return m["packs"]["staged"] == 0 and m["packs"]["sparse_packs"] == 0
    wait_for("small writes are packed", done)


def cost(c, what):
    """The counters that `what`, done OPS times, moved, per operation: the least of three runs, so that what the background does meanwhile
    (packing, deleting, freeing) does not count."""
    runs = []
    for _ in range(20):
        idle(c)
        before = c.metrics()
        for n in range(OPS):
            what(n)
        after = c.metrics()
        moved = {k: (after[k] - before.get(k, 0)) / OPS for k in after}
        if all(moved[k] == 0 for k in BACKGROUND):
            runs.append(moved)
        if len(runs) == 3:
            break
    runs = runs or [moved]
    return {k: min(r.get(k, 0) for r in runs) for k in moved}


def test_a_4_kib_write_and_fsync(counted):
    c, _, fd = counted
    page = mmap.mmap(-1, 4096)

    def step(n):
        page[:8] = n.to_bytes(8, "little")
        os.pwrite(fd, page, n * 4096)
        os.fdatasync(fd)

    # A direct handle is known to sync after each write by its third.
    for n in range(3):
        step(n)
    d = cost(c, step)
    assert d["holdfast_disk_flushes_total"] == 1, "of the log"
    assert d["holdfast_meta_commands_total"] == 1 and d["holdfast_vfs_publishes_total"] == 1
    assert d["holdfast_objects_writes_total"] == 0 and d["holdfast_disk_writes_total"] == 1
    assert d["holdfast_disk_write_bytes_total"] == 2 * 4096, "the command with its bytes, in whole blocks"
    assert d["holdfast_vfs_written_bytes_total"] == 4096


def test_a_buffered_4_kib_write_and_fsync(counted):
    c, _, _ = counted
    with open(c.path("buffered"), "w+b", buffering=0) as f:
        f.write(b"0" * (OPS * 4096))
        os.fsync(f.fileno())

        def step(n):
            os.pwrite(f.fileno(), bytes([n]) * 4096, n * 4096)
            os.fsync(f.fileno())

        d = cost(c, step)
    assert d["holdfast_disk_flushes_total"] == 1 and d["holdfast_meta_commands_total"] == 1
    assert d["holdfast_objects_writes_total"] == 0 and d["holdfast_disk_writes_total"] == 1


def test_small_writes_are_packed_and_what_they_cost_settles(counted):
    c, _, _ = counted
    idle(c)
    before = c.metrics()
    for n in range(64):
        with open(c.path(f"small{n}"), "wb") as f:
            f.write(bytes([n]) * 4096)
            f.flush()
            os.fsync(f.fileno())
    idle(c)
    after = c.metrics()
    moved = {k: after[k] - before.get(k, 0) for k in after}
    assert moved["holdfast_meta_drained_bytes_total"] == 64 * 4096
    assert 1 <= moved["holdfast_meta_packs_written_total"] <= 16, "many to a pack"
    c.drop_caches()
    for n in range(64):
        with open(c.path(f"small{n}"), "rb") as f:
            assert f.read() == bytes([n]) * 4096
        os.unlink(c.path(f"small{n}"))


def test_a_1_mib_direct_write(counted):
    c, copies, fd = counted
    page = mmap.mmap(-1, 1 << 20)
    page.write(os.urandom(1 << 20))
    d = cost(c, lambda n: os.pwrite(fd, page, (n % 8) << 20))
    assert d["holdfast_objects_writes_total"] == 1
    assert d["holdfast_vfs_copied_bytes_total"] == 0 and d["holdfast_objects_copied_bytes_total"] == 0, "from the kernel's reply to the devices without a copy"
    assert d["holdfast_objects_puts_total"] == (1 if copies == 1 else 6)
    os.fsync(fd)


def test_a_4_kib_put_and_get(counted):
    c, _, _ = counted
    s3 = c.s3()
    d = cost(c, lambda n: s3.put_object(Bucket="home", Key=f"put{time.monotonic_ns()}", Body=b"p" * 4096))
    assert d["holdfast_s3_commits_total"] == 1 and d["holdfast_meta_commands_total"] == 1
    assert d["holdfast_objects_puts_total"] == 0 and d["holdfast_disk_flushes_total"] == 1, "of the log"
    s3.put_object(Bucket="home", Key="put1", Body=b"p" * 4096)
    idle(c)
    d = cost(c, lambda n: s3.get_object(Bucket="home", Key="put1")["Body"].read())
    assert d["holdfast_objects_gets_total"] == 1 and d["holdfast_meta_commands_total"] == 0
    assert d["holdfast_disk_writes_total"] <= 0.5


def test_a_sequential_write_makes_whole_stripes(counted):
    c, _, _ = counted

    def step(n):
        with open(c.path("seq"), "wb") as f:
            for _ in range(16):
                f.write(b"s" * (1 << 20))
            f.flush()
            os.fsync(f.fileno())

    global OPS
    kept, OPS = OPS, 2
    d = cost(c, step)
    OPS = kept
    assert d["holdfast_objects_writes_total"] == 4, "16 MiB in stripes of 4"
    assert 16 << 20 <= d["holdfast_vfs_copied_bytes_total"] <= 18 << 20, "one copy, out of the request, and a little where a run grows"
