"""The S3 door by its everyday client: operations, conditions, checksums, errors with the right codes."""
import base64
import hashlib
import http.client
import os
import subprocess
import threading
import urllib.parse

import botocore
import pytest
from botocore.exceptions import ClientError

from cluster import Cluster, run, wait_for


@pytest.fixture(scope="module")
def s3(shared):
    return shared.s3()


@pytest.fixture(scope="module", params=["home", "flat"])
def bucket(request, s3):
    """The same calls on a tree and on a flat bucket."""
    if request.param == "flat":
        s3.create_bucket(Bucket="flat")
    return request.param


def code(call, *a, **k):
    with pytest.raises(ClientError) as e:
        call(*a, **k)
    r = e.value.response
    return r["Error"]["Code"], r["ResponseMetadata"]["HTTPStatusCode"]


def test_put_get_head_delete(s3, bucket):
    body = os.urandom(100_000)
    put = s3.put_object(Bucket=bucket, Key="dir/k", Body=body, ContentType="text/x-test", CacheControl="max-age=3", Metadata={"who": "me"})
    assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key="dir/k")
    assert got["Body"].read() == body and got["ContentType"] == "text/x-test" and got["Metadata"] == {"who": "me"} and got["CacheControl"] == "max-age=3"
    head = s3.head_object(Bucket=bucket, Key="dir/k")
    assert head["ContentLength"] == 100_000 and head["ETag"] == put["ETag"] and abs((head["LastModified"] - got["LastModified"]).total_seconds()) < 1
    s3.delete_object(Bucket=bucket, Key="dir/k")
    s3.delete_object(Bucket=bucket, Key="dir/k")  # again: fine
    assert code(s3.get_object, Bucket=bucket, Key="dir/k") == ("NoSuchKey", 404)
    assert code(s3.head_object, Bucket=bucket, Key="dir/k") == ("404", 404)
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    assert s3.get_object(Bucket=bucket, Key="empty")["Body"].read() == b""


def test_ranges(s3, bucket):
    body = os.urandom(5_000_000)
    s3.put_object(Bucket=bucket, Key="ranged", Body=body)
    for r, want in [("bytes=0-0", body[:1]), ("bytes=4194300-4194310", body[4194300:4194311]), ("bytes=4999990-", body[-10:]), ("bytes=-7", body[-7:]),
                    ("bytes=100-99999999", body[100:]), ("bytes=65536-1114111", body[65536:1114112])]:
        got = s3.get_object(Bucket=bucket, Key="ranged", Range=r)
        assert got["Body"].read() == want and got["ResponseMetadata"]["HTTPStatusCode"] == 206, r
        assert got["ContentRange"].endswith("/5000000")
    assert code(s3.get_object, Bucket=bucket, Key="ranged", Range="bytes=5000000-") == ("InvalidRange", 416)


def test_a_range_that_cannot_be_read_is_ignored(shared, s3):
    body = os.urandom(300_000)
    s3.put_object(Bucket="home", Key="not-ranged", Body=body)
    for r in ("bytes", "bytes=9-3", "bytes=0-1,5-6", "lines=1-2"):
        got = s3.get_object(Bucket="home", Key="not-ranged", Range=r)
        assert got["Body"].read() == body and got["ResponseMetadata"]["HTTPStatusCode"] == 200 and "ContentRange" not in got, r
        assert s3.head_object(Bucket="home", Key="not-ranged", Range=r)["ContentLength"] == 300_000
    url = shared.s3(signature_version="s3v4").generate_presigned_url("get_object", Params={"Bucket": "home", "Key": "not-ranged"}, ExpiresIn=60)
    path = url[len(shared.endpoint):]
    assert raw(shared, "GET", path, {"Range": "bytes=x"})[0] == 200
    # The signature counts all the same.
    assert raw(shared, "GET", path.replace("not-ranged", "secret"), {"Range": "bytes=x"})[0] == 403
    assert raw(shared, "GET", "/home/not-ranged", {"Range": "bytes=x"})[0] == 403
    assert code(s3.get_object, Bucket="home", Key="no-such-key", Range="bytes=x") == ("NoSuchKey", 404)


