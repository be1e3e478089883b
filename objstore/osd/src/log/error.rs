//! What can go wrong with a log, named by what its owner can do; and what a recovery tells.

use super::Position;
use holdfast_objstore_base::disk::DiskError;
use std::fmt;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No segment is left (or no space on the device to make one). Reads go on; retire segments, then append again.
    #[error("the log is full")]
    Full,
    /// A write or flush failed: nothing can be appended any more. What is there stays readable.
    #[error("the log is out of service: {0}")]
    Failed(String),
    /// The record at this position is not what was written; `block` names the payload block, `None` the head.
    #[error("record at {at} is corrupt{}: {why}", BlockName(*block))]
    Corrupt { at: Position, block: Option<u32>, why: String },
    /// At start: something that was durable is not readable (see [`Fault`]); nothing was changed.
    #[error("the log is damaged: {0}")]
    Damaged(Fault),
    /// The segment of that position was retired.
    #[error("the segment of {0} was retired")]
    Gone(Position),
    /// The device could not be read (or, at start, written); the log is as it was.
    #[error(transparent)]
    Io(#[from] DiskError),
    /// There is no log here, or not a whole one.
    #[error("not a log: {0}")]
    NotALog(String),
    #[error("the log has format {found}, this program knows up to {known}")]
    NewerFormat { found: u32, known: u32 },
    /// The configuration or the visitor said no; nothing was changed.
    #[error("refused: {0}")]
    Refused(String),
    /// The caller broke a rule of this API.
    #[error("bug: {0}")]
    Bug(String),
}

pub type Result<T> = std::result::Result<T, Error>;

struct BlockName(Option<u32>);

impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(b) => write!(f, " in block {b}"),
            None => write!(f, " in its head"),
        }
    }
}

/// Something that was durable and is not readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Records `first_seq..next_seq`, of which the first began at `at`; a later record proves that they were durable.
    Records { at: Position, first_seq: u64, next_seq: u64, why: String },
    /// A whole segment file is missing, or neither its headers nor its first record can be read.
    Segment { number: u32, why: String },
    /// A checkpoint was made once, and neither slot holds one: the whole log was scanned instead.
    Checkpoint { why: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Records { at, first_seq, next_seq, why } => {
                write!(f, "records {first_seq} to {} at {at} are corrupt: {why}", next_seq.saturating_sub(1).max(*first_seq))
            }
            Fault::Segment { number, why } => write!(f, "segment {number} is lost: {why}"),
            Fault::Checkpoint { why } => write!(f, "the checkpoints are lost: {why}"),
        }
    }
}

/// Where the log was cut: nothing from there on had been covered by a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    pub at: Position,
    pub seq: u64,
    /// Records behind the cut that were readable and were dropped with it.
    pub dropped: u64,
    pub why: String,
}

/// What a start found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// This open's epoch: higher than any before.
    pub epoch: u64,
    /// Records of the owner that were visited.
    pub records: u64,
    /// Sequence number of the last record that counts; 0: none.
    pub last_seq: u64,
    /// The highest sequence number known durable from what was read.
    pub durable_seen: u64,
    /// From where on records were read: 1 without a checkpoint.
    pub scanned_from: u64,
    pub torn: Option<Torn>,
    /// Empty unless [`super::OnCorruption::Report`].
    pub faults: Vec<Fault>,
    /// Segments taken out of service: dropped with a torn tail, by this start or one that did not finish.
    pub orphans: u32,
}
