"""One namespace, two doors: each sees at once what the other did, also in what is cached or open."""
import os
import random
import threading

import pytest
from botocore.exceptions import ClientError

from cluster import wait_for


def put(c, key, body):
    c.s3().put_object(Bucket="home", Key=key, Body=body)


def get(c, key):
    return c.s3().get_object(Bucket="home", Key=key)["Body"].read()


def test_unsynced_writes_of_the_mount_are_seen_over_s3(shared):
    with open(shared.path("dirty"), "wb") as f:
        f.write(b"a" * 10)
        f.flush()
        assert get(shared, "dirty") == b"a" * 10
        f.write(b"b" * 100_000)
        f.flush()
        assert get(shared, "dirty") == b"a" * 10 + b"b" * 100_000
        assert shared.s3().head_object(Bucket="home", Key="dirty")["ContentLength"] == 100_010
        f.truncate(5)
        assert get(shared, "dirty") == b"a" * 5


def test_a_put_replaces_what_the_mount_had_cached(shared):
    p = shared.path("cached")
    for n in range(20):
        put(shared, "cached", f"version {n}".encode() * (n * 100 + 1))
        with open(p, "rb") as f:
            assert f.read() == f"version {n}".encode() * (n * 100 + 1)
        assert os.stat(p).st_size == len(f"version {n}") * (n * 100 + 1)
    assert os.stat(p).st_mode & 0o777 == 0o644


def test_a_put_keeps_mode_and_owner_and_breaks_hard_links(shared):
    p = shared.path("kept")
    with open(p, "wb") as f:
        f.write(b"old")
    os.chmod(p, 0o640)
    os.chown(p, 7, 8)
    os.link(p, shared.path("kept.link"))
    put(shared, "kept", b"new")
    st = os.stat(p)
    assert (st.st_mode & 0o777, st.st_uid, st.st_gid, st.st_nlink) == (0o640, 7, 8, 1)
    assert open(shared.path("kept.link"), "rb").read() == b"old"


def test_names_that_s3_makes_and_deletes_show_at_once(shared):
    assert not os.path.exists(shared.path("new"))  # cached as absent
    put(shared, "new", b"1")
    assert os.path.exists(shared.path("new")) and "new" in os.listdir(shared.mnt)
    shared.s3().delete_object(Bucket="home", Key="new")
    assert not os.path.exists(shared.path("new")) and "new" not in os.listdir(shared.mnt)
    put(shared, "deep/er/file", b"2")
    assert os.listdir(shared.path("deep/er")) == ["file"]
    shared.s3().delete_object(Bucket="home", Key="deep/er/file")
    assert not os.path.exists(shared.path("deep")), "parents a PUT made vanish with their last key"
    os.mkdir(shared.path("made"))
    put(shared, "made/file", b"3")
    shared.s3().delete_object(Bucket="home", Key="made/file")
    assert os.path.isdir(shared.path("made")), "a directory the mount made stays"


def test_names_that_the_mount_makes_show_over_s3(shared):
    os.makedirs(shared.path("m/a"))
    for n in ("m/z", "m/a/x", "m/a.b"):
        open(shared.path(n), "wb").write(n.encode())
    keys = [o["Key"] for o in shared.s3().list_objects_v2(Bucket="home", Prefix="m/")["Contents"]]
    assert keys == ["m/a.b", "m/a/x", "m/z"], "byte order of full keys"
    r = shared.s3().list_objects_v2(Bucket="home", Prefix="m/", Delimiter="/")
    assert [o["Key"] for o in r["Contents"]] == ["m/a.b", "m/z"] and [p["Prefix"] for p in r["CommonPrefixes"]] == ["m/a/"]
    os.rename(shared.path("m/z"), shared.path("m/y"))
    assert get(shared, "m/y") == b"m/z"
    with pytest.raises(ClientError):
        get(shared, "m/z")
    os.unlink(shared.path("m/y"))
    with pytest.raises(ClientError):
        get(shared, "m/y")


