"""Space comes back: a small device overwritten many times, filled to its end, and emptied."""
import contextlib
import errno
import mmap
import os
import random
import subprocess

import pytest

from cluster import Cluster, run, wait_for

MIB = 1 << 20


@contextlib.contextmanager
def filesystem(work, mib):
    """A filesystem of its own, on a loop device."""
    image, point = os.path.join(work, "image"), os.path.join(work, "device")
    with open(image, "wb") as f:
        f.truncate(mib * MIB)
    os.mkdir(point)
    run("mkfs.ext4", "-q", "-F", "-m", "0", image)
    run("mount", "-o", "loop", image, point)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], capture_output=True)


@pytest.fixture
def device(work):
    with filesystem(work, 192) as point:
        yield point


@pytest.fixture
def roomy(work):
    """A device whose segments hold several of the largest shards."""
    with filesystem(work, 512) as point:
        c = Cluster(work, dirs=[os.path.join(point, "data")], osds=1)
        c.start()
        yield c
        c.destroy()


@pytest.fixture
def small(work, device):
    c = Cluster(work, dirs=[os.path.join(device, "data")], osds=1)
    c.start()
    yield c
    c.destroy()


def space(c):
    return c.status()["space"]


def write(path, size, seed, step=MIB):
    """Overwrites the whole file in place, and makes it durable."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        for at in range(0, size, step):
            n = min(step, size - at)
            assert os.pwrite(fd, bytes([(seed + at // step) % 251]) * n, at) == n
        os.fsync(fd)
    finally:
        os.close(fd)


def fill(path, step=MIB):
    """Writes until there is no room; answers the bytes that are durable."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    done = 0
    try:
        while True:
            os.pwrite(fd, os.urandom(step), done)
            os.fsync(fd)
            done += step
            assert done < 1 << 30
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        return done
    finally:
        try:
            os.close(fd)
        except OSError as e:
            assert e.errno == errno.ENOSPC, e


def settled(c):
    s = c.status()
    return s["debt"] == {**s["debt"], "cleaning_bytes": 0, "deleting": 0}


