//! Reading a segment from the front, for recovery and for dumps.

use super::format::head::{Head, KIND_SEAL};
use super::format::{Bad, Location, Position, payload_blocks};
use super::recover::Judge;
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::disk::File;
use holdfast_objstore_base::units::BLOCK;

const RUN_MIN: u32 = 16;
const RUN_MAX: u32 = 256;

/// Blocks of one file, read in runs that grow while they are used in sequence.
pub(super) struct Window<'a> {
    file: &'a dyn File,
    blocks: u32,
    start: u32,
    data: Bytes,
    run: u32,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a dyn File, blocks: u32) -> Self {
        Self { file, blocks, start: 0, data: Bytes::new(), run: RUN_MIN }
    }

    /// `count` blocks from `block`, within the segment.
    pub async fn get(&mut self, block: u32, count: u32) -> Result<Bytes, Bad> {
        if block as u64 + count as u64 > self.blocks as u64 {
            return Err(Bad::Short);
        }
        let held = (self.data.len() / BLOCK) as u32;
        if block < self.start || block + count > self.start + held {
            let sequential = block >= self.start && block <= self.start + held;
            self.run = if sequential { (self.run * 2).min(RUN_MAX) } else { RUN_MIN };
            let want = self.run.max(count).min(self.blocks - block);
            self.data = match self.read(block, want).await {
                Ok(data) => data,
                // One bad sector must not hide its neighbours.
                Err(_) if want > count => self.read(block, count).await?,
                Err(bad) => return Err(bad),
            };
            self.start = block;
        }
        let from = (block - self.start) as usize * BLOCK;
        Ok(self.data.slice(from..from + count as usize * BLOCK))
    }

    async fn read(&self, block: u32, count: u32) -> Result<Bytes, Bad> {
        let buf = AlignedBuf::zeroed(count as usize * BLOCK);
        match self.file.read_at(block as u64 * BLOCK as u64, buf).await {
            Ok(b) => Ok(b.freeze()),
            Err(e) => Err(Bad::Unreadable(e.to_string())),
        }
    }

    /// The head at `at`, if a whole one lies there that ends, with its payload, before the segment's last block (a seal: in it).
    pub async fn head(&mut self, log_id: u128, at: Position) -> Result<Head, Bad> {
        let first = self.get(at.block, 1).await?;
        let count = Head::peek(&first, at)?;
        let bytes = if count == 1 { first } else { self.get(at.block, count).await? };
        let head = Head::decode(&bytes, log_id, at)?;
        let end = at.block as u64 + head.location.blocks() as u64;
        if end > self.blocks as u64 - (head.kind != KIND_SEAL) as u64 {
            return Err(Bad::Bounds("length"));
        }
        Ok(head)
    }

    /// Checks the payload against the head's table; answers the first block that differs.
    pub async fn payload_fault(&mut self, head: &Head) -> Option<u32> {
        let Location { position, head_blocks, payload_bytes } = head.location;
        for n in 0..payload_blocks(payload_bytes) {
            let len = (payload_bytes as usize - n as usize * BLOCK).min(BLOCK);
            match self.get(position.block + head_blocks + n, 1).await {
                Ok(block) if crc32c(&block[..len]) == head.crcs[n as usize] => {}
                _ => return Some(n),
            }
        }
        None
    }
}

/// Tells the judge what a segment holds from block `from` on. Ends at a seal or at the end of the file.
pub(super) async fn scan_segment(
    file: &dyn File,
    log_id: u128,
    life: u32,
    blocks: u32,
    from: u32,
    judge: &mut Judge,
    mut step: impl FnMut(&mut Judge) -> super::Result<()> + Send,
) -> super::Result<()> {
    let mut window = Window::new(file, blocks);
    let mut block = from;
    while block < blocks {
        let at = Position { life, block };
        match window.head(log_id, at).await {
            Ok(head) => {
                let (next, seal) = (block + head.location.blocks(), head.kind == KIND_SEAL);
                if judge.head(head) {
                    step(judge)?;
                    if seal {
                        return Ok(());
                    }
                    block = next;
                    continue;
                }
                judge.bad(at, Bad::Stale);
            }
            Err(bad) => judge.bad(at, bad),
        }
        block += 1;
    }
    Ok(())
}
