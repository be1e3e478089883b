//! The copies of the write-ahead log on several devices: which count, who holds what, and how they become whole again.
//!
//! What always holds: a record is acknowledged once two of the copies in force have it on stable media (one, where the set has but one);
//! a copy that missed a record is never believed: before anything is acknowledged without it, a set that leaves it out is durable on
//! a quorum of the known devices, and no start goes on without reading such a quorum. Which devices are known changes while it serves, by
//! quorums of the old ones and the new.
//! What it leaves out: what the records mean, and copies on other machines (those are Raft's).
//!
//! | file | what |
//! |---|---|
//! | `folders` | where copies may lie, and whether that is there |
//! | `set` | the stored record of the set in force, and what a start may conclude from those it could read |
//! | `rules` | what becomes of the copies: events to commands, no I/O |
//! | `member` | one copy: a record log, and the order in which it gets records |
//! | `start` | making and recovering the copies |
//! | `fill` | making a copy whole from what is in memory |

pub(crate) mod fill;
pub(crate) mod folders;
pub(crate) mod member;
pub(crate) mod rules;
pub(crate) mod set;
pub(crate) mod start;

pub use folders::Folder;
pub use set::Place;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the log may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// Whatever came after the copies at hand were left out, or after the state.
    Stale,
    /// What was acknowledged in the very last moment.
    LastMoment,
}

/// Remembers a doubt durably; an error, a sentence, refuses the start.
#[derive(Clone)]
pub struct OnDoubt(pub Arc<dyn Fn(Doubt) -> Result<(), String> + Send + Sync>);

impl std::fmt::Debug for OnDoubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDoubt")
    }
}

impl Config {
    /// To be called before anything is changed that makes the next start forget the doubt.
    pub(crate) fn doubt(&self, doubt: Doubt) -> crate::Result<()> {
        self.on_doubt.as_ref().map_or(Ok(()), |tell| (tell.0)(doubt).map_err(crate::Error::Failed))
    }
}

/// How the copies are kept.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folders copies may lie in, one in each data folder, in their order. Empty: the ones the log is opened with.
    pub dirs: Vec<PathBuf>,
    /// Copies to keep, as far as there are devices: one more than the devices that may be lost.
    pub copies: usize,
    /// For each of these folders a file that is there as long as the folder is this cluster's. Empty: they always are.
    pub marks: Vec<PathBuf>,
    /// Of these folders, one for each device. `None`: each is a device of its own.
    pub devices: Option<Vec<Place>>,
    /// Folders whose devices stay known though they are not there. `None`: all.
    pub kept: Option<Vec<Place>>,
    /// Folders that are there and this cluster's; nothing is written to others. `None`: all.
    pub present: Option<Vec<Place>>,
    /// Start although it cannot be known that the copies at hand are the newest.
    pub accept_stale: bool,
    /// Told before anything is changed when the log may lack something that was acknowledged.
    pub on_doubt: Option<OnDoubt>,
    /// Make an empty log that goes on behind the state: for a state that was restored, whose log is gone.
    pub behind_state: bool,
    /// A copy that lacks for so long what another has is left out.
    pub late_after: Duration,
    /// A copy that lacks so many bytes of what another has is left out.
    pub late_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        let late_after = Duration::from_secs(2);
        Self {
            dirs: Vec::new(),
            copies: 1,
            marks: Vec::new(),
            devices: None,
            kept: None,
            present: None,
            accept_stale: false,
            on_doubt: None,
            behind_state: false,
            late_after,
            late_bytes: 64 << 20,
        }
    }
}
