#!/usr/bin/env python3
"""checkpoint-latency.py HOLDFAST DIR [SECONDS] [MAKERS]: how long a 4 KiB write and fsync takes while checkpoints of the metadata run, and while none does.

DIR is made and removed. One process writes and syncs, MAKERS others (4) make files so that checkpoints come often (with --memory 64M the state is
checkpointed about every MiB of changes). The daemon's log tells when a checkpoint begins and ends; a sync overlaps one when any of its time does.
It prints the medians and the p99s with the load of the machine, and exits with 1 when the p99 of the overlapping ones is above three times
their median. In turns with them a file of the device beside the data is written and synced: raw. That, and the syncs that overlap none, are the
control: what they show is the machine, not the checkpoints."""
import datetime
import mmap
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time


def main():
    holdfast, work, seconds = sys.argv[1], os.path.abspath(sys.argv[2]), float(sys.argv[3] if len(sys.argv) > 3 else 60)
    makers = int(sys.argv[4]) if len(sys.argv) > 4 else 4
    data, mnt, log = (os.path.join(work, name) for name in ("data", "mnt", "log"))
    os.makedirs(mnt)
    env = {**os.environ, "HOLDFAST_LOG": "holdfast_meta_server=debug,warn"}
    command = [holdfast, "up", data, "--osds", "1", "--mount", mnt, "--memory", "64M"]
    others = []
    up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(log, "w"), text=True, env=env)
    try:
        for line in up.stdout:
            if line.strip() == "ready":
                break
        syncs = []

        def make(who):
            n = 0
            while True:
                os.makedirs(os.path.join(mnt, f"d{who}-{n // 1000}"), exist_ok=True)
                os.close(os.open(os.path.join(mnt, f"d{who}-{n // 1000}", f"f{n}"), os.O_CREAT | os.O_WRONLY))
                n += 1

        # Processes: threads of this interpreter would wait for each other, and the syncs for them.
        others = [multiprocessing.Process(target=make, args=(who,), daemon=True) for who in range(makers)]
        [o.start() for o in others]
        fd = os.open(os.path.join(mnt, "synced"), os.O_CREAT | os.O_WRONLY)
        block = mmap.mmap(-1, 4096)
        block.write(os.urandom(4096))
        raw, beside = [], os.open(os.path.join(work, "raw"), os.O_CREAT | os.O_RDWR | os.O_DIRECT)
        for at in range(256):
            os.pwrite(beside, block, at * 4096)
        os.fsync(beside)
        until = time.time() + seconds
        while time.time() < until:
            begun = time.time()
            os.pwrite(fd, os.urandom(4096), 0)
            os.fsync(fd)
            syncs.append((begun, time.time()))
            begun = time.time()
            os.pwrite(beside, block, len(raw) % 256 * 4096)
            os.fdatasync(beside)
            raw.append((begun, time.time()))
        os.close(fd)
        os.close(beside)
        load = os.getloadavg()[0]
    finally:
        [o.kill() for o in others]
        [o.join() for o in others]
        up.terminate()
        up.wait(120)
        lines = open(log).read().splitlines() if os.path.exists(log) else []
        shutil.rmtree(work, ignore_errors=True)
    begun, spans = None, []
    for line in lines:
        stamp = re.match(r"(\S+)Z\s", line)
        if stamp and "a checkpoint begins" in line:
            begun = datetime.datetime.fromisoformat(stamp[1] + "+00:00").timestamp()
        elif stamp and "a checkpoint is over" in line and begun:
            spans.append((begun, datetime.datetime.fromisoformat(stamp[1] + "+00:00").timestamp()))
    meets = lambda s: any(s[0] <= end and s[1] >= begin for begin, end in spans)
    groups = {}
    for what, all in [("sync", syncs), ("raw", raw)]:
        for s in all:
            groups.setdefault((what, meets(s)), []).append(s[1] - s[0])
    times = lambda what, meets: groups.get((what, meets), [])
    bad = len(times("sync", True)) < 100
    for name, times in [
        ("overlapping a checkpoint", times("sync", True)),
        ("others", times("sync", False)),
        ("raw, overlapping", times("raw", True)),
        ("raw, others", times("raw", False)),
    ]:
        if len(times) < 100:
            print(f"{name}: only {len(times)} syncs: run longer")
            continue
        times.sort()
        median, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        print(f"{name}: {len(times)} syncs, median {median * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, ratio {p99 / median:.1f}")
        bad |= name.startswith("over") and p99 > 3 * median
    took = sorted(end - begin for begin, end in spans)
    print(f"{len(spans)} checkpoints, of {took[len(took) // 2] if took else 0:.2f} s (median); load {load:.1f}")
    return bad


sys.exit(main())
