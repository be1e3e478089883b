//! Every decoder takes any bytes.

use super::super::format::checkpoint::CheckpointHeader;
use super::super::format::root::Root;
use super::super::format::segment::{Header, State};
use super::*;
use crate::service::record;
use crate::service::superblock::Superblock;
use holdfast_objstore_base::sim::Rng;

fn decode_all(bytes: &[u8]) {
    let _ = Head::decode(bytes, ID, Position { life: 1, block: 2 });
    let _ = Head::peek(bytes, Position { life: 1, block: 2 });
    let _ = Head::claimed_position(bytes);
    let _ = Header::decode(bytes);
    let _ = Root::decode(bytes);
    let _ = CheckpointHeader::decode(bytes);
    let _ = Superblock::decode(bytes);
    let _ = record::decode_shard(bytes);
    let _ = record::decode_delete(bytes);
    let _ = record::decode_fence(bytes);
}

#[test]
fn random_bytes_never_panic_a_decoder() {
    let mut rng = Rng::new(77);
    for _ in 0..3000 {
        let mut bytes = vec![0; rng.below(9000) as usize];
        rng.fill(&mut bytes);
        decode_all(&bytes);
        // With the right magic the fields behind it are reached.
        for (at, magic) in [(4, &b"HfRc"[..]), (0, b"HfSegmnt"), (0, b"HfLog\0\0\0"), (0, b"HfCkpt\0\0"), (0, b"HfOsd\0\0\0")] {
            if bytes.len() >= 32 {
                bytes[at..at + magic.len()].copy_from_slice(magic);
                if at == 4 {
                    bytes[20..28].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
                    bytes[9] = 0;
                }
                decode_all(&bytes);
            }
        }
    }
}

#[test]
fn cut_and_flipped_structures_never_panic_and_never_pass() {
    let mut rng = Rng::new(3);
    let mut h = head(1, 2, 1, 5, 4, "some meta");
    h.location = Location { position: Position { life: 1, block: 2 }, head_blocks: 1, payload_bytes: 9000 };
    h.crcs = Arc::new([1, 2, 3]);
    let header = Header { log_id: ID, number: 1, life: 1, state: State::InService, blocks: BLOCKS, generation: 1, seq_floor: 1 };
    let root = Root { log_id: ID, segment_bytes: SEGMENT, epoch: 1, segments: 2, life_next: 3, checkpointed: true };
    let checkpoint =
        CheckpointHeader { log_id: ID, generation: 1, position: Position { life: 1, block: 2 }, seq: 3, content_bytes: 9, content_crc: 8 };
    let samples = [h.encode(ID).to_vec(), header.encode().to_vec(), root.encode().to_vec(), checkpoint.encode().to_vec()];
    for sample in &samples {
        for n in 0..sample.len() {
            decode_all(&sample[..n]);
        }
        for _ in 0..2000 {
            let mut bytes = sample.clone();
            let bit = rng.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            decode_all(&bytes);
            assert_ne!(Head::decode(&bytes, ID, h.location.position).ok().as_ref(), Some(&h).filter(|_| bytes != samples[0]));
        }
    }
}
