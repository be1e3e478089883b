#!/bin/bash
# Runs the tests of the crates with unsafe code under sanitizers: scripts/sanitize.sh [address|thread|both, default both] [CRATE...]
#
# Needs a nightly toolchain. With its rust-src component the standard library is built with the sanitizer too; without it only our code and
# the crates it uses are, which is where our unsafe code is. scripts/tsan.supp names what the thread sanitizer then cannot see (the standard
# library's own locks), and nothing of ours.
set -euo pipefail
cd "$(dirname "$0")/.."
which=${1:-both}
shift || true
crates=("$@")
# io_uring, aligned buffers and devices; the kernels of the codes; the loop on /dev/fuse (its mounts need root and are not made here).
[ ${#crates[@]} -gt 0 ] || crates=(holdfast-objstore-base holdfast-objstore-ec holdfast-fs-fuse)
case $which in address | thread | both) ;; *) echo "usage: $0 [address|thread|both] [CRATE...]" >&2; exit 2 ;; esac
cargo +nightly --version >/dev/null 2>&1 || { echo "there is no nightly toolchain: rustup toolchain install nightly" >&2; exit 1; }
target=$(rustc +nightly -vV | sed -n 's/^host: //p')
std=()
[ ! -d "$(rustc +nightly --print sysroot)/lib/rustlib/src" ] || std=(-Zbuild-std)

sanitize() {
    local kind=$1 flags="-Zsanitizer=$1"
    # A standard library that was not built with it is another ABI to the compiler; see above.
    [ "$kind" != thread ] || [ ${#std[@]} -gt 0 ] || flags="$flags -Cunsafe-allow-abi-mismatch=sanitizer"
    echo "--- $kind sanitizer: ${crates[*]}"
    # Build scripts and macros run on the host and are left as they are: that is what --target is for.
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/sanitize-$kind \
        RUSTFLAGS="$flags" RUSTDOCFLAGS="$flags" \
        ASAN_OPTIONS=detect_leaks=${HOLDFAST_LEAKS:-0}:detect_stack_use_after_return=1 \
        TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/scripts/tsan.supp" \
        cargo +nightly test --locked "${std[@]}" --target "$target" --lib --tests "${crates[@]/#/-p}"
}

case $which in
    both) sanitize address && sanitize thread ;;
    *) sanitize "$which" ;;
esac
