//! Faults to order.

use super::disk::SimDisk;
use super::rng::Rng;
use super::state::block_of;
use crate::units::BLOCK;
use std::ops::Range;
use std::path::Path;

impl SimDisk {
    /// The `n`-th write from now (1: the next) fails with EIO, having changed nothing.
    pub fn fail_write(&self, n: u64) {
        self.shared.state.lock().faults.write_in = Some((n, libc::EIO));
    }

    /// The `n`-th read from now fails with EIO.
    pub fn fail_read(&self, n: u64) {
        self.shared.state.lock().faults.read_in = Some((n, libc::EIO));
    }

    /// The `n`-th flush from now fails with EIO, and so poisons its domain.
    pub fn fail_flush(&self, n: u64) {
        self.shared.state.lock().faults.flush_in = Some((n, libc::EIO));
    }

    /// Limits the bytes that blocks may take (`None`: no limit); a write beyond fails with ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().faults.capacity = bytes;
    }

    /// Flushes say Ok and make nothing stable, like a drive that lies.
    pub fn lying_flush(&self, on: bool) {
        self.shared.state.lock().faults.lying = on;
    }

    /// Flushes neither fail nor end while `on`.
    pub fn hold_flushes(&self, on: bool) {
        let held: Vec<_> = {
            let mut s = self.shared.state.lock();
            s.faults.hold = on;
            if on {
                return;
            }
            s.domains.values_mut().flat_map(|d| std::mem::take(&mut d.held)).collect()
        };
        held.into_iter().for_each(std::task::Waker::wake);
    }

    /// The power goes after `n` more steps: a write is two, a flush, a new name, a removal, a rename and a synced folder are one each.
    /// From then on every call fails with EIO and changes nothing; [`SimDisk::crash`] then shows what is left.
    pub fn cut_after(&self, n: u64) {
        self.shared.state.lock().faults.cut_in = Some(n);
    }

    /// The power goes now.
    pub fn cut_now(&self) {
        self.shared.state.lock().faults.cut = true;
        self.hold_flushes(false);
    }

    /// Whether the power has gone.
    pub fn is_cut(&self) -> bool {
        self.shared.state.lock().faults.cut
    }

    /// Steps taken so far, in the unit of [`SimDisk::cut_after`].
    pub fn steps(&self) -> u64 {
        self.shared.state.lock().ops
    }

    /// Overwrites a range of bytes with random ones, in every version. False when the file or the range is not there.
    pub fn corrupt(&self, path: &Path, range: Range<u64>, seed: u64) -> bool {
        let mut s = self.shared.state.lock();
        let Some(inode) = s.file(path).and_then(|id| s.inodes.get_mut(&id)) else { return false };
        if range.end > inode.len || range.is_empty() {
            return false;
        }
        let size = BLOCK as u64;
        for at in range.start / size..range.end.div_ceil(size) {
            let cell = inode.cells.entry(at).or_default();
            if cell.stable.is_none() && cell.versions.is_empty() {
                cell.stable = Some(super::state::zero());
            }
            let (from, to) = (range.start.max(at * size) - at * size, range.end.min((at + 1) * size) - at * size);
            for block in cell.stable.iter_mut().chain(cell.versions.iter_mut().map(|v| &mut v.1)) {
                let mut bytes = **block;
                let was = bytes;
                // Each byte differs from what it was, so the damage is certain.
                let mut noise = Rng::new(seed ^ at);
                for b in &mut bytes[from as usize..to as usize] {
                    *b ^= 1 + noise.below(255) as u8;
                }
                debug_assert_ne!(was, bytes);
                *block = block_of(&bytes);
            }
        }
        true
    }
}
