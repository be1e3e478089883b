#!/bin/bash
# Overwrites a device of 2 GiB (or SIZE) twenty times at four fifths of its room, in a random order of pieces (whole stripes of 4 MiB, or PIECE-KIB)
# after the first time, then deletes everything: no ENOSPC may be seen, and all but the reserve must be free at the end. Prints bytes moved
# by byte written, the least room there was, and the time.
# usage: scripts/overwrite-20.sh HOLDFAST-BINARY [ROUNDS] [SIZE] [PIECE-KIB]
set -euo pipefail
bin=$(readlink -f "${1:?usage: $0 HOLDFAST-BINARY [ROUNDS] [SIZE]}")
rounds=${2:-20}
size=${3:-2G}
piece=${4:-4096}
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/overwrite.XXXXXX")
mkdir "$dir/device" "$dir/mnt"
truncate -s "$size" "$dir/image"
mkfs.ext4 -q -F -m 0 "$dir/image"
mount -o loop "$dir/image" "$dir/device"
up=
finish() {
    [ -z "$up" ] || { kill "$up" 2>/dev/null || true; wait "$up" || true; }
    umount "$dir/device" || true
    rm -rf "$dir"
}
trap finish EXIT
"$bin" up "$dir/device/data" --osds 1 --mount "$dir/mnt" >"$dir/log" 2>&1 &
up=$!
for _ in $(seq 600); do grep -q '^ready' "$dir/log" && break; kill -0 "$up" || { cat "$dir/log"; exit 1; }; sleep 0.1; done
python3 - "$bin" "$dir/device/data" "$dir/mnt/file" "$rounds" "$piece" <<'P'
import json, os, random, subprocess, sys, threading, time
bin, data, path, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
MIB = 1 << 20
PIECE = int(sys.argv[5]) << 10
def status():
    return json.loads(subprocess.run([bin, "status", "--data", data, "--json"], check=True, capture_output=True, text=True).stdout)
def metric(name):
    out = subprocess.run([bin, "admin", "metrics", "--data", data], check=True, capture_output=True, text=True).stdout
    return sum(float(l.rsplit(" ", 1)[1]) for l in out.splitlines() if l.startswith(name))
start = status()["space"]
pieces = start["usable_free"] * 4 // 5 // (4 * MIB) * (4 * MIB) // PIECE
print(f"usable {start['usable_free'] >> 20} MiB of {start['total'] >> 20}, the file has {pieces * PIECE >> 20} MiB")
# Looked at five times a second.
low = {"usable_free": start["usable_free"]}
def watch():
    while True:
        try:
            low["usable_free"] = min(low["usable_free"], status()["space"]["usable_free"])
        except subprocess.CalledProcessError:
            pass
        time.sleep(0.2)
threading.Thread(target=watch, daemon=True).start()
rng = random.Random(1)
began = time.monotonic()
for r in range(rounds):
    order = list(range(pieces))
    if r:
        rng.shuffle(order)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    for n in order:
        os.pwrite(fd, bytes([(r * 31 + n) % 251]) * PIECE, n * PIECE)
    os.fsync(fd)
    os.close(fd)
    s = status()
    print(f"round {r + 1}: {time.monotonic() - began:.1f} s, live {s['space']['live'] >> 20} MiB, free {s['space']['usable_free'] >> 20} MiB, "
          f"debt {s['debt']['cleaning_bytes'] >> 20} MiB, waits {metric('holdfast_objects_full_waits'):.0f}", flush=True)
took = time.monotonic() - began
with open(path, "rb") as f:
    for n in range(pieces):
        assert f.read(PIECE) == bytes([((rounds - 1) * 31 + n) % 251]) * PIECE, f"piece {n} is wrong"
user = rounds * pieces * PIECE
put, moved, worn = (metric(f"holdfast_{m}_bytes") for m in ("osd_put", "osd_cleaned", "meta_worn"))
print(f"{user / MIB / took:.0f} MiB/s; shards {put / user:.2f} (of these rewritten stripes {worn / user:.2f}), cleaning {moved / user:.2f} of the bytes "
      f"written by the user; least room {low['usable_free'] >> 20} MiB")
os.unlink(path)
end = time.monotonic() + 120
while True:
    s = status()
    if s["space"]["live"] == 0 and s["debt"]["cleaning_bytes"] == 0 and s["space"]["usable_free"] >= start["usable_free"] - 64 * MIB:
        break
    assert time.monotonic() < end, f"space did not come back: {s['space']}"
    time.sleep(0.2)
print(f"after the delete {s['space']['usable_free'] >> 20} MiB are free, at the start it was {start['usable_free'] >> 20}")
P
