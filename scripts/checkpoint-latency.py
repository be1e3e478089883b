#!/usr/bin/env python3
"""checkpoint-latency.py HOLDFAST DIR [SECONDS]: how long a 4 KiB write and fsync takes while checkpoints of the metadata run, and while none does.

DIR is made and removed. One thread writes and syncs, another makes files so that checkpoints come often (with --memory 64M the state is
checkpointed about every MiB of changes). A sync counts as overlapping when it ended within a second before a checkpoint was seen to be over.
It prints the medians and the p99s, and exits with 1 when the p99 of the overlapping ones is above three times their median."""
import json
import os
import shutil
import subprocess
import sys
import threading
import time


def main():
    holdfast, work, seconds = sys.argv[1], os.path.abspath(sys.argv[2]), float(sys.argv[3] if len(sys.argv) > 3 else 60)
    data, mnt = os.path.join(work, "data"), os.path.join(work, "mnt")
    os.makedirs(mnt)
    up = subprocess.Popen([holdfast, "up", data, "--osds", "1", "--mount", mnt, "--memory", "64M"], stdout=subprocess.PIPE, text=True)
    try:
        for line in up.stdout:
            if line.strip() == "ready":
                break
        syncs, ends, over = [], [], threading.Event()

        def make():
            n = 0
            while not over.is_set():
                os.makedirs(os.path.join(mnt, f"d{n // 1000}"), exist_ok=True)
                os.close(os.open(os.path.join(mnt, f"d{n // 1000}", f"f{n}"), os.O_CREAT | os.O_WRONLY))
                n += 1

        def watch():
            seen = None
            while not over.is_set():
                status = json.loads(subprocess.run([holdfast, "status", "--data", data, "--json"], capture_output=True, text=True).stdout)
                now = status["metadata"]["checkpoints"]
                if seen is not None and now > seen:
                    ends.append(time.monotonic())
                seen = now
                time.sleep(0.2)

        threads = [threading.Thread(target=make), threading.Thread(target=watch)]
        [t.start() for t in threads]
        fd = os.open(os.path.join(mnt, "synced"), os.O_CREAT | os.O_WRONLY)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            begun = time.monotonic()
            os.pwrite(fd, os.urandom(4096), 0)
            os.fsync(fd)
            syncs.append((time.monotonic(), time.monotonic() - begun))
        over.set()
        [t.join() for t in threads]
        os.close(fd)
    finally:
        up.terminate()
        up.wait(120)
        shutil.rmtree(work, ignore_errors=True)
    overlapping = [t for at, t in syncs if any(end - 1.0 <= at <= end for end in ends)]
    others = [t for at, t in syncs if not any(end - 1.0 <= at <= end for end in ends)]
    bad = False
    for name, times in [("overlapping a checkpoint", overlapping), ("others", others)]:
        if len(times) < 100:
            print(f"{name}: only {len(times)} syncs: run longer")
            continue
        times.sort()
        median, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        print(f"{name}: {len(times)} syncs, median {median * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, ratio {p99 / median:.1f}")
        bad |= name.startswith("over") and p99 > 3 * median
    print(f"{len(ends)} times a checkpoint was seen to be over")
    return bad or len(overlapping) < 100


sys.exit(main())
