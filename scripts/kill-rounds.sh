#!/bin/bash
# kill-rounds.sh [N] [SEED]: kill -9 under load, N rounds (100), checking after each that every fsynced byte and acknowledged
# object is there. It needs a built tree (`make deps build`).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export HOLDFAST_KILL_ROUNDS=${1:-100} HOLDFAST=${HOLDFAST:-$here/target/release/holdfast}
[ -z "${2:-}" ] || export HOLDFAST_SEED=$2
exec "${PYTHON:-$here/.venv/bin/python}" -m pytest "$here/tests/e2e/test_crash.py" -q -s -o timeout=0
