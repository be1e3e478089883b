#!/bin/bash
# quickstart.sh: the main job on a temporary folder. KEEP=1 leaves the cluster running and says how to use it.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
holdfast=${HOLDFAST:-$here/target/release/holdfast}
aws=${VENV:-$here/.venv}/bin/aws
work=$(mktemp -d "${TMPDIR:-/var/tmp}/holdfast-quickstart.XXXXXX")
pid=
finish() {
  status=$?
  if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then kill -TERM "$pid"; wait "$pid" || true; fi
  umount "$work/mnt" 2>/dev/null || true
  rm -rf "$work"
  exit $status
}
trap finish EXIT
say() { printf '\n== %s\n' "$*"; }

[ "$(id -u)" = 0 ] || { echo "mounting needs root here: run it with sudo" >&2; exit 1; }
mkdir "$work/mnt"
say "holdfast up ./data --osds 6 --code 4+2 --mount ./mnt --s3 127.0.0.1:0"
"$holdfast" up "$work/data" --osds 6 --code 4+2 --mount "$work/mnt" --s3 127.0.0.1:0 > "$work/up.log" 2>&1 &
pid=$!
for _ in $(seq 600); do
  grep -qx ready "$work/up.log" && break
  kill -0 "$pid" 2>/dev/null || { cat "$work/up.log"; echo "it did not start" >&2; exit 1; }
  sleep 0.1
done
grep -qx ready "$work/up.log" || { cat "$work/up.log"; echo "it was not ready within 60 s" >&2; exit 1; }
cat "$work/up.log"
endpoint=$(sed -n 's/^s3: //p' "$work/up.log")

say "fio fio-jobs/seq-write.fio --directory=./mnt"
fio "$here/fio-jobs/seq-write.fio" --directory="$work/mnt" --size=256M --runtime=3 | grep -E 'WRITE:|READ:|err='

say "aws s3 cp big.bin s3://home/big.bin, and the same bytes through the mount"
export AWS_SHARED_CREDENTIALS_FILE=$work/data/credentials AWS_DEFAULT_REGION=us-east-1
head -c 64M /dev/urandom > "$work/big.bin"
"$aws" --endpoint-url "$endpoint" s3 cp --no-progress "$work/big.bin" s3://home/big.bin
cmp "$work/big.bin" "$work/mnt/big.bin"
cp "$work/mnt/big.bin" "$work/mnt/from-the-mount.bin"
"$aws" --endpoint-url "$endpoint" s3 cp --no-progress s3://home/from-the-mount.bin "$work/back.bin"
cmp "$work/big.bin" "$work/back.bin"
echo "both doors agree"
rm -f "$work/mnt/big.bin" "$work/mnt/from-the-mount.bin"

say "holdfast status --data ./data"
"$holdfast" status --data "$work/data"

say "holdfast bench ceiling --data ./data --mount ./mnt --out report/ --quick"
mkdir -p "$here/report"
"$holdfast" bench ceiling --data "$work/data" --mount "$work/mnt" --out "$here/report" --quick
echo "the report is in report/: results.json, report.md, report.html"

if [ "${KEEP:-}" = 1 ]; then
  trap - EXIT
  cat <<EOF

It keeps running (pid $pid).
  mount        $work/mnt
  S3           $endpoint   (AWS_SHARED_CREDENTIALS_FILE=$work/data/credentials)
  stop it      kill $pid; then rm -rf $work
EOF
fi
