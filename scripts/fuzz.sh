#!/bin/bash
# Fuzzes every decoder, one after the other: scripts/fuzz.sh [SECONDS each, default 60] [TARGET...]
#
# Needs a nightly toolchain (rustup toolchain install nightly) and cargo-fuzz (cargo install cargo-fuzz).
# What it finds lies in fuzz/artifacts/TARGET; `cargo +nightly fuzz run TARGET FILE` runs it again. An input that failed belongs into
# fuzz/corpus/TARGET under a name that says what it was: CI runs the corpora too.
set -u
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is not installed: cargo install cargo-fuzz" >&2; exit 1; }
cargo +nightly --version >/dev/null 2>&1 || { echo "there is no nightly toolchain: rustup toolchain install nightly" >&2; exit 1; }
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)
cargo +nightly fuzz build "${targets[@]:0:0}" || exit 1
failed=()
for target in "${targets[@]}"; do
    out=$(mktemp)
    # No input of a real size takes a quarter of a GiB at once, or ten seconds.
    if cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=256 -max_len=65536 -print_final_stats=1 >"$out" 2>&1; then
        execs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out")
        printf '%-24s %12s inputs  %s\n' "$target" "$execs" "$(grep -oE 'cov: [0-9]+' "$out" | tail -1)"
    else
        failed+=("$target")
        printf '%-24s FAILED\n' "$target"
        tail -n 40 "$out"
    fi
    rm -f "$out"
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
