"""What a program expects of a filesystem, through the real kernel. Both bindings."""
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import threading

import pytest

from cluster import Cluster, run, wait_for


@pytest.fixture(scope="module", params=["dev", "fuser"])
def m(request, module_work):
    c = Cluster(os.path.join(module_work, request.param), options=["-o", f"binding={request.param}"], s3=False, osds=1)
    os.makedirs(c.work)
    c.start()
    yield c
    c.destroy()


def test_statfs_and_types(m):
    s = os.statvfs(m.mnt)
    assert s.f_blocks > s.f_bfree > 0 and s.f_namemax == 255
    os.mkfifo(m.path("fifo"))
    assert stat.S_ISFIFO(os.stat(m.path("fifo")).st_mode)
    os.mknod(m.path("dev"), 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    assert os.stat(m.path("dev")).st_rdev == os.makedev(1, 3)
    os.symlink("x" * 1000, m.path("sym"))
    assert os.readlink(m.path("sym")) == "x" * 1000 and os.lstat(m.path("sym")).st_size == 1000


def test_attributes(m):
    p = m.path("attr")
    open(p, "w").write("x")
    os.chmod(p, 0o4755)
    os.chown(p, 12, 34)
    assert os.stat(p).st_mode & 0o7777 in (0o755, 0o4755)  # chown by root may keep it
    os.utime(p, ns=(1_000_000_001, 2_000_000_002))
    st = os.stat(p)
    assert (st.st_uid, st.st_gid, st.st_atime_ns, st.st_mtime_ns) == (12, 34, 1_000_000_001, 2_000_000_002)
    os.truncate(p, 10_000)
    assert os.stat(p).st_size == 10_000 and open(p, "rb").read() == b"x" + bytes(9_999)
    os.truncate(p, 0)
    assert open(p, "rb").read() == b""


def test_sparse_files(m):
    p = m.path("sparse")
    with open(p, "wb") as f:
        f.seek(1 << 30)
        f.write(b"end")
    st = os.stat(p)
    assert st.st_size == (1 << 30) + 3 and st.st_blocks * 512 < 1 << 20
    with open(p, "rb") as f:
        f.seek((1 << 30) - 5)
        assert f.read() == bytes(5) + b"end"


def test_append_from_two_descriptors(m):
    p = m.path("append")
    a, b = (os.open(p, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for _ in range(2))
    for n in range(50):
        os.write(a, b"a" * 10)
        os.write(b, b"b" * 10)
    os.close(a), os.close(b)
    data = open(p, "rb").read()
    assert len(data) == 1000 and data == (b"a" * 10 + b"b" * 10) * 50


def test_o_trunc_o_excl_o_direct(m):
    p = m.path("flags")
    open(p, "w").write("long content")
    open(p, "w").write("s")
    assert open(p).read() == "s"
    with pytest.raises(FileExistsError):
        os.open(p, os.O_CREAT | os.O_EXCL)
    fd = os.open(p, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 8192)
    page.write(b"d" * 8192)
    assert os.pwrite(fd, page, 0) == 8192
    assert os.preadv(fd, [page], 0) == 8192 and page[:] == b"d" * 8192
    assert open(p, "rb").read() == b"d" * 8192  # buffered sees direct
    with open(p, "r+b") as f:
        f.write(b"e" * 10)
        f.flush()
        assert os.preadv(fd, [page], 0) == 8192 and page[:11] == b"e" * 10 + b"d"  # direct sees buffered
    os.close(fd)


def test_mmap_shared(m):
    p = m.path("mapped")
    open(p, "wb").write(bytes(3 * 4096))
    with open(p, "r+b") as f:
        mem = mmap.mmap(f.fileno(), 0)
        mem[100:105] = b"hello"
        mem[8192:8195] = b"end"
        mem.flush()
        mem.close()
    data = open(p, "rb").read()
    assert data[100:105] == b"hello" and data[8192:8195] == b"end"


def test_unlink_while_open(m):
    p = m.path("gone")
    f = open(p, "w+b")
    f.write(b"still here" * 1000)
    f.flush()
    os.fsync(f.fileno())
    os.unlink(p)
    assert not os.path.exists(p)
    f.write(b"more")
    f.flush()
    f.seek(0)
    assert f.read() == b"still here" * 1000 + b"more"
    assert os.fstat(f.fileno()).st_nlink == 0
    f.close()


def test_rename_rules(m):
    d = m.path("r")
    os.makedirs(f"{d}/a/b")
    os.makedirs(f"{d}/empty")
    open(f"{d}/f", "w").write("f")
    open(f"{d}/g", "w").write("g")
    for frm, to, err in [("a", "a/b/c", errno.EINVAL), ("f", "a", errno.EISDIR), ("a", "f", errno.ENOTDIR), ("empty", "a", errno.ENOTEMPTY), ("none", "x", errno.ENOENT)]:
        with pytest.raises(OSError) as e:
            os.rename(f"{d}/{frm}", f"{d}/{to}")
        assert e.value.errno == err or (err == errno.ENOTEMPTY and e.value.errno == errno.EEXIST), (frm, to, e.value)
    os.rename(f"{d}/f", f"{d}/g")
    assert open(f"{d}/g").read() == "f" and not os.path.exists(f"{d}/f")
    os.rename(f"{d}/a", f"{d}/empty")
    assert os.path.isdir(f"{d}/empty/b")
    libc = ctypes.CDLL(None, use_errno=True)
    open(f"{d}/h", "w").write("h")
    assert libc.renameat2(-100, f"{d}/g".encode(), -100, f"{d}/h".encode(), 1) == -1 and ctypes.get_errno() == errno.EEXIST
    assert libc.renameat2(-100, f"{d}/g".encode(), -100, f"{d}/h".encode(), 2) == 0
    assert open(f"{d}/g").read() == "h" and open(f"{d}/h").read() == "f"


def test_directories(m):
    d = m.path("dir")
    os.mkdir(d)
    names = {f"{n:04}-{'x' * (n % 200)}" for n in range(1500)}
    for n in names:
        open(os.path.join(d, n), "w").close()
    assert set(os.listdir(d)) == names
    seen = set()
    with os.scandir(d) as it:
        for i, e in enumerate(it):
            assert e.name not in seen
            seen.add(e.name)
            if i % 3 == 0:
                os.unlink(e.path)  # removing while reading skips nothing that stays
    assert seen == names
    assert os.stat(d).st_nlink >= 2
    with pytest.raises(OSError) as e:
        os.rmdir(d)
    assert e.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    for n in os.listdir(d):
        os.unlink(os.path.join(d, n))
    os.rmdir(d)
    with pytest.raises(OSError) as e:
        open(m.path("n" * 256), "w")
    assert e.value.errno == errno.ENAMETOOLONG


def test_links(m):
    a, b = m.path("la"), m.path("lb")
    open(a, "w").write("x")
    os.link(a, b)
    assert os.stat(a).st_nlink == 2 and os.stat(a).st_ino == os.stat(b).st_ino
    os.unlink(a)
    assert open(b).read() == "x" and os.stat(b).st_nlink == 1
    with pytest.raises(OSError):
        os.link(m.mnt, m.path("ldir"))


def test_writers_in_parallel_on_one_file(m):
    p = m.path("parallel")
    fd = os.open(p, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    n, size = 8, 1 << 16

    def write(i):
        page = mmap.mmap(-1, size)
        page.write(bytes([i + 1]) * size)
        for r in range(16):
            os.pwrite(fd, page, (r * n + i) * size)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(n)]
    [t.start() for t in threads], [t.join(60) for t in threads]
    os.fsync(fd)
    os.close(fd)
    m.drop_caches()
    data = open(p, "rb").read()
    assert len(data) == 16 * n * size
    assert all(data[k * size:(k + 1) * size] == bytes([k % n + 1]) * size for k in range(16 * n))


def test_unknown_flags_are_refused(m):
    p = m.path("fa")
    fd = os.open(p, os.O_RDWR | os.O_CREAT)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    assert libc.fallocate(fd, 0x08, 0, 4096) == -1  # collapse range
    assert ctypes.get_errno() in (errno.EOPNOTSUPP, errno.EINVAL)
    os.close(fd)
    with pytest.raises(OSError) as e:
        os.setxattr(p, "user.x", b"1")
    assert e.value.errno == errno.EOPNOTSUPP


def test_admin_sync_and_memory_stay_in_bounds(m):
    with open(m.path("big"), "wb") as f:
        for _ in range(64):
            f.write(os.urandom(1 << 20) * 2)
    m.sync()
    s = m.status()
    assert s["health"] == "ok" and s["sessions"]
    rss = int(next(l for l in open(f"/proc/{m.process.pid}/status") if l.startswith("VmRSS")).split()[1]) << 10
    assert rss < 1.6 * (1 << 30), f"{rss >> 20} MiB"


def test_unmounting_from_outside_and_a_stale_mount(module_work):
    c = Cluster(os.path.join(module_work, "stale"), osds=1, s3=False)
    os.makedirs(c.work)
    c.start()
    open(c.path("f"), "w").write("x")
    run("sync", c.path("f"))
    c.process.kill()
    c.process.wait()
    with pytest.raises(OSError):
        os.listdir(c.mnt)  # the dead daemon's mount is still there
    c.start()
    assert open(c.path("f")).read() == "x"
    c.stop()


def test_a_second_interrupt_ends_at_once(module_work):
    import signal
    c = Cluster(os.path.join(module_work, "twice"), osds=1)
    os.makedirs(c.work)
    c.start()
    held = open(c.path("held"), "w")  # keeps the mount in use, so that the end waits
    c.process.send_signal(signal.SIGINT)
    wait_for("the end to begin", lambda: any("stopping" in l for l in c.lines))
    c.process.send_signal(signal.SIGINT)
    # Sooner than the five seconds that the mount's users would be given.
    assert c.process.wait(4) == 1
    wait_for("what it says", lambda: "interrupted again" in c.output, 5)
    try:
        held.close()
    except OSError:
        pass
    c.destroy()
    assert not os.path.ismount(c.mnt)
