//! The machine's clocks and its randomness.

use crate::clock::{Clock, WallNs};

/// CLOCK_REALTIME and CLOCK_BOOTTIME.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealClock;

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for one timespec.
    let rc = unsafe { libc::clock_gettime(clock, &mut t) };
    assert_eq!(rc, 0, "this kernel lacks clock {clock}");
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + t.tv_nsec as u64
}

impl Clock for RealClock {
    fn wall_ns(&self) -> WallNs {
        read(libc::CLOCK_REALTIME)
    }
    fn boot_ns(&self) -> u64 {
        read(libc::CLOCK_BOOTTIME)
    }
}

/// Fills `out` with random bytes fit for keys and identities. It waits for the kernel's pool at most once after boot.
pub fn random_bytes(out: &mut [u8]) {
    let mut at = 0;
    while at < out.len() {
        let rest = &mut out[at..];
        // SAFETY: `rest` is valid for writes of its length.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if n > 0 {
            at += n as usize;
        } else {
            let e = std::io::Error::last_os_error();
            assert_eq!(e.kind(), std::io::ErrorKind::Interrupted, "getrandom failed: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_move_and_random_bytes_differ() {
        let (a, b) = (RealClock.boot_ns(), RealClock.boot_ns());
        assert!(a > 0 && b >= a);
        assert!(RealClock.wall_ns() > 1_600_000_000_000_000_000);
        let (mut x, mut y) = ([0u8; 32], [0u8; 32]);
        random_bytes(&mut x);
        random_bytes(&mut y);
        assert_ne!(x, y);
    }
}
