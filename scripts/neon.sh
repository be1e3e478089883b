#!/bin/bash
# The erasure codes on another processor: builds the tests of objstore/ec for aarch64 and runs them in an emulator, NEON kernel and all.
# Needs: rustup target add aarch64-unknown-linux-gnu; apt-get install gcc-aarch64-linux-gnu qemu-user-static.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    command -v $tool >/dev/null || { echo "$tool is not installed: apt-get install gcc-aarch64-linux-gnu qemu-user-static" >&2; exit 1; }
done
${CARGO:-cargo} test --locked -p holdfast-objstore-ec --target aarch64-unknown-linux-gnu -- --nocapture "$@"
