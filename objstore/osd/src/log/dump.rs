//! Printing what a log's folder holds, in whatever state it is. Reads only.

use super::format::head::{KIND_MAX, KIND_SEAL};
use super::format::root::Root;
use super::format::{Bad, DATA_START, Position};
use super::scan::Window;
use super::{Result, checkpoint, open};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::units::BLOCK;
use std::io::{self, Write};
use std::path::Path;

/// The root of the log in `dir`, without opening it.
pub fn identity(disk: &dyn Disk, dir: &Path) -> Result<Root> {
    open::read_root(disk, dir)
}

/// Prints root, checkpoints, segments by life, and every readable record of each; `describe` says what kind and meta mean.
pub async fn dump(
    disk: &dyn Disk,
    dir: &Path,
    describe: &(dyn Fn(u8, &[u8]) -> String + Sync),
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let root = match open::read_root(disk, dir) {
        Ok(root) => root,
        Err(e) => return writeln!(out, "log: {e}"),
    };
    writeln!(out, "log {:032x}: epoch {}, {} segments of {} bytes", root.log_id, root.epoch, root.segments, root.segment_bytes)?;
    for slot in 0..2 {
        match checkpoint::load(disk, dir, root.log_id, slot).await.map_err(io::Error::other)? {
            Ok(s) => writeln!(
                out,
                "checkpoint {slot}: generation {}, from record {} at {}, {} bytes",
                s.header.generation,
                s.header.seq,
                s.header.position,
                s.content.len()
            )?,
            Err(bad) => writeln!(out, "checkpoint {slot}: {bad}")?,
        }
    }
    let blocks = (root.segment_bytes / BLOCK as u64) as u32;
    let found = open::find_segments(disk, dir, &root, blocks).await.map_err(io::Error::other)?;
    for fault in &found.faults {
        writeln!(out, "{fault}")?;
    }
    for s in &found.free {
        writeln!(out, "segment {}: free since life {}", s.header.number, s.header.life)?;
    }
    for (life, s) in &found.in_service {
        writeln!(out, "segment {}: life {life}, records from {}", s.header.number, s.header.seq_floor)?;
        let mut window = Window::new(&*s.file, blocks);
        let (mut block, mut gap) = (DATA_START, false);
        while block < blocks {
            let at = Position { life: *life, block };
            match window.head(root.log_id, at).await {
                Ok(head) => {
                    gap = false;
                    let payload = match window.payload_fault(&head).await {
                        Some(n) => format!(" CORRUPT in block {n}"),
                        None => String::new(),
                    };
                    let text = if head.kind > KIND_MAX { "seal".to_string() } else { describe(head.kind, &head.meta) };
                    let (seq, epoch, durable, bytes) = (head.seq, head.epoch, head.durable, head.location.payload_bytes);
                    writeln!(out, "  {at} record {seq} epoch {epoch} durable {durable} payload {bytes}{payload}: {text}")?;
                    block += head.location.blocks();
                    if head.kind == KIND_SEAL {
                        break;
                    }
                }
                Err(bad) => {
                    if !gap && bad != Bad::Blank {
                        writeln!(out, "  {at} {bad}")?;
                    }
                    gap = true;
                    block += 1;
                }
            }
        }
    }
    Ok(())
}
