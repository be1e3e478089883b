"""A code for each bucket: chosen when it is made, kept by everything written into it, as strong as it says."""
import hashlib
import json
import os
import shutil

import pytest
from botocore.exceptions import ClientError

from cluster import HOLDFAST, Cluster, run
from test_refusals import refused

# Whole copies, a coded stripe, several chunks.
SIZES = [1, 5000, 65536, 200_000, (4 << 20) + 17]


def content(name, size):
    return (hashlib.sha256(f"{name}/{size}".encode()).digest() * (size // 32 + 1))[:size]


def fill(c, bucket):
    for size in SIZES:
        c.s3().put_object(Bucket=bucket, Key=f"s3-{size}", Body=content(bucket, size))


def check(c, bucket, prefix="s3-"):
    for size in SIZES:
        got = c.s3().get_object(Bucket=bucket, Key=f"{prefix}{size}")["Body"].read()
        assert got == content(bucket, size), f"{bucket}/{prefix}{size}"


def fill_mount(c):
    for size in SIZES:
        with open(c.path(f"mnt-{size}"), "wb") as f:
            f.write(content("mnt", size))
            f.flush()
            os.fsync(f.fileno())


def check_mount(c):
    for size in SIZES:
        with open(c.path(f"mnt-{size}"), "rb") as f:
            assert f.read() == content("mnt", size), f"mnt-{size}"


def fs(c, *args):
    return run(HOLDFAST, "fs", *args, "--data", c.data)


def buckets(c):
    return {b["name"]: b for b in c.status()["buckets"]}


def lose(c, osd):
    shutil.rmtree(os.path.join(c.data, f"osd.{osd}"))


def test_each_code_that_six_osds_carry(work):
    c = Cluster(work, options=["--bucket", "b21"], mount=False)
    options, c.options = c.options, []
    codes = {"b10": "1+0", "b11": "1+1", "b12": "1+2", "b21": "2+1", "b22": "2+2", "b42": "4+2"}
    try:
        c.start()
        for name, code in codes.items():
            fs(c, "create", name, "--code", code)
        c.stop()
        c.options, c.mnt = options, os.path.join(work, "mnt")
        c.start()
        assert {n: b["code"] for n, b in buckets(c).items()} == {**codes, "home": "4+2"}
        assert buckets(c)["b21"]["mount"] == c.mnt and buckets(c)["b21"]["empty"] and buckets(c)["home"]["mount"] is None
        for name in codes:
            fill(c, name)
        fill_mount(c)
        # One of many parts, and copies between buckets of different codes.
        s3 = c.s3()
        part = content("part", 6 << 20)
        up = s3.create_multipart_upload(Bucket="b22", Key="parts")["UploadId"]
        made = [s3.upload_part(Bucket="b22", Key="parts", UploadId=up, PartNumber=1, Body=part),
                s3.upload_part_copy(Bucket="b22", Key="parts", UploadId=up, PartNumber=2, CopySource="b10/s3-200000")["CopyPartResult"]]
        s3.complete_multipart_upload(Bucket="b22", Key="parts", UploadId=up,
                                     MultipartUpload={"Parts": [{"PartNumber": n + 1, "ETag": p["ETag"]} for n, p in enumerate(made)]})
        for size in SIZES:
            s3.copy_object(Bucket="b22", Key=f"copy-{size}", CopySource=f"b10/s3-{size}")
        assert s3.head_object(Bucket="b22", Key="copy-5000")["ETag"] == s3.head_object(Bucket="b10", Key="s3-5000")["ETag"]
        for name in codes:
            check(c, name)
        c.stop()

        lose(c, 1)
        c.start()
        for name in ("b11", "b21", "b12", "b22", "b42"):
            check(c, name)
        check_mount(c)
        status = c.status()
        assert status["health"] == "failed" and any("b10" in r and "1+0" in r for r in status["reasons"]), status["reasons"]
        assert not any("b11" in r for r in status["reasons"])
        c.stop()

        lose(c, 4)
        c.options, c.mnt = [], None
        c.start()
        for name in ("b12", "b22", "b42"):
            check(c, name)
        s3 = c.s3()
        assert s3.get_object(Bucket="b22", Key="parts")["Body"].read() == part + content("b10", 200_000)
        for size in SIZES:
            assert s3.get_object(Bucket="b22", Key=f"copy-{size}")["Body"].read() == content("b10", size), "a copy keeps what its bucket promises"
    finally:
        c.destroy()


def test_wide_codes_on_twenty_osds(work):
    c = Cluster(work, osds=20)
    try:
        c.start()
        assert c.status()["code"] == "16+4"
        fs(c, "create", "b83", "--code", "8+3")
        fill(c, "b83")
        fill(c, "home")
        fill_mount(c)
        c.stop()
        for osd in (0, 7, 19):
            lose(c, osd)
        c.start()
        check(c, "b83")
        check(c, "home")
        c.stop()
        lose(c, 12)
        c.start()
        check(c, "home")
        check_mount(c)
        with open(c.path("still-writes"), "wb") as f:
            f.write(b"x" * 300_000)
            os.fsync(f.fileno())
    finally:
        c.destroy()


def test_a_bucket_says_its_code_over_s3(shared):
    s3 = shared.s3()

    def make(name, code):
        def add(params, **_):
            params["headers"]["x-holdfast-code"] = code
        s3.meta.events.register("before-call.s3.CreateBucket", add)
        try:
            return s3.create_bucket(Bucket=name)
        finally:
            s3.meta.events.unregister("before-call.s3.CreateBucket", add)

    header = lambda r: r["ResponseMetadata"]["HTTPHeaders"]["x-holdfast-code"]
    assert header(make("coded", "2+1")) == "2+1"
    assert header(s3.head_bucket(Bucket="coded")) == "2+1"
    assert header(s3.get_bucket_location(Bucket="coded")) == "2+1"
    assert header(s3.head_bucket(Bucket="home")) == "4+2"
    assert buckets(shared)["coded"] == {"name": "coded", "code": "2+1", "shape": "flat", "empty": True, "mount": None}
    for code, says in [("8+3", "needs 11 OSDs and there are 6"), ("0+2", "out of range"), ("best", "not a code")]:
        with pytest.raises(ClientError) as e:
            make("refused", code)
        error = e.value.response
        assert (error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]) == ("InvalidArgument", 400)
        assert says in error["Error"]["Message"], error
    assert "refused" not in buckets(shared)


def test_the_kernel_of_the_codes_is_told(shared):
    kernel = shared.status()["codec_kernel"]
    assert kernel in ("avx512+gfni", "avx2+gfni", "avx2", "neon", "scalar")
    assert shared.metrics()[f'holdfast_ec_kernel_info{{kernel="{kernel}"}}'] == 1
    assert any(l.endswith(f"erasure codes use the kernel {kernel}") for l in shared.lines)


def test_filesystems_are_made_listed_and_deleted(shared, work):
    fs(shared, "create", "plain")
    fs(shared, "create", "narrow", "--code", "1+1")
    listed = json.loads(fs(shared, "list", "--json").stdout)
    assert {b["name"]: b["code"] for b in listed} | {"plain": "4+2", "narrow": "1+1", "home": "4+2"} == {b["name"]: b["code"] for b in listed}
    assert "narrow" in fs(shared, "list").stdout and "narrow" in run(HOLDFAST, "status", "--data", shared.data).stdout
    at = ["--data", shared.data]
    refused("fs", "create", "narrow", *at, says="already there")
    refused("fs", "create", "wide", "--code", "8+3", *at, says="needs 11 OSDs and there are 6")
    refused("fs", "create", "No_Name", *at, says="not a bucket's name")
    refused("fs", "create", "odd", "--code", "4", *at, says="not a code")
    refused("fs", "delete", "home", *at, says="is mounted on")
    refused("fs", "delete", "nothing", *at, says="no bucket nothing")
    shared.s3().put_object(Bucket="plain", Key="a/b", Body=b"x")
    refused("fs", "delete", "plain", *at, says="not empty")
    shared.s3().delete_object(Bucket="plain", Key="a/b")
    fs(shared, "delete", "plain")
    assert "plain" not in buckets(shared)


def test_only_a_filesystem_is_mounted(work):
    c = Cluster(work, osds=1, mount=False).start()
    c.s3().create_bucket(Bucket="flat")
    c.stop()
    os.mkdir(os.path.join(work, "m"))
    mount = ["--mount", os.path.join(work, "m")]
    refused("up", c.data, *mount, "--bucket", "flat", says="it was made over S3")
    refused("up", c.data, *mount, "--bucket", "nothing", says="no bucket nothing")
    refused("up", c.data, "--bucket", "home", says="--mount")
