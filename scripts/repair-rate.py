#!/usr/bin/env python3
"""repair-rate.py HOLDFAST [--dir DIR] [--mib N] [--codes 4+2] [--size-kib N] [--load]

How fast an OSD that was replaced by an empty one is filled again: a cluster of k+m OSDs gets N MiB of files, one OSD is made anew in its place, and
the time until nothing lacks any more is taken. All folders lie on one device here, so the rate is that of reading k shards and writing one on
it; --load lets a client write and read meanwhile, as much as it can. It prints a table: MiB/s of shards made, and of the user's bytes they
belong to."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20


def measure(holdfast, where, code, mib, size, load):
    k, m = (int(n) for n in code.split("+"))
    work = tempfile.mkdtemp(prefix="holdfast-repair.", dir=where)
    data, mnt = os.path.join(work, "data"), os.path.join(work, "mnt")
    os.makedirs(mnt)
    up = subprocess.Popen([holdfast, "up", data, "--osds", str(k + m), "--code", code, "--mount", mnt], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    try:
        for line in up.stdout:
            lines.append(line)
            if line.strip() == "ready":
                break
        else:
            raise SystemExit("it did not come up:\n" + "".join(lines))
        threading.Thread(target=lambda: lines.extend(up.stdout), daemon=True).start()
        ask = lambda *args: subprocess.run([holdfast, *args, "--data", data], check=True, capture_output=True, text=True).stdout
        status = lambda: json.loads(ask("status", "--json"))
        piece = os.urandom(min(size, 4 * MIB))
        for n in range(mib * MIB // size):
            os.makedirs(os.path.join(mnt, f"d{n // 1000}"), exist_ok=True)
            with open(os.path.join(mnt, f"d{n // 1000}", f"f{n}"), "wb") as f:
                for _ in range(size // len(piece)):
                    f.write(piece)
        subprocess.run([holdfast, "admin", "sync", mnt], check=True)
        while (s := status())["metadata"]["packs"]["staged_bytes"] or s["debt"]["deleting"]:
            time.sleep(0.2)
        over, moved = threading.Event(), [0]

        def work_on():
            with open(os.path.join(mnt, "load"), "wb") as f:
                while not over.is_set():
                    if f.tell() >= 256 * MIB:
                        f.seek(0)
                    f.write(piece)
                    f.flush()
                    os.fsync(f.fileno())
                    moved[0] += len(piece)

        client = threading.Thread(target=work_on)
        if load:
            client.start()
        before = [o for o in s["osds"] if o["id"] == "osd.1"][0]["live"]
        began = time.monotonic()
        ask("admin", "osd", "replace", "1")
        while True:
            s = status()
            if s["health"] == "ok" and s["repair"]["queued"] == 0 and s["repair"]["waiting"] == 0 and s["osds"][1]["state"] == "up":
                break
            time.sleep(0.1)
        took = time.monotonic() - began
        over.set()
        if load:
            client.join()
        made = [o for o in s["osds"] if o["id"] == "osd.1"][0]["live"]
        assert load or made >= before * 9 // 10, f"{made} bytes were made of {before}"
        row = {"code": code, "user_mib": mib, "file_bytes": size, "load": load, "shard_bytes": before, "seconds": round(took, 2),
               "shards_mib_s": round(before / MIB / took, 1), "user_mib_s": round(before / MIB / took * k, 1), "client_mib_s": round(moved[0] / MIB / took, 1)}
        print(f"| {code} | {mib} MiB in files of {size >> 10} KiB | {'yes' if load else 'no'} | {row['seconds']} | {row['shards_mib_s']} | {row['client_mib_s']} |", flush=True)
        return row
    finally:
        up.terminate()
        try:
            up.wait(120)
        except subprocess.TimeoutExpired:
            up.kill()
        subprocess.run(["umount", "-l", mnt], capture_output=True)
        shutil.rmtree(work, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("holdfast")
    p.add_argument("--dir", default="/var/tmp", help="where the cluster lies; not tmpfs")
    p.add_argument("--mib", type=int, default=2048)
    p.add_argument("--size-kib", type=int, default=4096)
    p.add_argument("--codes", default="4+2")
    p.add_argument("--load", action="store_true", help="a client writes meanwhile")
    p.add_argument("--json")
    a = p.parse_args()
    print("| code | holds | load | seconds | MiB/s of shards made | the client's MiB/s |")
    print("|---|---|---|---|---|---|")
    rows = [measure(os.path.abspath(a.holdfast), a.dir, code, a.mib, a.size_kib << 10, a.load) for code in a.codes.split(",")]
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    sys.exit(main())
