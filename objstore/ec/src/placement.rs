//! Which OSDs get the shards of a new stripe.
//!
//! What always holds: the answer depends on the stripe's id and the candidates alone, in whatever order they are
//! given, and is the same on every machine (integers only). OSDs are chosen in proportion to their weight as long as
//! that leaves distinct ones; when one comes or goes, only stripes that name it are placed differently, but for order.
//! What it leaves out: placing old stripes. A stripe's record names its OSDs; this is asked once, when it is written.

use holdfast_objstore_proto::{Code, OsdId, StripeId};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An OSD that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub osd: OsdId,
    /// Share it should take: its free space, in any unit common to all. Those of weight 0 are chosen last.
    pub weight: u32,
}

/// Chooses n distinct OSDs, the home of shard i at index i: weighted rendezvous hashing. Fewer than n candidates give
/// a shorter list; the caller narrows the code first (`Code::narrowed`).
pub fn place(id: StripeId, code: Code, candidates: &[Candidate]) -> SmallVec<[OsdId; 6]> {
    let id = id.to_bytes();
    let mut ranked: SmallVec<[(u64, Candidate); 16]> =
        candidates.iter().map(|&c| (draw(xxh3_64_with_seed(&id, c.osd.0 as u64 + 1)), c)).collect();
    // Lowest draw / weight first; compared crosswise, which is exact and puts weight 0 last.
    ranked.sort_unstable_by(|(a, ca), (b, cb)| {
        let (left, right) = (*a as u128 * cb.weight as u128, *b as u128 * ca.weight as u128);
        (ca.weight == 0).cmp(&(cb.weight == 0)).then(left.cmp(&right)).then(a.cmp(b)).then(ca.osd.cmp(&cb.osd))
    });
    ranked.dedup_by_key(|(_, c)| c.osd);
    ranked.iter().take(code.n()).map(|(_, c)| c.osd).collect()
}

/// −log2(hash / 2^64) in units of 2^-40: exponentially distributed for a uniform hash, which is what makes the lowest
/// of draw / weight fall to each candidate in proportion to its weight. (−ln differs by a constant factor only.)
fn draw(hash: u64) -> u64 {
    let hash = hash | 1;
    let whole = hash.leading_zeros() as u64;
    // The mantissa, in [1, 2) as 1.63 fixed point; squaring it yields one binary digit of its logarithm at a time.
    let mut x = hash << whole;
    let mut log = 0u64;
    for _ in 0..40 {
        let square = (x as u128 * x as u128) >> 63;
        let carry = (square >> 64) as u64 & 1;
        log = log << 1 | carry;
        x = (square >> carry) as u64;
    }
    // hash / 2^64 = mantissa · 2^-(whole + 1)
    ((whole + 1) << 40) - log
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(counter: u64) -> StripeId {
        StripeId { incarnation: 1, group: 0, counter }
    }

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        weights.iter().enumerate().map(|(i, &weight)| Candidate { osd: OsdId(i as u16), weight }).collect()
    }

    #[test]
    fn draws_are_logarithms() {
        for hash in [1, 3, 0x1234, 1 << 40, u64::MAX / 3, u64::MAX] {
            let want = 64.0 - ((hash | 1) as f64).log2();
            let got = draw(hash) as f64 / (1u64 << 40) as f64;
            assert!((want - got).abs() < 1e-9, "{hash}: {got} is not {want}");
        }
    }

    #[test]
    fn homes_are_distinct_and_do_not_depend_on_order() {
        let mut all = candidates(&[5, 1, 1000, 7, 7, 0, 90, 12]);
        for counter in 0..500 {
            let code = Code::new(4, 2);
            let homes = place(id(counter), code, &all);
            let mut sorted = homes.to_vec();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), 6);
            assert!(!homes.contains(&OsdId(5)), "weight 0 while others are there");
            all.rotate_left(3);
            assert_eq!(place(id(counter), code, &all), homes);
        }
        assert_eq!(place(id(1), Code::new(8, 3), &all).len(), 8);
    }

    #[test]
    fn shards_spread_evenly_and_by_weight() {
        let mut taken = [0u32; 4];
        for counter in 0..20_000 {
            taken[place(id(counter), Code::new(1, 0), &candidates(&[1, 1, 2, 4]))[0].0 as usize] += 1;
        }
        for (taken, want) in taken.iter().zip([2500.0, 2500.0, 5000.0, 10_000.0]) {
            assert!((*taken as f64 - want).abs() < 0.06 * want, "{taken} of {want}");
        }
        let mut roles = [[0u32; 6]; 9];
        for counter in 0..20_000 {
            for (shard, osd) in place(id(counter), Code::new(4, 2), &candidates(&[1; 9])).iter().enumerate() {
                roles[osd.0 as usize][shard] += 1;
            }
        }
        for count in roles.as_flattened() {
            assert!((*count as f64 - 20_000.0 / 9.0).abs() < 250.0, "{count}");
        }
    }

    #[test]
    fn losing_an_osd_moves_only_what_it_held() {
        let all = candidates(&[1; 9]);
        for counter in 0..300 {
            let before = place(id(counter), Code::new(4, 2), &all);
            let lost = before[2];
            let left: Vec<_> = all.iter().copied().filter(|c| c.osd != lost).collect();
            let after = place(id(counter), Code::new(4, 2), &left);
            let kept: Vec<_> = before.iter().filter(|&&o| o != lost).collect();
            assert_eq!(after.iter().take(5).collect::<Vec<_>>(), kept);
        }
    }

    #[test]
    fn placement_is_the_same_everywhere() {
        let homes = place(id(42), Code::new(4, 2), &candidates(&[10, 20, 30, 40, 50, 60, 70, 80]));
        assert_eq!(homes.iter().map(|o| o.0).collect::<Vec<_>>(), GOLDEN_42);
    }
    const GOLDEN_42: [u16; 6] = [5, 6, 7, 3, 1, 4];
}