def test_a_file_stays_readable_after_a_delete_over_s3(shared):
    body = os.urandom(3 << 20)
    put(shared, "held", body)
    with open(shared.path("held"), "rb") as f:
        assert f.read(10) == body[:10]
        shared.s3().delete_object(Bucket="home", Key="held")
        assert not os.path.exists(shared.path("held"))
        shared.drop_caches()
        f.seek(0)
        assert f.read() == body
        assert os.fstat(f.fileno()).st_nlink == 0


def test_a_get_in_progress_survives_deletion_through_the_mount(shared):
    body = os.urandom(24 << 20)
    put(shared, "streamed", body)
    stream = shared.s3().get_object(Bucket="home", Key="streamed")["Body"]
    first = stream.read(1 << 20)
    os.unlink(shared.path("streamed"))
    assert first + stream.read() == body


def test_key_conflicts_are_409_with_a_reason(shared):
    open(shared.path("afile"), "w").write("x")
    os.makedirs(shared.path("adir/sub"))
    for key in ("afile/below", "adir", "a//b", "./x", "x/../y", "x" * 300):
        with pytest.raises(ClientError) as e:
            put(shared, key, b"")
        r = e.value.response
        assert r["ResponseMetadata"]["HTTPStatusCode"] in (400, 409), (key, r)
        assert len(r["Error"]["Message"]) > 10, r
    assert open(shared.path("afile")).read() == "x"


def test_etags_of_files_changed_by_the_mount_are_not_md5s(shared):
    put(shared, "tag", b"hello")
    first = shared.s3().head_object(Bucket="home", Key="tag")["ETag"]
    assert first == '"5d41402abc4b2a76b9719d911017c592"'
    with open(shared.path("tag"), "ab") as f:
        f.write(b"!")
    second = shared.s3().head_object(Bucket="home", Key="tag")["ETag"]
    assert second != first and "-" in second
    assert shared.s3().head_object(Bucket="home", Key="tag")["ETag"] == second


def test_both_doors_under_concurrent_change(shared):
    """Writers through both doors on few names, readers through both: every read is some whole version."""
    names = [f"race{n}" for n in range(4)]
    stop, failures = threading.Event(), []
    size = 20_000

    def body(n):
        return (f"{n:08}".encode() * (size // 8))[:size]

    def whole(data):
        return data == b"" or (len(data) == size and data == data[:8] * (size // 8))

    def guard(f):
        def g():
            rng = random.Random(f.__name__)
            try:
                while not stop.is_set():
                    f(rng)
            except BaseException as e:  # noqa: B902 — reported by the test's own thread
                failures.append((f.__name__, e))
                stop.set()
        return threading.Thread(target=g)

    def put_some(rng):
        put(shared, rng.choice(names), body(rng.randrange(10**6)))

    def replace_some(rng):
        n = rng.choice(names)
        tmp = shared.path(f"{n}.tmp")
        with open(tmp, "wb") as f:
            f.write(body(rng.randrange(10**6)))
        os.rename(tmp, shared.path(n))

    def read_mount(rng):
        try:
            with open(shared.path(rng.choice(names)), "rb") as f:
                data = f.read()
        except FileNotFoundError:
            return
        assert whole(data), "torn through the mount"

    def read_s3(rng):
        try:
            data = get(shared, rng.choice(names))
        except ClientError as e:
            assert e.response["Error"]["Code"] == "NoSuchKey"
            return
        assert whole(data), "torn through S3"

    def delete_some(rng):
        shared.s3().delete_object(Bucket="home", Key=rng.choice(names))

    threads = [guard(f) for f in (put_some, replace_some, read_mount, read_s3, delete_some)]
    for t in threads:
        t.start()
    stop.wait(6)  # how long they race
    stop.set()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "somebody waits for ever"
    assert not failures, failures
    for n in names:
        path = shared.path(n)
        through_mount = open(path, "rb").read() if os.path.exists(path) else None
        try:
            through_s3 = get(shared, n)
        except ClientError as e:
            assert e.response["Error"]["Code"] == "NoSuchKey"
            through_s3 = None
        assert through_mount == through_s3, f"{n}: the doors differ"