def test_every_error_says_what_is_wrong(s3):
    s3.put_object(Bucket="home", Key="said", Body=b"x")
    upload = s3.create_multipart_upload(Bucket="home", Key="said-parts")["UploadId"]
    etag = s3.upload_part(Bucket="home", Key="said-parts", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    order = {"Parts": [{"PartNumber": 2, "ETag": etag}, {"PartNumber": 1, "ETag": etag}]}
    for want, call, args in [
        ("KeyTooLongError", s3.put_object, {"Bucket": "home", "Key": "x" * 1025, "Body": b""}),
        ("InvalidBucketName", s3.create_bucket, {"Bucket": "AB"}),
        ("InvalidRange", s3.get_object, {"Bucket": "home", "Key": "said", "Range": "bytes=9-"}),
        ("NoSuchUpload", s3.list_parts, {"Bucket": "home", "Key": "said-parts", "UploadId": "nothing"}),
        ("NoSuchVersion", s3.get_object, {"Bucket": "home", "Key": "said", "VersionId": "nothing"}),
        ("InvalidPartOrder", s3.complete_multipart_upload, {"Bucket": "home", "Key": "said-parts", "UploadId": upload, "MultipartUpload": order}),
        ("InvalidStorageClass", s3.put_object, {"Bucket": "home", "Key": "said", "Body": b"", "StorageClass": "GLACIER"}),
    ]:
        with pytest.raises(ClientError) as e:
            call(**args)
        said = e.value.response["Error"]
        assert said["Code"] == want and len(said.get("Message") or "") > 10, said
    s3.abort_multipart_upload(Bucket="home", Key="said-parts", UploadId=upload)


def test_a_copied_part_has_the_time_of_its_commit(s3):
    s3.put_object(Bucket="home", Key="part-source", Body=b"x" * 1000)
    upload = s3.create_multipart_upload(Bucket="home", Key="part-time")["UploadId"]
    made = s3.upload_part_copy(Bucket="home", Key="part-time", UploadId=upload, PartNumber=1, CopySource="home/part-source")
    listed = s3.list_parts(Bucket="home", Key="part-time", UploadId=upload)["Parts"][0]
    assert made["CopyPartResult"]["LastModified"] == listed["LastModified"]
    s3.abort_multipart_upload(Bucket="home", Key="part-time", UploadId=upload)


def test_a_client_that_stalls_does_not_hold_up_the_end(work):
    import socket
    c = Cluster(work, osds=1, mount=False).start()
    try:
        s3 = c.s3(signature_version="s3v4")
        s3.put_object(Bucket="home", Key="there", Body=b"x")
        url = s3.generate_presigned_url("put_object", Params={"Bucket": "home", "Key": "stalled"}, ExpiresIn=60)
        u = urllib.parse.urlparse(url)
        with socket.create_connection((u.hostname, u.port)) as held:
            held.sendall(f"PUT {u.path}?{u.query} HTTP/1.1\r\nHost: {u.netloc}\r\nContent-Length: 1000000\r\n\r\n".encode() + b"x" * 1000)
            wait_for("the request to begin", lambda: any("op=\"put_object\"" in k and v >= 2 for k, v in c.metrics().items()))
            c.stop(seconds=20)
        c.start()
        assert [o["Key"] for o in c.s3().list_objects_v2(Bucket="home")["Contents"]] == ["there"]
    finally:
        c.destroy()


def test_conditions(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="cond", Body=b"1")["ETag"]
    assert code(s3.get_object, Bucket=bucket, Key="cond", IfNoneMatch=etag)[1] == 304
    assert code(s3.get_object, Bucket=bucket, Key="cond", IfMatch='"x"') == ("PreconditionFailed", 412)
    assert s3.get_object(Bucket=bucket, Key="cond", IfMatch=etag)["Body"].read() == b"1"
    assert code(s3.put_object, Bucket=bucket, Key="cond", Body=b"2", IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert code(s3.put_object, Bucket=bucket, Key="cond", Body=b"2", IfMatch='"x"') == ("PreconditionFailed", 412)
    assert code(s3.put_object, Bucket=bucket, Key="none", Body=b"2", IfMatch='"x"') == ("NoSuchKey", 404)
    s3.put_object(Bucket=bucket, Key="cond", Body=b"2", IfMatch=etag)
    assert s3.get_object(Bucket=bucket, Key="cond")["Body"].read() == b"2"
    won = []

    def race(n):
        try:
            s3.put_object(Bucket=bucket, Key="once", Body=str(n).encode(), IfNoneMatch="*")
            won.append(n)
        except ClientError:
            pass

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    [t.start() for t in threads], [t.join(60) for t in threads]
    assert len(won) == 1 and s3.get_object(Bucket=bucket, Key="once")["Body"].read() == str(won[0]).encode()


def keys(s3, **k):
    found, prefixes = [], []
    for page in s3.get_paginator("list_objects_v2").paginate(**k):
        found += [o["Key"] for o in page.get("Contents", [])]
        prefixes += [p["Prefix"] for p in page.get("CommonPrefixes", [])]
    return found, prefixes


def test_listings(s3, bucket):
    want = sorted([f"l/{a}/{b}" for a in ("a", "b-", "b", "ü", "c d") for b in range(12)] + ["l/z", "l/a.x"], key=lambda k: k.encode())
    for k in want:
        s3.put_object(Bucket=bucket, Key=k, Body=b"x")
    for size in (1, 5, 1000):
        assert keys(s3, Bucket=bucket, Prefix="l/", PaginationConfig={"PageSize": size}) == (want, [])
        found, prefixes = keys(s3, Bucket=bucket, Prefix="l/", Delimiter="/", PaginationConfig={"PageSize": size})
        assert found == ["l/a.x", "l/z"] and prefixes == sorted({"l/a/", "l/b-/", "l/b/", "l/ü/", "l/c d/"}, key=lambda k: k.encode())
    assert keys(s3, Bucket=bucket, Prefix="l/b", Delimiter="/")[1] == ["l/b-/", "l/b/"]
    assert keys(s3, Bucket=bucket, Prefix="l/", StartAfter="l/ü/5")[0] == [k for k in want if k.encode() > "l/ü/5".encode()]
    assert keys(s3, Bucket=bucket, Prefix="nothing/") == ([], [])
    page = s3.list_objects_v2(Bucket=bucket, Prefix="l/", MaxKeys=3)
    assert page["IsTruncated"] and page["KeyCount"] == 3
    assert s3.list_objects_v2(Bucket=bucket, MaxKeys=0)["KeyCount"] == 0
    v1 = s3.list_objects(Bucket=bucket, Prefix="l/", Delimiter="/", MaxKeys=2)
    assert v1["IsTruncated"] and "NextMarker" in v1
    rest = s3.list_objects(Bucket=bucket, Prefix="l/", Delimiter="/", Marker=v1["NextMarker"])
    assert not rest["IsTruncated"]
    assert code(s3.list_objects_v2, Bucket=bucket, ContinuationToken="!!!") == ("InvalidArgument", 400)


def test_multi_delete(s3, bucket):
    names = [f"md/{n}" for n in range(50)]
    for k in names:
        s3.put_object(Bucket=bucket, Key=k, Body=b"x")
    r = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in names + ["md/not-there"]]})
    assert {d["Key"] for d in r["Deleted"]} == set(names) | {"md/not-there"} and not r.get("Errors")
    assert keys(s3, Bucket=bucket, Prefix="md/") == ([], [])


