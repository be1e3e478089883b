//! The digest that binds the shards of a stripe to each other.
//!
//! What always holds: it covers every block checksum of every shard, in shard order, and where one shard ends and the
//! next begins; so two versions of a stripe never share it, and shards of different versions never decode together.
//! What it leaves out: protection against forgery; it is no cryptographic hash.

use xxhash_rust::xxh3::Xxh3Default;

/// XXH3-64 (seed 0) over: u32 n · for each shard: u32 blocks, then the CRC32C of each block as u32; all little-endian.
/// `crcs[i]` is the table of shard i.
pub fn digest(crcs: &[&[u32]]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&(crcs.len() as u32).to_le_bytes());
    let mut buf = [0; 1024];
    for table in crcs {
        hash.update(&(table.len() as u32).to_le_bytes());
        for part in table.chunks(buf.len() / 4) {
            for (to, crc) in buf.chunks_exact_mut(4).zip(part) {
                to.copy_from_slice(&crc.to_le_bytes());
            }
            hash.update(&buf[..part.len() * 4]);
        }
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_every_checksum_and_on_the_borders() {
        let base = digest(&[&[1, 2], &[3, 4]]);
        for other in [&[&[1, 2][..], &[4, 3]][..], &[&[1, 2, 3], &[4]], &[&[1, 2, 3, 4]], &[&[1, 2], &[3, 4], &[]]] {
            assert_ne!(base, digest(other));
        }
    }

    #[test]
    fn digest_is_what_the_format_says() {
        let long: Vec<u32> = (0..1000).collect();
        let mut flat = vec![2u8, 0, 0, 0, 0xe8, 3, 0, 0];
        flat.extend(long.iter().flat_map(|c| c.to_le_bytes()));
        flat.extend([1, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(digest(&[&long, &[0xdead_beef]]), xxhash_rust::xxh3::xxh3_64(&flat));
    }
}
