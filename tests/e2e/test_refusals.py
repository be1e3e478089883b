"""What must be refused: one sentence, a non-zero exit, nothing harmed."""
import json
import os
import shutil
import socket
import subprocess
import threading

import pytest

from cluster import HOLDFAST, Cluster, run


def tree(root):
    out = {}
    for base, dirs, files in os.walk(root):
        for n in dirs + files:
            p = os.path.join(base, n)
            st = os.lstat(p)
            out[os.path.relpath(p, root)] = (st.st_mode, st.st_size if os.path.isfile(p) else 0, st.st_mtime_ns if os.path.isfile(p) else 0)
    return out


def refused(*args, says, cwd=None, env=None, unchanged=None):
    before = tree(unchanged) if unchanged else None
    r = subprocess.run([HOLDFAST, *map(str, args)], capture_output=True, text=True, timeout=60, cwd=cwd, env=env)
    said = r.stderr.strip()
    assert r.returncode != 0, f"accepted: {r.stdout}"
    assert says.lower() in said.lower(), said
    assert "panicked" not in said and "\n\n\n" not in said
    if unchanged:
        assert tree(unchanged) == before, "it changed something"
    return said


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, module_work):
    """A cluster that was started once and stopped."""
    c = Cluster(module_work, mount=False, s3=False)
    c.start()
    c.stop()
    return c


def copy(stopped, work):
    to = os.path.join(work, "copy")
    shutil.copytree(stopped.data, to, ignore=shutil.ignore_patterns("*.sock"))
    return to


def test_a_folder_with_foreign_files(work):
    d = os.path.join(work, "mine")
    os.mkdir(d)
    open(os.path.join(d, "thesis.tex"), "w").write("precious")
    said = refused("up", d, says="thesis.tex", unchanged=work)
    assert len(said.splitlines()) == 1, said


def test_a_folder_of_another_cluster(stopped, work):
    other = Cluster(os.path.join(work, "o"), dirs=[os.path.join(work, "a"), os.path.join(work, "b")], mount=False, s3=False)
    other.start()
    other.stop()
    refused("up", os.path.join(work, "a"), stopped.data, says="another cluster")


def test_a_newer_format(stopped, work):
    d = copy(stopped, work)
    p = os.path.join(d, "holdfast.json")
    f = json.load(open(p))
    f["format"] = 99
    json.dump(f, open(p, "w"))
    refused("up", d, says="newer", unchanged=d)


def test_half_formatted(stopped, work):
    d = copy(stopped, work)
    p = os.path.join(d, "holdfast.json")
    f = json.load(open(p))
    f["state"] = "formatting"
    json.dump(f, open(p, "w"))
    refused("up", d, says="half formatted", unchanged=d)


def test_an_osd_of_another_cluster(stopped, work):
    d = copy(stopped, work)
    other = Cluster(os.path.join(work, "o"), mount=False, s3=False)
    other.start()
    other.stop()
    shutil.rmtree(os.path.join(d, "osd.2"))
    shutil.copytree(os.path.join(other.data, "osd.2"), os.path.join(d, "osd.2"))
    refused("up", d, says="another cluster")


def test_in_use_by_a_live_process(work):
    c = Cluster(work, mount=False, s3=False)
    c.start()
    refused("up", c.data, says="in use")
    assert c.status()["health"] == "ok"
    c.stop()


def test_a_code_that_the_osds_cannot_carry(work, stopped):
    refused("up", os.path.join(work, "d"), "--osds", "3", "--code", "4+2", says="needs 6 OSDs")
    assert not os.path.exists(os.path.join(work, "d"))
    refused("up", stopped.data, "--code", "2+1", says="does not match", unchanged=stopped.data)
    refused("up", stopped.data, "--osds", "4", says="does not match", unchanged=stopped.data)


