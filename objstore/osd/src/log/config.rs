//! What a log is told at start.

use super::format::DATA_START;
use super::writer::Need;
use super::{Error, Result};
use holdfast_objstore_base::units::{BLOCK, MIB};

/// Limits and habits of one log.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes of a segment: whole blocks, 64 KiB to 16 GiB. Kept from `format` on; a later `open` may not change it.
    pub segment_bytes: u64,
    /// Segment files at most; beyond it appends answer [`Error::Full`].
    pub segments_max: u32,
    /// Of those, how many only [`super::Append::urgent`] records may go on to.
    pub segments_reserve: u32,
    /// Before the reserve, how many are left to [`super::Need::Background`] records.
    pub segments_background: u32,
    /// Of the reserve, how many only [`super::Append::cleaning`] records may go on to.
    pub segments_cleaning: u32,
    /// Segment files to have ready beyond the next one, so that a device which others fill up leaves this log so much room. Once the
    /// log has half its segments in service it keeps its whole reserve ready as well.
    pub segments_ahead: u32,
    /// Bytes of heads and checksum tables kept in memory for reads.
    pub cache_bytes: u64,
    pub on_corruption: OnCorruption,
    pub blocking: Blocking,
}

/// What `open` does about records that were durable and are not readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCorruption {
    /// It fails and changes nothing.
    Refuse,
    /// It lists them in [`super::Recovery::faults`] and goes on behind them.
    Report,
}

/// Where the calls of `base::disk` that block (making a file) run when they are needed in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// On the runtime's blocking threads.
    Pool,
    /// On the task's own thread: for simulated disks, which must be deterministic.
    Here,
}

impl Config {
    /// For shards: 64 MiB segments, no bound on their number, faults reported.
    pub fn osd() -> Self {
        Self {
            segment_bytes: 64 * MIB,
            segments_max: u32::MAX,
            segments_reserve: 0,
            segments_background: 0,
            segments_cleaning: 0,
            segments_ahead: 0,
            cache_bytes: 32 * MIB,
            on_corruption: OnCorruption::Report,
            blocking: Blocking::Pool,
        }
    }

    /// For a write-ahead log: 16 MiB segments, corruption refused.
    pub fn wal() -> Self {
        Self { segment_bytes: 16 * MIB, cache_bytes: MIB, on_corruption: OnCorruption::Refuse, ..Self::osd() }
    }

    pub(super) fn check(&self) -> Result<()> {
        let block = BLOCK as u64;
        if !self.segment_bytes.is_multiple_of(block) || !(64 << 10..=16 << 30).contains(&self.segment_bytes) {
            return Err(Error::Refused(format!("a segment of {} bytes is not whole blocks between 64 KiB and 16 GiB", self.segment_bytes)));
        }
        if self.segments_max as u64 <= self.segments_reserve as u64 + self.segments_background as u64
            || self.segments_reserve < self.segments_cleaning
        {
            return Err(Error::Refused("no segment is left beside the reserve".into()));
        }
        Ok(())
    }

    /// Segments that a record of this need leaves to others.
    pub(super) fn kept(&self, need: Need) -> u32 {
        match need {
            Need::Ordinary => self.segments_reserve + self.segments_background,
            Need::Background => self.segments_reserve,
            Need::Urgent => self.segments_cleaning,
            Need::Cleaning => 0,
        }
    }

    pub(super) fn segment_blocks(&self) -> u32 {
        (self.segment_bytes / BLOCK as u64) as u32
    }

    /// Blocks a record may take: all but the headers and the seal's block.
    pub(super) fn record_blocks_max(&self) -> u32 {
        self.segment_blocks() - DATA_START - 1
    }
}
