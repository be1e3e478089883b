#!/bin/bash
# The soak: scripts/soak.sh [MINUTES, default 10] [--seed N] [--dir DIR]
# Load through a mount and S3, kills, device faults and replacements by seed, with an oracle; a failing seed replays. It needs a built
# tree (`make deps build`).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export HOLDFAST=${HOLDFAST:-$here/target/release/holdfast}
export FAULTDISK=${FAULTDISK:-$here/target/release/faultdisk}
exec "${PYTHON:-$here/.venv/bin/python}" "$here/tests/soak/soak.py" "$@"
