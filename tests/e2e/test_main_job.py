"""The main job on real input, through both doors, and again after a restart."""
import filecmp
import hashlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tarfile

import pytest

from cluster import REPO, run

pytestmark = pytest.mark.usefixtures("shared")


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def manifest(root):
    out = {}
    for base, dirs, files in os.walk(root):
        dirs.sort()
        for name in files:
            p = os.path.join(base, name)
            st = os.lstat(p)
            rel = os.path.relpath(p, root)
            out[rel] = (os.readlink(p) if os.path.islink(p) else digest(p), oct(st.st_mode), st.st_size, st.st_mtime_ns)
    return out


@pytest.fixture(scope="module")
def source(module_work):
    """A source tree: this repository's own files, several times over, with links, modes and an empty file."""
    src = pathlib.Path(module_work, "source")
    files = run("git", "-C", REPO, "ls-files", "-z").stdout.split("\0")
    for n in range(3):
        for f in filter(None, files):
            if os.path.isfile(REPO / f):
                to = src / str(n) / f
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPO / f, to)
    (src / "empty").write_bytes(b"")
    (src / "run.sh").write_text("#!/bin/sh\n")
    os.chmod(src / "run.sh", 0o750)
    os.symlink("run.sh", src / "link")
    os.symlink("/nowhere/at/all", src / "dangling")
    os.link(src / "run.sh", src / "hard")
    return src


def test_a_source_tree_is_the_same_byte_for_byte(shared, source):
    run("cp", "-a", source, shared.path("tree"))
    run("diff", "-r", "--no-dereference", source, shared.path("tree"))
    shared.drop_caches()
    run("diff", "-r", "--no-dereference", source, shared.path("tree"))
    assert manifest(source) == manifest(shared.path("tree"))
    assert os.stat(shared.path("tree/hard")).st_ino == os.stat(shared.path("tree/run.sh")).st_ino


def test_git_clone_and_fsck(shared, module_work):
    origin = os.path.join(module_work, "origin.git")
    run("git", "clone", "--bare", "-q", REPO, origin)
    clone = shared.path("clone")
    run("git", "clone", "-q", f"file://{origin}", clone)
    run("git", "-C", clone, "fsck", "--full", "--strict")
    assert run("git", "-C", clone, "status", "--porcelain").stdout == ""
    env = {**os.environ, "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org"}
    pathlib.Path(clone, "new").write_text("new\n")
    run("git", "-C", clone, "add", "new")
    run("git", "-C", clone, "commit", "-qm", "new", env=env)
    run("git", "-C", clone, "gc", "-q")
    run("git", "-C", clone, "fsck", "--full")


@pytest.mark.parametrize("direct,engine", [(0, "psync"), (1, "psync"), (1, "io_uring")])
def test_fio_verifies_what_it_wrote(shared, module_work, direct, engine):
    d = shared.path(f"fio-{direct}-{engine}")
    os.mkdir(d)
    common = ["fio", f"--directory={d}", f"--direct={direct}", f"--ioengine={engine}", "--verify=crc32c", "--verify_fatal=1", "--randseed=7", "--group_reporting"]
    fio = lambda *a: run(*common, *a, cwd=module_work)  # it leaves its verify state where it runs
    fio("--name=seq", "--rw=write", "--bs=1M", "--size=96M", "--iodepth=4")
    fio("--name=rand", "--rw=randwrite", "--bs=4k", "--size=16M", "--fsync=64", "--iodepth=8" if engine == "io_uring" else "--iodepth=1")
    fio("--name=mixed", "--rw=randwrite", "--bsrange=4k-128k", "--bs_unaligned=0", "--size=24M", "--numjobs=2")
    shared.drop_caches()
    fio("--name=seq", "--rw=write", "--bs=1M", "--size=96M", "--verify_only=1")


def test_sqlite_with_full_synchronisation(shared):
    path = shared.path("test.db")
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
    for i in range(60):
        with db:
            db.executemany("INSERT INTO t(v) VALUES (?)", [(os.urandom(200 + i),) for _ in range(20)])
    with db:
        db.execute("DELETE FROM t WHERE id % 3 = 0")
    db.execute("VACUUM")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    rows = db.execute("SELECT count(*), sum(length(v)) FROM t").fetchone()
    db.execute("PRAGMA journal_mode=WAL")  # shared memory: mmap on the mount
    with db:
        db.execute("INSERT INTO t(v) VALUES ('wal')")
    db.close()
    shared.drop_caches()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM t").fetchone()[0] == rows[0] + 1
    db.close()


