"""`holdfast dump`: every file of a real cluster, whole and damaged."""
import json
import os
import pathlib
import random
import subprocess

from cluster import HOLDFAST, Cluster, run

WANTED = {"cluster-file", "credentials", "meta-superblock", "log-root", "segment", "seal", "log-end", "wal-entries", "wal-entry", "wal-vote",
          "state", "row", "osd-superblock", "checkpoint", "index-shard", "shard", "ballast"}
FAMILIES = {"header", "counters", "totals", "bucket", "bucket-name", "inode", "object-record", "chunk", "name", "cookie", "stripe", "session",
            "upload", "upload-key", "part"}
NOT_RECORDS = {"lock", "admin.sock"}


def dump(path, *args, check=True):
    r = run(HOLDFAST, "dump", path, "--json", *args, check=check)
    assert "panicked" not in r.stderr, r.stderr
    return r, [json.loads(line) for line in r.stdout.splitlines()]


def files(data):
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in pathlib.Path(data).rglob("*") if p.is_file() and p.name not in NOT_RECORDS}


def fill(cluster):
    cluster.start()
    s3 = cluster.s3()
    s3.create_bucket(Bucket="box")
    os.makedirs(cluster.path("d/e"))
    for n in range(8):
        with open(cluster.path(f"d/f{n}"), "wb") as f:
            f.write(os.urandom(300_000))
            os.fsync(f.fileno())
        s3.put_object(Bucket="box", Key=f"k/{n}", Body=os.urandom(150_000), Metadata={"n": str(n)})
    upload = s3.create_multipart_upload(Bucket="box", Key="big")["UploadId"]
    s3.upload_part(Bucket="box", Key="big", UploadId=upload, PartNumber=1, Body=os.urandom(5 << 20))
    os.unlink(cluster.path("d/f0"))
    s3.delete_object(Bucket="box", Key="k/0")
    cluster.stop()


def test_a_dump_of_a_real_cluster_finds_every_kind_of_record_in_every_file(work):
    c = Cluster(work, osds=3, code="2+1")
    try:
        fill(c)
        c.start()
        c.stop()
        before = files(c.data)
        r, lines = dump(c.data)
        assert files(c.data) == before, "a dump changed something"
        assert not [l for l in lines if "error" in l]
        assert WANTED <= {l["record"] for l in lines}, WANTED - {l["record"] for l in lines}
        families = {l["family"] for l in lines if l["record"] == "row"}
        assert FAMILIES <= families, FAMILIES - families
        named = {l["file"] for l in lines}
        assert set(before) <= named, set(before) - named
        commands = {next(iter(l["request"]["command"])) for l in lines if isinstance(l.get("request", {}).get("command"), dict)}
        assert commands, "no command was told of"
        secret = c.keys[1]
        assert secret not in r.stdout
        # Text says the same, line by line; a filter shows the rows that it names.
        text = run(HOLDFAST, "dump", c.data).stdout
        assert len(text.splitlines()) == len(lines)
        _, inodes = dump(c.data, "--prefix", "20")
        assert inodes and all(l["family"] == "inode" for l in inodes)
        _, one = dump(c.data, "--key", inodes[0]["key"])
        assert [l["key"] for l in one] == [inodes[0]["key"]]
        assert dump(os.path.join(c.data, "osd.1"))[1] and dump(os.path.join(c.data, "meta"))[1]
        # Who has seen enough goes away, and that is no failure.
        assert subprocess.run(f"{HOLDFAST} dump {c.data} | head -1", shell=True, capture_output=True, text=True).stderr == ""
    finally:
        c.destroy()


def test_a_dump_of_a_killed_cluster_is_no_failure_and_one_in_use_is_refused(work):
    c = Cluster(work, osds=3, code="2+1")
    try:
        c.start()
        for n in range(20):
            with open(c.path(f"f{n}"), "wb") as f:
                f.write(os.urandom(50_000))
                os.fsync(f.fileno())
        r = run(HOLDFAST, "dump", c.data, check=False)
        assert r.returncode != 0 and "in use" in r.stderr
        c.kill()
        _, lines = dump(c.data)
        assert {"wal-entry", "shard"} <= {l["record"] for l in lines}
    finally:
        c.destroy()


def test_a_dump_of_a_damaged_cluster_names_the_places_and_fails(work):
    c = Cluster(work, osds=3, code="2+1")
    try:
        fill(c)
        rng = random.Random(7)
        for round in range(6):
            for path, (size, _) in sorted(files(c.data).items()):
                if size and rng.random() < 0.4:
                    with open(path, "r+b") as f:
                        f.seek(rng.randrange(min(size, 1 << 20)))
                        f.write(rng.randbytes(rng.randrange(1, 5000)))
            r, lines = dump(c.data, check=False)
            errors = [l for l in lines if "error" in l]
            assert errors and r.returncode != 0, f"round {round}"
            assert any("offset" in l for l in errors)
            assert "do not decode" in r.stderr
        r = run(HOLDFAST, "dump", str(work), check=False)
        assert r.returncode != 0 and "no folder of Holdfast's" in r.stderr
    finally:
        c.destroy()