def test_multipart_whole(s3, bucket):
    u = s3.create_multipart_upload(Bucket=bucket, Key="mp/k", ContentType="a/b", Metadata={"x": "y"})["UploadId"]
    assert [x["UploadId"] for x in s3.list_multipart_uploads(Bucket=bucket, Prefix="mp/")["Uploads"]] == [u]
    assert s3.list_parts(Bucket=bucket, Key="mp/k", UploadId=u).get("Parts", []) == []
    bodies = {1: os.urandom(5 << 20), 3: os.urandom(6_000_001), 7: os.urandom(17)}
    etags = {}
    for n in (7, 1, 3):
        etags[n] = s3.upload_part(Bucket=bucket, Key="mp/k", UploadId=u, PartNumber=n, Body=bodies[n])["ETag"]
    etags[7] = s3.upload_part(Bucket=bucket, Key="mp/k", UploadId=u, PartNumber=7, Body=b"again")["ETag"]
    bodies[7] = b"again"
    parts = s3.list_parts(Bucket=bucket, Key="mp/k", UploadId=u)["Parts"]
    assert [(p["PartNumber"], p["Size"]) for p in parts] == [(1, 5 << 20), (3, 6_000_001), (7, 5)]
    done = lambda ns: {"Parts": [{"PartNumber": n, "ETag": etags[n]} for n in ns]}
    complete = lambda m: s3.complete_multipart_upload(Bucket=bucket, Key="mp/k", UploadId=u, MultipartUpload=m)
    assert code(complete, done([3, 1]))[0] == "InvalidPartOrder"
    assert code(complete, {"Parts": [{"PartNumber": 1, "ETag": '"' + "0" * 32 + '"'}]})[0] == "InvalidPart"
    assert code(complete, {"Parts": [{"PartNumber": 2, "ETag": etags[1]}]})[0] == "InvalidPart"
    assert code(complete, done([1, 7, ]) if False else {"Parts": [{"PartNumber": 7, "ETag": etags[7]}, {"PartNumber": 8, "ETag": etags[7]}]})[0] in ("InvalidPart", "EntityTooSmall")
    r = complete(done([1, 3, 7]))
    want = hashlib.md5(b"".join(hashlib.md5(bodies[n]).digest() for n in (1, 3, 7))).hexdigest()
    assert r["ETag"] == f'"{want}-3"'
    assert complete(done([1, 3, 7]))["ETag"] == r["ETag"], "a retry answers the same"
    got = s3.get_object(Bucket=bucket, Key="mp/k")
    assert got["Body"].read() == bodies[1] + bodies[3] + bodies[7] and got["Metadata"] == {"x": "y"}
    assert s3.get_object(Bucket=bucket, Key="mp/k", PartNumber=2)["Body"].read() == bodies[3]
    assert code(s3.list_parts, Bucket=bucket, Key="mp/k", UploadId=u) == ("NoSuchUpload", 404)
    u = s3.create_multipart_upload(Bucket=bucket, Key="mp/small")["UploadId"]
    e = [s3.upload_part(Bucket=bucket, Key="mp/small", UploadId=u, PartNumber=n, Body=b"tiny")["ETag"] for n in (1, 2)]
    small = {"Parts": [{"PartNumber": n + 1, "ETag": t} for n, t in enumerate(e)]}
    assert code(s3.complete_multipart_upload, Bucket=bucket, Key="mp/small", UploadId=u, MultipartUpload=small)[0] == "EntityTooSmall"
    s3.abort_multipart_upload(Bucket=bucket, Key="mp/small", UploadId=u)
    assert code(s3.upload_part, Bucket=bucket, Key="mp/small", UploadId=u, PartNumber=1, Body=b"x") == ("NoSuchUpload", 404)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_copies(s3, bucket):
    body = os.urandom(6 << 20)
    etag = s3.put_object(Bucket=bucket, Key="src of copy", Body=body, Metadata={"a": "1"})["ETag"]
    s3.copy_object(Bucket=bucket, Key="dst", CopySource={"Bucket": bucket, "Key": "src of copy"})
    got = s3.get_object(Bucket=bucket, Key="dst")
    assert got["Body"].read() == body and got["Metadata"] == {"a": "1"} and got["ETag"] == etag
    s3.copy_object(Bucket=bucket, Key="dst", CopySource={"Bucket": bucket, "Key": "src of copy"}, MetadataDirective="REPLACE", Metadata={"b": "2"})
    assert s3.head_object(Bucket=bucket, Key="dst")["Metadata"] == {"b": "2"}
    s3.delete_object(Bucket=bucket, Key="src of copy")
    assert s3.get_object(Bucket=bucket, Key="dst")["Body"].read() == body, "the copy outlives its source"
    assert code(s3.copy_object, Bucket=bucket, Key="dst", CopySource={"Bucket": bucket, "Key": "dst"})[0] == "InvalidRequest"
    u = s3.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    a = s3.upload_part_copy(Bucket=bucket, Key="joined", UploadId=u, PartNumber=1, CopySource={"Bucket": bucket, "Key": "dst"})["CopyPartResult"]["ETag"]
    b = s3.upload_part_copy(Bucket=bucket, Key="joined", UploadId=u, PartNumber=2, CopySource={"Bucket": bucket, "Key": "dst"}, CopySourceRange="bytes=5-9")
    parts = [{"PartNumber": 1, "ETag": a}, {"PartNumber": 2, "ETag": b["CopyPartResult"]["ETag"]}]
    s3.complete_multipart_upload(Bucket=bucket, Key="joined", UploadId=u, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket=bucket, Key="joined")["Body"].read() == body + body[5:10]


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME"])
def test_checksums(s3, bucket, algorithm):
    field = f"Checksum{algorithm}"
    try:
        put = s3.put_object(Bucket=bucket, Key="sum", Body=b"123456789", ChecksumAlgorithm=algorithm)
    except botocore.exceptions.MissingDependencyException:
        pytest.skip("the client cannot compute it")
    assert put[field]
    assert s3.head_object(Bucket=bucket, Key="sum", ChecksumMode="ENABLED")[field] == put[field]
    got = s3.get_object(Bucket=bucket, Key="sum", ChecksumMode="ENABLED")
    assert got["Body"].read() == b"123456789" and got[field] == put[field]
    bad = base64.b64encode(b"\0" * len(base64.b64decode(put[field]))).decode()
    assert code(s3.put_object, Bucket=bucket, Key="sum2", Body=b"x", **{field: bad}) == ("BadDigest", 400)
    assert code(s3.get_object, Bucket=bucket, Key="sum2")[0] == "NoSuchKey"