def test_ten_thousand_files_by_tar(shared, module_work):
    archive = os.path.join(module_work, "many.tar")
    root = pathlib.Path(module_work, "many")
    for d in range(100):
        (root / f"d{d:02}").mkdir(parents=True)
        for f in range(100):
            (root / f"d{d:02}" / f"f{f:02}").write_bytes(os.urandom((d * 100 + f) % 3000))
    with tarfile.open(archive, "w") as t:
        t.add(root, "many")
    run("tar", "-xf", archive, "-C", shared.mnt, timeout=240)
    assert sum(len(f) for _, _, f in os.walk(shared.path("many"))) == 10_000
    shared.drop_caches()
    run("diff", "-r", root, shared.path("many"), timeout=240)
    run("tar", "--compare", "-f", archive, "-C", shared.mnt, timeout=240)
    run("rm", "-rf", shared.path("many/d00"))
    assert not os.path.exists(shared.path("many/d00"))


def test_aws_cli_round_trips_and_each_door_sees_the_other(shared, module_work):
    big = os.path.join(module_work, "big.bin")
    with open(big, "wb") as f:
        for _ in range(40):
            f.write(os.urandom(1 << 20))
    shared.aws("s3", "cp", "--no-progress", big, "s3://home/s3/big.bin")
    assert filecmp.cmp(big, shared.path("s3/big.bin"), shallow=False)
    shutil.copy(big, shared.path("from-mount.bin"))
    back = os.path.join(module_work, "back.bin")
    shared.aws("s3", "cp", "--no-progress", "s3://home/from-mount.bin", back)
    assert filecmp.cmp(big, back, shallow=False)
    with open(shared.path("from-mount.bin"), "r+b") as f:
        f.seek(12345)
        f.write(b"changed through the mount")
    shared.aws("s3", "cp", "--no-progress", "s3://home/from-mount.bin", back)
    assert filecmp.cmp(shared.path("from-mount.bin"), back, shallow=False)
    listing = shared.aws("s3", "ls", "s3://home/s3/").stdout
    assert "big.bin" in listing and str(40 << 20) in listing
    shared.aws("s3", "mb", "s3://flat-bucket")
    shared.aws("s3", "cp", "--no-progress", big, "s3://flat-bucket/a//b")
    shared.aws("s3", "rm", "s3://flat-bucket/a//b")
    shared.aws("s3", "rb", "s3://flat-bucket")


def test_boto3_multipart_of_200_mib(shared, module_work):
    from boto3.s3.transfer import TransferConfig

    big = os.path.join(module_work, "multi.bin")
    with open(big, "wb") as f:
        for i in range(200):
            f.write(os.urandom(1 << 16) * 16)
    s3 = shared.s3()
    s3.upload_file(big, "home", "multi/part.bin", Config=TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=16 << 20, max_concurrency=4))
    head = s3.head_object(Bucket="home", Key="multi/part.bin")
    assert head["ContentLength"] == 200 << 20 and head["ETag"].endswith('-13"')
    assert digest(shared.path("multi/part.bin")) == digest(big)
    back = os.path.join(module_work, "multi.back")
    s3.download_file("home", "multi/part.bin", back)
    assert digest(back) == digest(big)
    body = s3.get_object(Bucket="home", Key="multi/part.bin", Range="bytes=16777000-16778000")["Body"].read()
    with open(big, "rb") as f:
        f.seek(16777000)
        assert f.read(1001) == body


def test_everything_is_there_after_a_restart(shared):
    before = manifest(shared.mnt)
    assert len(before) > 9000
    objects = sum(len(p.get("Contents", [])) for p in shared.s3().get_paginator("list_objects_v2").paginate(Bucket="home"))
    shared.restart()
    after = manifest(shared.mnt)
    assert after == before
    assert sum(len(p.get("Contents", [])) for p in shared.s3().get_paginator("list_objects_v2").paginate(Bucket="home")) == objects
    assert shared.status()["health"] == "ok"
    run("git", "-C", shared.path("clone"), "fsck", "--full")
