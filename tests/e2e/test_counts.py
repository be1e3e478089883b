"""What an operation costs in flushes, commands, stripes and copies: counts do not depend on the machine."""
import mmap
import os

import pytest

from cluster import Cluster

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


def cost(c, what):
    """The counters that `what`, done OPS times, moved, per operation."""
    before = c.metrics()
    for n in range(OPS):
        what(n)
    after = c.metrics()
    return {k: (after[k] - before.get(k, 0)) / OPS for k in after}


def test_a_4_kib_write_and_fsync(counted):
    c, copies, fd = counted
    page = mmap.mmap(-1, 4096)

    def step(n):
        page[:8] = n.to_bytes(8, "little")
        os.pwrite(fd, page, n * 4096)
        os.fdatasync(fd)

    d = cost(c, step)
    assert d["holdfast_disk_flushes_total"] == 2, "one for the shards of all OSDs, one for the log"
    assert d["holdfast_meta_commands_total"] == 1 and d["holdfast_vfs_publishes_total"] == 1
    assert d["holdfast_objects_writes_total"] == 1 and d["holdfast_objects_puts_total"] == copies, "whole copies"
    assert d["holdfast_disk_writes_total"] == copies + 1


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
    c, copies, _ = counted
    s3 = c.s3()
    d = cost(c, lambda n: s3.put_object(Bucket="home", Key=f"put{n % 4}", Body=b"p" * 4096))
    assert d["holdfast_s3_commits_total"] == 1 and d["holdfast_objects_puts_total"] == copies
    assert d["holdfast_disk_flushes_total"] <= 2.5, "two of its own; deletions of what it replaced share a few"
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