def test_content_md5(s3, bucket):
    good = base64.b64encode(hashlib.md5(b"x").digest()).decode()
    s3.put_object(Bucket=bucket, Key="md5", Body=b"x", ContentMD5=good)
    assert code(s3.put_object, Bucket=bucket, Key="md5", Body=b"y", ContentMD5=good) == ("BadDigest", 400)
    assert code(s3.put_object, Bucket=bucket, Key="md5", Body=b"y", ContentMD5="???")[0] == "InvalidDigest"
    assert s3.get_object(Bucket=bucket, Key="md5")["Body"].read() == b"x"


def test_buckets(s3):
    s3.create_bucket(Bucket="bucket-a")
    assert code(s3.create_bucket, Bucket="bucket-a") == ("BucketAlreadyOwnedByYou", 409)
    assert code(s3.create_bucket, Bucket="AB")[1] == 400
    assert {"home", "bucket-a"} <= {b["Name"] for b in s3.list_buckets()["Buckets"]}
    s3.head_bucket(Bucket="bucket-a")
    s3.get_bucket_location(Bucket="bucket-a")
    assert code(s3.head_bucket, Bucket="no-such-bucket")[1] == 404
    assert code(s3.list_objects_v2, Bucket="no-such-bucket") == ("NoSuchBucket", 404)
    assert code(s3.put_object, Bucket="no-such-bucket", Key="k", Body=b"") == ("NoSuchBucket", 404)
    for k in ("a", "a/b", "a//b", "./x", "/lead", "x" * 1024):
        s3.put_object(Bucket="bucket-a", Key=k, Body=k.encode())
    assert keys(s3, Bucket="bucket-a")[0] == sorted(["a", "a/b", "a//b", "./x", "/lead", "x" * 1024], key=str.encode)
    assert all(s3.get_object(Bucket="bucket-a", Key=k)["Body"].read() == k.encode() for k in keys(s3, Bucket="bucket-a")[0])
    assert code(s3.put_object, Bucket="bucket-a", Key="x" * 1025, Body=b"") == ("KeyTooLongError", 400)
    assert code(s3.delete_bucket, Bucket="bucket-a") == ("BucketNotEmpty", 409)
    for k in keys(s3, Bucket="bucket-a")[0]:
        s3.delete_object(Bucket="bucket-a", Key=k)
    s3.delete_bucket(Bucket="bucket-a")
    assert code(s3.head_bucket, Bucket="bucket-a")[1] == 404


