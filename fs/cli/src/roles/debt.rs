//! What is still to be done before space is what it looks like, and how full the cluster is: for `status`.
//!
//! What it leaves out: slowing writers by it. OSDs and the object cluster do that, each by what it sees itself.

use serde::Serialize;

/// Work that writers have caused and that is not done. Whoever has such work adds a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Debt {
    /// Bytes that cleaning has to move on all OSDs before enough room is free there.
    pub cleaning_bytes: u64,
    /// Data bytes that are dead in stripes which are partly alive: rewritten when room is short, or half of all is dead.
    pub worn_bytes: u64,
    /// Stripes and inodes that nobody can reach any more and that are not deleted yet.
    pub deleting: u64,
}

/// How much room is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fullness {
    Ok,
    /// Past the warning mark: less than a tenth of the usable room is free.
    NearlyFull,
    /// Writes answer ENOSPC, or 507; reads and deletes go on.
    Full,
    /// The device of the metadata is full, whoever filled it: new names answer ENOSPC.
    MetadataFull,
}

impl Fullness {
    pub fn of(free: u64, total: u64, metadata_tight: bool) -> Self {
        match free {
            _ if metadata_tight => Self::MetadataFull,
            // Less than the largest stripe.
            f if total > 0 && f < 4 << 20 => Self::Full,
            f if f < total / 10 => Self::NearlyFull,
            _ => Self::Ok,
        }
    }

    /// One sentence for the operator.
    pub fn warning(self, free: u64) -> Option<String> {
        let mib = free >> 20;
        match self {
            Self::Ok => None,
            Self::NearlyFull => Some(format!("nearly full: {mib} MiB are free for data; delete something or add OSDs")),
            Self::Full => Some(format!("full: {mib} MiB are free for data, writes are refused; deletes and reads go on")),
            Self::MetadataFull => Some("the filesystem of the metadata is full: new files are refused until it has room".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_comes_before_full() {
        let gib = 1u64 << 30;
        assert_eq!(Fullness::of(gib / 2, gib, false), Fullness::Ok);
        assert_eq!(Fullness::of(gib / 11, gib, false), Fullness::NearlyFull);
        assert_eq!(Fullness::of(1 << 20, gib, false), Fullness::Full);
        assert_eq!(Fullness::of(gib, gib, true), Fullness::MetadataFull);
        assert!(Fullness::Ok.warning(0).is_none() && Fullness::NearlyFull.warning(90 << 20).is_some_and(|w| w.contains("90 MiB")));
    }
}
