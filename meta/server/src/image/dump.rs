//! Telling what an image holds, for `holdfast dump`.
//!
//! What always holds: nothing is written; damage is a line with an error, behind all that could be read before it.

use super::format::{Reader, staged_stripe};
use holdfast_meta_core::dump::describe;
use holdfast_meta_log::raft;
use holdfast_objstore_base::dump::{Line, Sink, hex};
use std::io::{self, Read};
use std::path::Path;

/// Whether these first bytes of a file are an image's.
pub fn looks_like_one(first: &[u8]) -> bool {
    first.starts_with(super::format::MAGIC)
}

/// Tells of the head, of every block and of every row. An error is the sink's.
pub fn dump(path: &Path, from: impl Read, sink: &mut Sink<'_>) -> io::Result<()> {
    let line = Line::new("image", path).at(0);
    let mut reader = match Reader::open(from) {
        Ok(reader) => reader,
        Err(e) => return sink(line.bad(e)),
    };
    let head = reader.head();
    let line = line.with("cluster", hex(&head.cluster)).with("applied", head.applied).with("wall_ns", head.wall_ns);
    let line = head.behind.map_or(line.clone(), |behind| line.with("behind", behind));
    sink(if head.tail.is_empty() { line } else { raft::describe_tail(line, &head.tail) })?;
    for number in 0u64.. {
        let line = Line::new("image-block", path).at(reader.bytes());
        let mut rows = Vec::new();
        match reader.block(|key, value| rows.push((key.to_vec(), value))) {
            Ok(more) => {
                sink(line.clone().with("number", number).with("rows", rows.len()))?;
                for (key, value) in rows {
                    sink(match (staged_stripe(&key), value) {
                        (Some(stripe), value) => {
                            line.part("image-inline").show("stripe", stripe).with("bytes", value.map_or(0, |v| v.len()))
                        }
                        (None, Some(value)) => describe(line.part("row"), &key, &value),
                        (None, None) => line.part("row").with("key", hex(&key)).with("removed", true),
                    })?;
                }
                if !more {
                    return Ok(());
                }
            }
            Err(e) => return sink(line.with("number", number).bad(e)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::format::{Block, Head, staged_key};
    use bytes::Bytes;
    use holdfast_objstore_proto::StripeId;

    fn told(bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        dump(Path::new("image"), bytes, &mut |line| {
            lines.push(line);
            Ok(())
        })
        .expect("the sink takes everything");
        lines
    }

    #[test]
    fn an_image_is_told_of_whole_and_its_damage_after_what_could_be_read() {
        let mut bytes = Head { cluster: [3; 16], applied: 42, wall_ns: 5, behind: None, tail: Bytes::new() }.encode();
        let second = bytes.len();
        let mut block = Block::default();
        block.push(&staged_key(StripeId::from_bytes([3; 16])), b"inline");
        bytes.extend(block.encode(0));
        let end = bytes.len();
        bytes.extend(Block::default().encode(1));
        assert!(looks_like_one(&bytes) && !looks_like_one(b"HFST"));
        let lines = told(&bytes);
        assert_eq!(lines.iter().map(Line::kind).collect::<Vec<_>>(), ["image", "image-block", "image-inline", "image-block"]);
        assert!(lines.iter().all(|l| !l.is_bad()));
        assert!(
            lines[1].to_string().starts_with(&format!("image@{second} ")) && lines[3].to_string().starts_with(&format!("image@{end} "))
        );
        // Cut: what was there is told, and then that the end is missing.
        let lines = told(&bytes[..end]);
        assert_eq!(lines.iter().filter(|l| l.is_bad()).map(Line::kind).collect::<Vec<_>>(), ["image-block"]);
        assert_eq!(lines.len(), 4);
        bytes[9] ^= 1;
        assert!(told(&bytes)[0].is_bad());
    }
}