def raw(shared, method, path, headers=None, body=None):
    u = urllib.parse.urlparse(shared.endpoint)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=30)
    c.request(method, path, body=body, headers=headers or {})
    r = c.getresponse()
    return r.status, r.read().decode(errors="replace")


def test_unsigned_and_wrongly_signed_requests(shared, s3):
    s3.put_object(Bucket="home", Key="secret", Body=b"s")
    for method, path in [("GET", "/home/secret"), ("GET", "/"), ("PUT", "/home/new"), ("DELETE", "/home/secret"), ("POST", "/home?delete")]:
        status, text = raw(shared, method, path, body=b"x" if method in ("PUT", "POST") else None)
        assert status == 403 and "AccessDenied" in text, (method, path, status, text)
    import boto3
    bad = boto3.client("s3", endpoint_url=shared.endpoint, aws_access_key_id=shared.keys[0], aws_secret_access_key="wrong" * 8, region_name="us-east-1")
    assert code(bad.list_buckets) == ("SignatureDoesNotMatch", 403)
    nobody = boto3.client("s3", endpoint_url=shared.endpoint, aws_access_key_id="NOBODY", aws_secret_access_key="wrong" * 8, region_name="us-east-1")
    assert code(nobody.list_buckets) == ("InvalidAccessKeyId", 403)
    status, text = raw(shared, "GET", "/home/secret", {"Authorization": "AWS key:sig"})
    assert status == 400 and "version 2" in text
    assert s3.get_object(Bucket="home", Key="secret")["Body"].read() == b"s"


