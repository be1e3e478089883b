//! Checkpoints: what the owner knows up to a mark, so that recovery reads only from there on.
//!
//! What always holds: everything before the mark is stable before the checkpoint is; a slot is rewritten only while the
//! other one is valid. A checkpoint that could not be written is no failure of the log.

use super::format::Bad;
use super::format::Position;
use super::format::checkpoint::{CONTENT_BYTES_MAX, CheckpointHeader};
use super::state::{Checkpoints, Log};
use super::{Error, Result};
use bytes::Bytes;
use holdfast_objstore_base::buf::{AlignedBuf, is_aligned};
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::disk::{Disk, DiskError, Open};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::{BLOCK, MIB, block_up};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of a checkpoint written at once.
pub const PIECE_BYTES: usize = 64 << 10;

/// A place in the log that everything before has completed, `then`s included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub position: Position,
    /// The first sequence number not covered.
    pub seq: u64,
}

pub(super) fn slot_path(dir: &Path, slot: u64) -> PathBuf {
    dir.join(format!("checkpoint.{slot}"))
}

impl Log {
    pub fn mark(&self) -> Mark {
        let st = self.0.state.lock();
        match st.in_flight.first_key_value() {
            Some((seq, position)) => Mark { position: *position, seq: *seq },
            None => Mark { position: st.cursor(), seq: st.seq_next },
        }
    }

    /// Stores `bytes`, which hold the effect of every record before `mark` (and may hold later ones'), and returns when they
    /// are stable. Flushes first. `Io` when the slot could not be written: the checkpoints there are stay valid.
    pub async fn checkpoint(&self, mark: Mark, bytes: Bytes) -> Result<()> {
        self.checkpoint_in_pieces(mark, bytes, |_| std::future::ready(())).await
    }

    /// The same, giving way to others: `pause` is told how long a piece of [`PIECE_BYTES`] took, and waited for before the next.
    pub async fn checkpoint_in_pieces<P: Future<Output = ()>>(
        &self,
        mark: Mark,
        bytes: Bytes,
        pause: impl Fn(Duration) -> P,
    ) -> Result<()> {
        let shared = self.0.clone();
        if bytes.len() as u64 > CONTENT_BYTES_MAX {
            return Err(Error::Bug("a checkpoint beyond its limit".into()));
        }
        let _one = shared.checkpointing.acquire().await.expect("never closed");
        self.flush().await?;
        let generation = shared.state.lock().checkpoints.generation + 1;
        let length = BLOCK as u64 + block_up(bytes.len() as u64);
        let file = shared
            .blocking(move |s| {
                let file = s.disk.open(&slot_path(&s.dir, generation % 2), Open::Create)?;
                if file.len()? < length {
                    file.set_len(length)?;
                }
                s.disk.sync_dir(&s.dir)?;
                Ok(file)
            })
            .await?;
        let header = CheckpointHeader {
            log_id: shared.id,
            generation,
            position: mark.position,
            seq: mark.seq,
            content_bytes: bytes.len() as u64,
            content_crc: crc32c(&bytes),
        };
        file.write_at(0, vec![header.encode().freeze()]).await?;
        let mut at = 0;
        while at < bytes.len() {
            let begun = Instant::now();
            let run = bytes.slice(at..bytes.len().min(at + PIECE_BYTES));
            let part = if is_aligned(&run) {
                run
            } else {
                let mut b = AlignedBuf::copy_of(&run);
                b.set_len(b.capacity());
                b.freeze()
            };
            let n = part.len();
            file.write_at((BLOCK + at) as u64, vec![part]).await?;
            at += n;
            if at < bytes.len() {
                pause(begun.elapsed()).await;
            }
        }
        if let Err(e) = file.flush_all().await {
            failpoint::reached("osd.log.checkpoint_flush_failed");
            return Err(shared.fail(format!("a flush failed: {e}")));
        }
        let first = {
            let mut st = shared.state.lock();
            st.checkpoints = Checkpoints { generation, newest: Some(mark.position), older: st.checkpoints.newest };
            !st.checkpointed
        };
        if first {
            shared.blocking(|s| s.write_root(|st| st.checkpointed = true)).await?;
        }
        Ok(())
    }
}

/// A slot as a start finds it.
pub(super) struct Slot {
    pub header: CheckpointHeader,
    pub content: Bytes,
}

/// Reads one slot; `Err(Bad)` when it holds no checkpoint of this log.
pub(super) async fn load(disk: &dyn Disk, dir: &Path, log_id: u128, slot: u64) -> Result<std::result::Result<Slot, Bad>> {
    let path = slot_path(dir, slot);
    if !disk.exists(&path) {
        return Ok(Err(Bad::Blank));
    }
    let file = disk.open(&path, Open::Existing)?;
    let length = file.len()?;
    if length < BLOCK as u64 {
        return Ok(Err(Bad::Short));
    }
    let read = |offset: u64, len: usize| file.read_at(offset, AlignedBuf::zeroed(len));
    // A slot that cannot be read is as good as a torn one: the other may do.
    let unreadable = |e: DiskError| Ok(Err(Bad::Unreadable(e.to_string())));
    let block = match read(0, BLOCK).await {
        Ok(b) => b,
        Err(e) => return unreadable(e),
    };
    let header = match CheckpointHeader::decode(&block) {
        Ok(h) if h.log_id != log_id || h.generation % 2 != slot => return Ok(Err(Bad::Bounds("identity"))),
        Ok(h) if BLOCK as u64 + block_up(h.content_bytes) > length => return Ok(Err(Bad::Short)),
        Ok(h) => h,
        Err(bad) => return Ok(Err(bad)),
    };
    let mut content = Vec::with_capacity(header.content_bytes as usize);
    while (content.len() as u64) < header.content_bytes {
        let rest = header.content_bytes - content.len() as u64;
        let run = match read(BLOCK as u64 + content.len() as u64, block_up(rest.min(MIB)) as usize).await {
            Ok(run) => run,
            Err(e) => return unreadable(e),
        };
        content.extend_from_slice(&run[..rest.min(MIB) as usize]);
    }
    if crc32c(&content) != header.content_crc {
        return Ok(Err(Bad::Checksum));
    }
    Ok(Ok(Slot { header, content: content.into() }))
}
