//! What is left for a user of the space on all OSDs.
//!
//! What always holds: a stripe needs n *distinct* OSDs, so one that is much larger than the others counts only as far as the others
//! can keep up. The bound is exact for shards small against an OSD.
//! What it leaves out: record headers, and that small stripes are kept as whole copies.

use super::Cluster;
use crate::UsableSpace;
use holdfast_objstore_proto::Code;
use holdfast_objstore_proto::shard::OsdSpace;
use smallvec::SmallVec;

impl Cluster {
    pub(crate) fn usable_space(&self, code: Code) -> UsableSpace {
        let spaces: SmallVec<[OsdSpace; 16]> =
            self.slots().list.iter().filter(|s| s.failure().is_none() && !s.leaving()).map(|s| s.service.space()).collect();
        let Some(code) = code.narrowed(spaces.len()) else { return UsableSpace::default() };
        let usable = |of: fn(&OsdSpace) -> u64| code.k as u64 * shard_bytes_max(spaces.iter().map(of).collect(), code.n());
        UsableSpace { total: usable(|s| s.total), free: usable(|s| s.free), free_own: usable(|s| s.free_own) }
    }
}

/// The largest t for which `n` shards of `t` bytes in all, cut at will, fit distinct OSDs: Σ min(room, t) ≥ n·t.
fn shard_bytes_max(mut rooms: SmallVec<[u64; 16]>, n: usize) -> u64 {
    rooms.sort_unstable_by(|a, b| b.cmp(a));
    let mut rest: u128 = rooms.iter().map(|r| *r as u128).sum();
    // OSDs larger than the answer take one shard of every stripe; the others share what is left.
    for (larger, room) in rooms.iter().take(n).enumerate() {
        let t = rest / (n - larger) as u128;
        if *room as u128 <= t {
            return t as u64;
        }
        rest -= *room as u128;
    }
    rooms.get(n - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_osds_bound_what_a_large_one_is_worth() {
        let t = |rooms: &[u64], n| shard_bytes_max(rooms.into(), n);
        assert_eq!(t(&[100, 100, 100], 3), 100);
        assert_eq!(t(&[1000, 100, 100], 3), 100, "every stripe needs all three");
        assert_eq!(t(&[1000, 100, 100], 2), 200, "the large one is in every stripe, the small ones share the rest");
        assert_eq!(t(&[100, 100, 100, 100], 2), 200);
        assert_eq!(t(&[70], 1), 70);
        assert_eq!(t(&[10, 20, 30, 40], 1), 100);
        assert_eq!(t(&[0, 50, 50], 3), 0);
    }
}