def test_presigned_urls(shared):
    s3 = shared.s3(signature_version="s3v4")
    s3.put_object(Bucket="home", Key="pre", Body=b"signed")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "home", "Key": "pre", "ResponseContentType": "x/y"}, ExpiresIn=60)
    path = url[len(shared.endpoint):]
    assert raw(shared, "GET", path) == (200, "signed")
    assert raw(shared, "GET", path.replace("pre?", "other?"))[0] == 403
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "home", "Key": "pre2"}, ExpiresIn=60)
    assert raw(shared, "PUT", url[len(shared.endpoint):], body=b"via url")[0] == 200
    assert s3.get_object(Bucket="home", Key="pre2")["Body"].read() == b"via url"


def test_streaming_signatures(shared, s3, module_work):
    """The aws-chunked form, signed chunk by chunk, as older SDKs send it."""
    import datetime
    import hmac
    body, chunk = os.urandom(200_000), 65536
    ak, sk = shared.keys
    host = urllib.parse.urlparse(shared.endpoint).netloc
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    scope = f"{day}/us-east-1/s3/aws4_request"
    h = lambda k, m: hmac.new(k, m.encode(), hashlib.sha256).digest()
    signing = h(h(h(h(f"AWS4{sk}".encode(), day), "us-east-1"), "s3"), "aws4_request")
    sha = lambda b: hashlib.sha256(b).hexdigest()
    payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"

    def send(tamper):
        headers = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": stamp, "x-amz-decoded-content-length": str(len(body)), "content-encoding": "aws-chunked"}
        signed = ";".join(sorted(headers))
        canonical = "\n".join(["PUT", "/home/streamed", "", *[f"{k}:{headers[k]}" for k in sorted(headers)], "", signed, payload])
        sig = hmac.new(signing, "\n".join(["AWS4-HMAC-SHA256", stamp, scope, sha(canonical.encode())]).encode(), hashlib.sha256).hexdigest()
        headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={ak}/{scope}, SignedHeaders={signed}, Signature={sig}"
        out, prev = b"", sig
        for at in [*range(0, len(body), chunk), len(body)]:
            piece = body[at:at + chunk]
            prev = hmac.new(signing, "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, prev, sha(b""), sha(piece)]).encode(), hashlib.sha256).hexdigest()
            if tamper and at == chunk:
                piece = b"!" + piece[1:]
            out += f"{len(piece):x};chunk-signature={prev}\r\n".encode() + piece + b"\r\n"
        return raw(shared, "PUT", "/home/streamed", headers, out)

    assert send(False)[0] == 200
    assert s3.get_object(Bucket="home", Key="streamed")["Body"].read() == body
    s3.delete_object(Bucket="home", Key="streamed")
    assert send(True)[0] in (400, 403)
    assert code(s3.get_object, Bucket="home", Key="streamed")[0] == "NoSuchKey"


def test_a_body_cut_short_changes_nothing(shared, s3):
    import socket
    s3.put_object(Bucket="home", Key="whole", Body=b"whole")
    url = shared.s3(signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": "home", "Key": "whole"}, ExpiresIn=60)
    u = urllib.parse.urlparse(url)
    with socket.create_connection((u.hostname, u.port)) as c:
        c.sendall(f"PUT {u.path}?{u.query} HTTP/1.1\r\nHost: {u.netloc}\r\nContent-Length: 1000000\r\n\r\n".encode() + b"x" * 500_000)
    assert s3.get_object(Bucket="home", Key="whole")["Body"].read() == b"whole"


def test_unsupported_features_are_refused_not_ignored(s3):
    assert code(s3.put_object, Bucket="home", Key="e", Body=b"", ServerSideEncryption="AES256")[1] == 501
    assert code(s3.put_object, Bucket="home", Key="e", Body=b"", StorageClass="GLACIER") == ("InvalidStorageClass", 400)
    assert code(s3.put_object, Bucket="home", Key="e", Body=b"", Tagging="a=b")[1] == 501
    assert code(s3.get_object, Bucket="home", Key="e", VersionId="abc")[1] in (400, 404)
    assert code(s3.put_bucket_versioning, Bucket="home", VersioningConfiguration={"Status": "Enabled"})[1] == 501


def test_memory_stays_bounded_under_many_large_puts(shared, s3):
    body = os.urandom(1 << 20) * 24

    def put(n):
        shared.s3().put_object(Bucket="home", Key=f"mem/{n}", Body=body)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(12)]
    [t.start() for t in threads], [t.join(120) for t in threads]
    rss = int(next(l for l in open(f"/proc/{shared.process.pid}/status") if l.startswith("VmHWM")).split()[1]) << 10
    assert rss < 1.6 * (1 << 30), f"{rss >> 20} MiB at the peak, the budget is 1 GiB"