@pytest.mark.parametrize("args,says", [
    (["--osds", "0"], "0"),
    (["--osds", "lots"], "lots"),
    (["--osds", "-1"], "-1"),
    (["--code", "4"], "4+2"),
    (["--code", "0+2"], "out of range"),
    (["--code", "x+y"], "not a code"),
    (["--memory", "12 parsecs"], "not a size"),
    (["--memory", "1K"], "at least"),
    (["--s3", "nowhere"], "nowhere"),
    (["--frobnicate"], "frobnicate"),
    (["-o", "ro"], "--mount"),
])
def test_nonsense_values(work, args, says):
    refused("up", os.path.join(work, "d"), *args, says=says)
    assert not os.path.exists(os.path.join(work, "d"))


def test_a_nonsense_mount_option(work):
    os.mkdir(os.path.join(work, "m"))
    refused("up", os.path.join(work, "d"), "--mount", os.path.join(work, "m"), "-o", "frobnicate", says="frobnicate")
    assert not os.path.exists(os.path.join(work, "d"))


def test_a_missing_mount_point(work):
    refused("up", os.path.join(work, "d"), "--mount", os.path.join(work, "nothing"), says="nothing")
    assert not os.path.exists(os.path.join(work, "d"))


def test_a_busy_mount_point(work):
    m = os.path.join(work, "m")
    os.mkdir(m)
    run("mount", "-t", "tmpfs", "none", m)
    try:
        refused("up", os.path.join(work, "d"), "--mount", m, says="mount")
    finally:
        run("umount", m)
    assert not os.path.exists(os.path.join(work, "d"))


def test_a_mount_point_over_or_in_the_data_folder(work):
    d = os.path.join(work, "d")
    os.mkdir(d)
    refused("up", d, "--mount", d, says="lie one in the other")
    os.mkdir(os.path.join(work, "m"))
    refused("up", os.path.join(work, "m", "data"), "--mount", os.path.join(work, "m"), says="lie one in the other")
    assert os.listdir(d) == [] and os.listdir(os.path.join(work, "m")) == []


def test_a_data_folder_without_its_cluster_file(stopped, work):
    d = copy(stopped, work)
    os.unlink(os.path.join(d, "holdfast.json"))
    refused("up", d, says="restore that file", unchanged=d)


def test_a_mount_point_that_is_a_file(work):
    m = os.path.join(work, "f")
    open(m, "w").close()
    refused("up", os.path.join(work, "d"), "--mount", m, says="not a")


def test_no_dev_fuse(work):
    os.mkdir(os.path.join(work, "m"))
    # A mount namespace of our own in which /dev is empty.
    script = f"mount -t tmpfs none /dev && exec {HOLDFAST} up {work}/d --mount {work}/m"
    r = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert r.returncode != 0 and "/dev/fuse" in r.stderr, r.stderr
    assert not os.path.exists(os.path.join(work, "d"))


def test_a_taken_port(work):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        refused("up", os.path.join(work, "d"), "--s3", f"127.0.0.1:{s.getsockname()[1]}", says="in use")
    assert not os.path.exists(os.path.join(work, "d"))


def test_an_unknown_subcommand(work):
    refused("upp", says="upp")
    refused(says="usage")


def test_status_of_what_does_not_run(stopped, work):
    refused("status", "--data", stopped.data, says="no holdfast process")
    refused("status", "--data", work, says="not a holdfast data folder")
    refused("admin", "sync", work, says="not a holdfast mount")


def test_the_metadata_folder_is_missing(stopped, work):
    d = copy(stopped, work)
    shutil.rmtree(os.path.join(d, "meta"))
    refused("up", d, says="metadata", unchanged=d)


def test_what_is_stored_is_private(work):
    c = Cluster(work, mount=False, s3=False, osds=1)
    c.start()
    assert os.stat(c.data).st_mode & 0o777 == 0o700
    assert os.stat(os.path.join(c.data, "credentials")).st_mode & 0o777 == 0o600
    assert os.stat(os.path.join(c.data, "admin.sock")).st_mode & 0o777 == 0o600
    c.stop()
