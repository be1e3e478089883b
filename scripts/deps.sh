#!/bin/bash
# deps.sh VENV: installs what building, the quickstart and the tests need and is not there yet.
set -euo pipefail
venv=$1
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need fio fio
need git git
need gcc gcc
need mkfs.ext4 e2fsprogs
need losetup mount
need umount mount
need fusermount3 fuse3
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  command -v apt-get >/dev/null || { echo "please install: ${missing[*]}" >&2; exit 1; }
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
# Exact versions: a resolver left to choose among the releases of these three searches for minutes.
want="boto3==1.43.11 botocore==1.43.11 awscli==1.45.11 pytest==8.4.2 pytest-timeout==2.4.0"
if [ ! -x "$venv/bin/aws" ] || [ "$(cat "$venv/.holdfast" 2>/dev/null)" != "$want" ]; then
  echo "installing into $venv: $want"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -q --disable-pip-version-check $want
  echo "$want" > "$venv/.holdfast"
fi
