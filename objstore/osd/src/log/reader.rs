//! Reading records back, verified.
//!
//! What always holds: bytes are answered only after their block's checksum, from a head whose own checksum ties it to log,
//! life and place, agreed. A read touches the blocks asked for and, unless it is in the cache, the head.

use super::format::Position;
use super::format::head::Head;
use super::segment::Segment;
use super::state::Log;
use super::{Error, Location, Result};
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::checksum::crc32c;
use holdfast_objstore_base::units::BLOCK;
use std::sync::Arc;

/// Blocks not asked for that are read along rather than making two calls of one.
const GAP_BLOCKS: u32 = 8;

impl Log {
    /// Bytes `[offset, offset + len)` of the payload. Errors: `Corrupt`, `Gone`, `Io`; `Bug` beyond the payload.
    pub async fn read(&self, at: &Location, offset: u32, len: u32) -> Result<Bytes> {
        Ok(self.read_with_head(at, offset, len).await?.1)
    }

    /// The head of a record, from the cache where it is there.
    pub async fn read_head(&self, at: &Location) -> Result<Arc<Head>> {
        let segment = self.segment_of(at.position)?;
        if let Some(head) = self.cached(at) {
            return Ok(head);
        }
        let bytes = self.read_blocks(&segment, at.position.block, at.head_blocks).await?;
        self.head_from(&bytes, at)
    }

    /// Both at once: one read where they lie together.
    pub async fn read_with_head(&self, at: &Location, offset: u32, len: u32) -> Result<(Arc<Head>, Bytes)> {
        if offset.checked_add(len).is_none_or(|end| end > at.payload_bytes) {
            return Err(Error::Bug(format!("read of {len} bytes at {offset} of {}", at.payload_bytes)));
        }
        if len == 0 {
            return Ok((self.read_head(at).await?, Bytes::new()));
        }
        let first = offset / BLOCK as u32;
        let count = (offset + len).div_ceil(BLOCK as u32) - first;
        let data_at = at.position.block + at.head_blocks + first;
        let segment = self.segment_of(at.position)?;
        let (head, blocks) = match self.cached(at) {
            Some(head) => (head, self.read_blocks(&segment, data_at, count).await?),
            None if first <= GAP_BLOCKS => {
                let all = self.read_blocks(&segment, at.position.block, at.head_blocks + first + count).await?;
                let head = self.head_from(&all, at)?;
                (head, all.slice((at.head_blocks + first) as usize * BLOCK..))
            }
            None => {
                let head = self.read_blocks(&segment, at.position.block, at.head_blocks);
                let data = self.read_blocks(&segment, data_at, count);
                let (head, data) = futures::future::try_join(head, data).await?;
                (self.head_from(&head, at)?, data)
            }
        };
        self.verify_blocks(&head, first, &blocks)?;
        let from = (offset - first * BLOCK as u32) as usize;
        Ok((head, blocks.slice(from..from + len as usize)))
    }

    /// The head of a record from the device, whatever is cached.
    pub async fn reread_head(&self, at: &Location) -> Result<Arc<Head>> {
        let segment = self.segment_of(at.position)?;
        let bytes = self.read_blocks(&segment, at.position.block, at.head_blocks).await?;
        self.head_from(&bytes, at)
    }

    /// Reads a whole record from the device, its head too whatever is cached, and verifies all of it.
    pub async fn verify(&self, at: &Location) -> Result<Arc<Head>> {
        let segment = self.segment_of(at.position)?;
        let count = at.head_blocks + at.payload_bytes.div_ceil(BLOCK as u32);
        let all = self.read_blocks(&segment, at.position.block, count).await?;
        let head = self.head_from(&all, at)?;
        self.verify_blocks(&head, 0, &all[at.head_blocks as usize * BLOCK..])?;
        Ok(head)
    }

    fn cached(&self, at: &Location) -> Option<Arc<Head>> {
        self.0.heads.get(&at.position).filter(|h| h.location == *at)
    }

    fn segment_of(&self, at: Position) -> Result<Arc<Segment>> {
        let st = self.0.state.lock();
        st.segments.get(&at.life).map(|s| s.segment.clone()).ok_or(Error::Gone(at))
    }

    async fn read_blocks(&self, segment: &Segment, block: u32, count: u32) -> Result<Bytes> {
        if block as u64 + count as u64 > segment.header.blocks as u64 {
            return Err(Error::Bug(format!("blocks {block}..{} of a segment of {}", block as u64 + count as u64, segment.header.blocks)));
        }
        let buf = AlignedBuf::zeroed(count as usize * BLOCK);
        match segment.file.read_at(block as u64 * BLOCK as u64, buf).await {
            Ok(buf) => Ok(buf.freeze()),
            Err(e) => {
                self.0.counters.read_errors.inc();
                Err(e.into())
            }
        }
    }

    fn head_from(&self, bytes: &[u8], at: &Location) -> Result<Arc<Head>> {
        match Head::decode(bytes, self.0.id, at.position) {
            Ok(head) if head.location == *at => {
                let head = Arc::new(head);
                self.0.heads.insert(at.position, head.clone());
                Ok(head)
            }
            Ok(_) => Err(self.corrupt(at.position, None, "it is not the record it should be".into())),
            Err(bad) => Err(self.corrupt(at.position, None, bad.to_string())),
        }
    }

    fn verify_blocks(&self, head: &Head, first: u32, blocks: &[u8]) -> Result<()> {
        for (i, block) in blocks.chunks(BLOCK).enumerate() {
            let n = first as usize + i;
            // A short last block is checksummed without its padding.
            let len = (head.location.payload_bytes as usize - n * BLOCK).min(BLOCK);
            if crc32c(&block[..len]) != head.crcs[n] {
                return Err(self.corrupt(head.location.position, Some(n as u32), "the checksum differs".into()));
            }
        }
        Ok(())
    }

    /// What is not what it should be is corrupt, unless its segment went away during the read.
    fn corrupt(&self, at: Position, block: Option<u32>, why: String) -> Error {
        if !self.0.state.lock().segments.contains_key(&at.life) {
            return Error::Gone(at);
        }
        self.0.counters.crc_failures.inc();
        self.0.heads.remove(&at);
        Error::Corrupt { at, block, why }
    }
}