def test_a_device_overwritten_many_times_at_four_fifths_is_never_full_and_is_empty_again_after_a_delete(small):
    at_start = space(small)["usable_free"]
    stripe = 4 * MIB
    size = at_start * 4 // 5 // stripe * stripe
    path = small.path("file")
    for seed in range(8):
        write(path, size, seed)
    # Here and there, in whole stripes.
    for seed in range(8, 12):
        fd = os.open(path, os.O_WRONLY)
        for n in range(size // stripe):
            first = n * 7919 % (size // stripe) * (stripe // MIB)
            data = b"".join(bytes([(seed + first + i) % 251]) * MIB for i in range(stripe // MIB))
            os.pwrite(fd, data, first * MIB)
        os.fsync(fd)
        os.close(fd)
    small.drop_caches()
    with open(path, "rb") as f:
        for n in range(size // MIB):
            assert f.read(MIB) == bytes([(11 + n) % 251]) * MIB, f"MiB {n}"
    assert small.status()["warnings"] == [] or space(small)["state"] == "nearly_full"
    os.unlink(path)
    wait_for("the space is back", lambda: settled(small) and space(small)["usable_free"] >= at_start - 3 * stripe)
    assert space(small)["live"] == 0


def test_small_random_overwrites_at_four_fifths_are_never_refused(roomy):
    """64 KiB through the page cache, half as much again as the file has, and 4 KiB direct."""
    at_start = space(roomy)["usable_free"]
    size = at_start * 4 // 5 // (4 * MIB) * 4 * MIB
    path = roomy.path("file")
    write(path, size, 1)
    want = bytearray(size)
    for at in range(0, size, MIB):
        want[at:at + MIB] = bytes([(1 + at // MIB) % 251]) * MIB
    rng = random.Random(5)
    fd = os.open(path, os.O_RDWR)
    for n in range(size * 3 // 2 // 65536):
        at = rng.randrange(size // 65536) * 65536
        data = bytes([rng.randrange(256)]) * 65536
        assert os.pwrite(fd, data, at) == len(data)
        want[at:at + 65536] = data
        if n % 200 == 0:
            os.fsync(fd)
    os.fsync(fd)
    os.close(fd)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    block = mmap.mmap(-1, 4096)
    for n in range(3000):
        at = rng.randrange(size // 4096) * 4096
        block[:] = bytes([rng.randrange(256)]) * 4096
        assert os.pwrite(fd, block, at) == 4096
        want[at:at + 4096] = block[:]
        if n % 10 == 0:
            os.fsync(fd)
    os.fsync(fd)
    os.close(fd)
    roomy.drop_caches()
    with open(path, "rb") as f:
        for at in range(0, size, MIB):
            assert f.read(MIB) == want[at:at + MIB], f"MiB {at // MIB}"
    assert roomy.metrics()["holdfast_meta_worn_bytes_total"] > 0
    os.unlink(path)
    wait_for("the space is back", lambda: settled(roomy) and space(roomy)["usable_free"] >= at_start - 32 * MIB)
    assert space(roomy)["live"] == 0


def test_a_full_device_warns_refuses_reads_deletes_and_heals_without_a_restart(small):
    small.s3().create_bucket(Bucket="objects")
    small.s3().put_object(Bucket="objects", Key="kept", Body=b"kept" * 1000)
    write(small.path("kept"), MIB, 3)
    done = fill(small.path("big"))
    assert done > 40 * MIB
    state = small.status()
    assert state["space"]["state"] in ("full", "nearly_full") and "full" in state["warnings"][0], state["warnings"]
    with pytest.raises(small.s3().exceptions.ClientError) as refused:
        for n in range(8):
            small.s3().put_object(Bucket="objects", Key=f"more{n}", Body=os.urandom(8 * MIB))
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 507
    small.drop_caches()
    assert open(small.path("kept"), "rb").read() == b"".join(bytes([(3 + n) % 251]) * MIB for n in range(1))
    assert small.s3().get_object(Bucket="objects", Key="kept")["Body"].read() == b"kept" * 1000
    # Deletes go on through both doors, and the room is used again at once.
    small.s3().delete_object(Bucket="objects", Key="kept")
    os.unlink(small.path("big"))
    write(small.path("again"), done // 2 // MIB * MIB, 9)
    wait_for("the warning is gone", lambda: small.status()["warnings"] == [])


def test_a_filesystem_that_others_fill_refuses_new_files_takes_deletes_and_heals_without_a_restart(small, device):
    for n in range(200):
        write(small.path(f"f{n}"), 8192, n)
    other = os.path.join(device, "other")
    with open(other, "wb") as f:
        with pytest.raises(OSError) as full:
            while True:
                f.write(b"x" * MIB)
                f.flush()
    assert full.value.errno == errno.ENOSPC
    # Creating goes on while there is room made ready, then is refused; the service lives.
    refused = 0
    for n in range(20_000):
        try:
            write(small.path(f"new{n}"), 0, n)
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            refused += 1
            break
    assert refused == 1, "20,000 files were made on a full device"
    assert small.status()["space"]["state"] == "metadata_full"
    for n in range(200):
        os.unlink(small.path(f"f{n}"))
    os.unlink(other)

    def takes():
        try:
            write(small.path("healed"), 8192, 1)
            return True
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            return False

    wait_for("new files are taken again", takes)
    assert small.status()["space"]["state"] == "ok"


def test_a_file_unlinked_while_open_keeps_its_data_and_its_room_comes_back_with_the_last_close(small):
    path = small.path("open")
    write(path, 16 * MIB, 5)
    before = space(small)["live"]
    fd = os.open(path, os.O_RDONLY)
    os.unlink(path)
    wait_for("the rest is settled", lambda: settled(small))
    small.drop_caches()
    assert os.pread(fd, MIB, 15 * MIB) == bytes([(5 + 15) % 251]) * MIB
    assert space(small)["live"] >= before
    os.close(fd)
    wait_for("the room is back", lambda: space(small)["live"] <= before - 16 * MIB)
