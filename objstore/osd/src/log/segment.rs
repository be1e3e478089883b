//! A segment file in the hands of a running log.

use super::format::segment::{Header, State};
use super::{Error, Result};
use holdfast_objstore_base::disk::{Disk, File};
use holdfast_objstore_base::units::BLOCK;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const ROOT_FILE: &str = "log";

/// One file, in one state; the header that counts is `header`.
pub(super) struct Segment {
    pub header: Header,
    pub file: Arc<dyn File>,
}

pub(super) fn file_name(number: u32) -> String {
    format!("{number:08}.segment")
}

/// The number in a segment's file name.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".segment")?;
    if digits.len() < 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

pub(super) fn path_of(dir: &Path, number: u32) -> PathBuf {
    dir.join(file_name(number))
}

impl Segment {
    pub fn life(&self) -> u32 {
        self.header.life
    }

    /// Writes the next header, in the slot of its generation, and returns when it is stable.
    pub async fn enter(&self, life: u32, state: State, seq_floor: u64) -> holdfast_objstore_base::disk::Result<Segment> {
        let header = Header { life, state, seq_floor, generation: self.header.generation + 1, ..self.header };
        let slot = header.generation % 2;
        self.file.write_at(slot * BLOCK as u64, vec![header.encode().freeze()]).await?;
        self.file.flush().await?;
        Ok(Segment { header, file: self.file.clone() })
    }
}

/// Opens an existing segment file of full length.
pub(super) fn open_existing(disk: &dyn Disk, dir: &Path, number: u32) -> Result<Arc<dyn File>> {
    Ok(disk.open(&path_of(dir, number), holdfast_objstore_base::disk::Open::Existing)?)
}

/// Whether a failure to make a segment means only that there is no room.
pub(super) fn no_room(e: &Error) -> bool {
    match e {
        Error::Full => true,
        Error::Io(e) => e.is_no_space(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_are_numbers_and_nothing_else_is() {
        assert_eq!(number_of(&file_name(7)), Some(7));
        assert_eq!(number_of(&file_name(u32::MAX)), Some(u32::MAX));
        for name in ["7.segment", "00000007.segmen", "0000000x.segment", "000000007.segment", "-0000007.segment", ".segment"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
