#!/usr/bin/env python3
"""million-files.py HOLDFAST [--dir DIR] [--sizes N,N,…] [--per-dir N] [--memory BYTES] [--json FILE]

What a create, a stat and the listing of a directory cost, how long a start takes and how much memory the process has, with 1,000, 10,000,
100,000 and 1,000,000 files in one cluster of one OSD. Everything goes through the mount. All files lie in one directory, which is the hardest
case; with --per-dir in directories of so many.

  create   the last 500 files that the size was reached with, from one thread; the others are made by 32
  stat     of 500 names side by side, after a start: neither the kernel nor the process has seen them yet
  random   the same of 500 names drawn at random: what of the state is not in its cache is read from the device
  readdir  of everything, after a start, per name
  ready    seconds from exec to the line `ready`, after kill -9 and after SIGTERM, and what SIGTERM took
  RSS      of the process at `ready` (after kill -9), and after every name was listed and asked for

Times are wall time per operation in µs, with the process's own CPU time (user and system) behind them: of the two, CPU time depends less on
what else runs. The load average stands in each row. Final lines compare each size with the smallest.

DIR on a device that others use makes a million creates take long: each waits for a flush. On a tmpfs they wait for nothing, and CPU times, memory
and what a start reads are the same; the times of starts then lack the device's."""
import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

COUNTED, THREADS = 500, 32
PAGE = os.sysconf("SC_PAGE_SIZE")


class Holdfast:
    def __init__(self, binary, work, memory):
        self.data, self.mnt = os.path.join(work, "data"), os.path.join(work, "mnt")
        os.makedirs(self.mnt, exist_ok=True)
        self.command = [binary, "up", self.data, "--mount", self.mnt] + (["--memory", memory] if memory else [])
        self.lines = []

    def start(self, *more):
        """Seconds until it is ready."""
        begun = time.monotonic()
        self.up = subprocess.Popen([*self.command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.up.stdout:
            self.lines.append(line)
            if line.strip() == "ready":
                took = time.monotonic() - begun
                threading.Thread(target=lambda out=self.up.stdout: self.lines.extend(out), daemon=True).start()
                return took
        raise SystemExit("it did not come up:\n" + "".join(self.lines[-20:]))

    def stop(self, with_signal):
        begun = time.monotonic()
        self.up.send_signal(with_signal)
        self.up.wait(600)
        if with_signal == signal.SIGKILL:
            subprocess.run(["umount", "-l", self.mnt], check=False, capture_output=True)
        return time.monotonic() - begun

    def cpu(self):
        """Seconds its threads ran, to the nanosecond."""
        tasks = f"/proc/{self.up.pid}/task"
        total = 0
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat") as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def rss(self):
        with open(f"/proc/{self.up.pid}/statm") as f:
            return int(f.read().split()[1]) * PAGE

    def timed(self, count, work):
        """µs of wall time and of the process's CPU time for each of `count` operations."""
        cpu, begun = self.cpu(), time.monotonic()
        work()
        return (time.monotonic() - begun) / count * 1e6, (self.cpu() - cpu) / count * 1e6


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("holdfast")
    p.add_argument("--dir", default=None)
    p.add_argument("--sizes", default="1000,10000,100000,1000000")
    p.add_argument("--per-dir", type=int, default=0)
    p.add_argument("--memory", default="1G")
    p.add_argument("--json", default=None)
    args = p.parse_args()
    sizes = [int(n) for n in args.sizes.split(",")]
    work = tempfile.mkdtemp(prefix="holdfast-million.", dir=args.dir)
    h = Holdfast(os.path.abspath(args.holdfast), work, args.memory)
    rng, rows = random.Random(1), []
    top = os.path.join(h.mnt, "files")
    where = lambda n: os.path.join(top, f"d{n // args.per_dir}") if args.per_dir else top
    name = lambda n: os.path.join(where(n), f"file-{n:08}")

    def make(numbers):
        for n in numbers:
            os.close(os.open(name(n), os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def make_many(first, last):
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(make, [range(first + t, last, THREADS) for t in range(THREADS)]))

    def walk(ask):
        seen = 0
        for d in [top] if not args.per_dir else [e.path for e in os.scandir(top)]:
            with os.scandir(d) as entries:
                for e in entries:
                    seen += 1
                    if ask:
                        e.stat(follow_symlinks=False)
        assert seen == made, f"{seen} names of {made}"

    made = 0
    try:
        h.start("--osds", "1")
        for size in sizes:
            row = {"files": size}
            for d in sorted({where(n) for n in range(made, size, args.per_dir or size)}):
                os.makedirs(d, exist_ok=True)
            make_many(made, size - COUNTED)
            row["create"] = h.timed(COUNTED, lambda: make(range(size - COUNTED, size)))
            made = size
            # What was made is published: a kill shall find all of it.
            subprocess.run([h.command[0], "admin", "sync", h.mnt], check=True, capture_output=True)
            # Killed while its last checkpoints are fresh and the log has something to hand over.
            h.stop(signal.SIGKILL)
            row["ready_kill_s"] = h.start()
            row["rss_ready"] = h.rss()
            row["stopped_s"] = h.stop(signal.SIGTERM)
            row["ready_term_s"] = h.start()
            os.stat(name(0))
            first = size // 2 - COUNTED // 2
            row["stat"] = h.timed(COUNTED, lambda: [os.stat(name(n)) for n in range(first, first + COUNTED)])
            asked = rng.sample([*range(1, first), *range(first + COUNTED, size)], min(COUNTED, size - COUNTED - 1))
            row["random"] = h.timed(len(asked), lambda: [os.stat(name(n)) for n in asked])
            h.stop(signal.SIGTERM)
            h.start()
            row["readdir"] = h.timed(size, lambda: walk(False))
            row["walk"] = h.timed(size, lambda: walk(True))
            row["rss_walk"] = h.rss()
            row["load"] = os.getloadavg()[0]
            meta = next((os.path.join(d, f) for d, _, fs in os.walk(h.data) for f in fs if f == "state.redb"), None)
            row["state_bytes"] = os.path.getsize(meta) if meta else None
            rows.append(row)
            print("  ".join(f"{k} {'/'.join(f'{x:.0f}' for x in v) if isinstance(v, tuple) else f'{v:.2f}' if isinstance(v, float) else v}" for k, v in row.items()), file=sys.stderr)
        h.stop(signal.SIGTERM)
    finally:
        if h.up.poll() is None:
            h.up.kill()
            h.up.wait()
        subprocess.run(["umount", "-l", h.mnt], check=False, capture_output=True)
        shutil.rmtree(work, ignore_errors=True)
    print("| files | create | stat | stat at random | readdir | readdir and stat | ready after kill -9 | after SIGTERM | stopping | RSS at ready | after the walk | load |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        ops = " | ".join(f"{r[k][0]:.1f} ({r[k][1]:.1f})" for k in ("create", "stat", "random", "readdir", "walk"))
        rss = " | ".join(f"{r[k] >> 20} MiB" for k in ("rss_ready", "rss_walk"))
        print(f"| {r['files']:,} | {ops} | {r['ready_kill_s']:.2f} s | {r['ready_term_s']:.2f} s | {r['stopped_s']:.2f} s | {rss} | {r['load']:.1f} |")
    for r in rows[1:]:
        ratio = ", ".join(f"{k} {r[k][1] / max(rows[0][k][1], 1e-9):.2f}" for k in ("create", "stat", "random", "readdir"))
        print(f"CPU time of {r['files']:,} files against {rows[0]['files']:,}: {ratio}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"memory": args.memory, "per_dir": args.per_dir, "rows": rows}, f, indent=1)


main()
