#!/bin/bash
# fresh-chroot.sh [COMMAND]: tries the two commands of the README on a fresh machine, which is a new Debian in a chroot with
# the Rust toolchain and gcc, Python, make and git, and nothing else. Needs root, debootstrap and a Debian with the same sources.
# It takes the committed state of this repository. CHROOT=DIR keeps the folder.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
command=${1:-"make quickstart && make test"}
root=${CHROOT:-$(mktemp -d /var/tmp/holdfast-chroot.XXXXXX)}
[ "$(id -u)" = 0 ] || { echo "a chroot needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { apt-get update -qq; apt-get install -y -qq debootstrap >/dev/null; }
source_of() { { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } | awk "$1" | head -n 1; }
mirror=$(source_of '/^deb / {print $2} /^URIs:/ {print $2}')
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
finish() {
  for m in dev/shm dev/pts dev proc sys .; do umount -l "$root/$m" 2>/dev/null || true; done
  [ -n "${CHROOT:-}" ] || rm -rf --one-file-system "$root"
}
trap finish EXIT
if [ ! -e "$root/etc/debian_version" ]; then
  debootstrap --variant=minbase --include=ca-certificates,gcc,libc6-dev,make,git,python3,python3-pip,curl "$suite" "$root" "$mirror" >/dev/null
fi
# What a machine needs to reach its package registries at all is the machine's own, not the project's.
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
cp -r /etc/ssl/certs "$root/etc/ssl/"
[ -d /usr/local/share/ca-certificates ] && cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
[ -f /etc/pip.conf ] && cp /etc/pip.conf "$root/etc/pip.conf"
cp /etc/hosts "$root/etc/hosts"
toolchain=$(rustc --print sysroot)
mkdir -p "$root/opt/rust" && cp -r "$toolchain/." "$root/opt/rust/"
# A machine has a root filesystem in its mount table: Holdfast looks there for what it lies on.
mount --bind "$root" "$root"
for m in proc sys; do mount --rbind "/$m" "$root/$m" && mount --make-rslave "$root/$m"; done
mount --bind /dev "$root/dev"; mount --bind /dev/pts "$root/dev/pts"; mount -t tmpfs none "$root/dev/shm"
rm -rf "$root/root/holdfast"
git clone -q "file://$here" "$root/root/holdfast"
chroot "$root" /usr/bin/env PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash -c "cd /root/holdfast && $command"
echo "fresh machine: passed"
