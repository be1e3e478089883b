//! The durable layer: one redb file, drawn in `docs/formats/state.md`.
//!
//! What always holds: rows, the index of the last command in them and the log's tail become durable in one commit.
//! What it leaves out: what rows mean; when to commit.

use super::backend::FileBackend;
use super::guarded::{Guarded, guard};
use super::overlay::Overlay;
use super::pace::{PIECE_BYTES, Pace};
use bytes::Bytes;
use holdfast_meta_core::StateError;
use holdfast_meta_log::Blocking;
use holdfast_objstore_base::checksum::crc32c_parts;
use holdfast_objstore_base::disk::File;
use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition, WriteTransaction};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Key → value of the metadata state.
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// `version`, `applied`, `tail`.
const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");

/// Version of what is in the file; raised when an older reader would misread it.
pub(crate) const VERSION: u32 = 1;

/// Up to where the rows reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Index of the last command in the rows.
    pub applied: u64,
    /// The log's own bytes.
    pub tail: Bytes,
}

pub(crate) struct Store {
    db: Guarded<Database>,
    blocking: Blocking,
    pace: Arc<Pace>,
}

/// A consistent view of the durable layer.
pub(crate) struct Snapshot {
    rows: Guarded<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

type Row = (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>);

pub(super) type RawRange = Guarded<redb::Range<'static, &'static [u8], &'static [u8]>>;

/// Rows of a snapshot in order, one at a time.
pub(crate) struct SnapshotRange {
    range: Guarded<redb::Range<'static, &'static [u8], &'static [u8]>>,
    row: Option<Row>,
}

fn error(what: &str, e: impl std::fmt::Display) -> StateError {
    StateError(format!("{what}: {e}"))
}

/// A dump reads everything once.
const FROZEN_CACHE_BYTES: usize = 16 << 20;

/// Bytes behind each value: its checksum, because redb looks at its pages' only when it repairs.
const SEAL_BYTES: usize = 4;

/// CRC-32C of key and value, little-endian.
fn seal(key: &[u8], value: &[u8]) -> [u8; SEAL_BYTES] {
    crc32c_parts(&[key, value]).to_le_bytes()
}

pub(super) fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], StateError> {
    match stored.split_last_chunk::<SEAL_BYTES>() {
        Some((value, sealed)) if *sealed == seal(key, value) => Ok(value),
        _ => Err(StateError("the state's file is damaged (a row does not match its checksum)".into())),
    }
}

impl Store {
    /// Opens the file, or makes the database in an empty one. Blocks; not for a runtime's thread, unless `blocking` says so.
    pub(crate) fn open(file: Arc<dyn File>, cache_bytes: usize, blocking: Blocking) -> Result<Self, StateError> {
        let pace = Arc::<Pace>::default();
        let backend = FileBackend::new(file, blocking, pace.clone()).map_err(|e| error("start the reader thread", e))?;
        guard(|| {
            let db =
                redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(backend).map_err(|e| error("open the state", e))?;
            Ok(Self { db: Guarded::new(db), blocking, pace })
        })
    }

    /// Where its work that blocks is to run.
    pub(crate) fn blocking(&self) -> Blocking {
        self.blocking
    }

    /// How folds into it give way.
    pub(super) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// Opens a database over what keeps its writes to itself, for a dump.
    pub(super) fn open_frozen(backend: super::dump::Frozen) -> Result<Self, StateError> {
        guard(|| {
            let db = redb::Builder::new().set_cache_size(FROZEN_CACHE_BYTES).create_with_backend(backend);
            Ok(Self { db: Guarded::new(db.map_err(|e| error("open the state", e))?), blocking: Blocking::Here, pace: Arc::default() })
        })
    }

    /// Verifies the checksums of all pages.
    pub(super) fn check_pages(&mut self) -> Result<(), StateError> {
        guard(|| match self.db.check_integrity() {
            Ok(true) => Ok(()),
            Ok(false) => Err(StateError("the newest commit's pages do not verify; an older one would be used".into())),
            Err(e) => Err(error("check the state's pages", e)),
        })
    }

    /// The mark of the last commit, if there was one.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, StateError> {
        guard(|| self.read_mark())
    }

    /// The newest commit, rows and mark; `None` before the first.
    pub(crate) fn image(&self) -> Result<Option<(Mark, Snapshot)>, StateError> {
        guard(|| {
            let read = self.db.begin_read().map_err(|e| error("read the state", e))?;
            let Some(mark) = mark_in(&read)? else { return Ok(None) };
            match read.open_table(ROWS) {
                Ok(rows) => Ok(Some((mark, Snapshot { rows: Guarded::new(rows) }))),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(e) => Err(error("read the state", e)),
            }
        })
    }

    fn read_mark(&self) -> Result<Option<Mark>, StateError> {
        let read = self.db.begin_read().map_err(|e| error("read the state", e))?;
        mark_in(&read)
    }

    /// The newest committed rows; `None` before the first commit.
    pub(crate) fn snapshot(&self) -> Result<Option<Snapshot>, StateError> {
        guard(|| {
            let read = self.db.begin_read().map_err(|e| error("read the state", e))?;
            match read.open_table(ROWS) {
                Ok(rows) => Ok(Some(Snapshot { rows: Guarded::new(rows) })),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(e) => Err(error("read the state", e)),
            }
        })
    }

    /// Folds `overlay` in, in one durable commit. Blocks while it writes; `pause` is waited for between pieces.
    pub(crate) async fn fold<P: Future<Output = ()>>(
        &self,
        overlay: &Overlay,
        mark: &Mark,
        pause: impl Fn(Duration) -> P,
    ) -> Result<(), StateError> {
        let write = guard(|| {
            let mut write = self.db.begin_write().map_err(|e| error("checkpoint", e))?;
            // A crash must not make the next start walk the whole file.
            write.set_quick_repair(true);
            Ok(Guarded::new(write))
        })?;
        let mut rows = overlay.iter();
        let mut begun = Instant::now();
        while guard(|| write_piece(&write, &mut rows))? {
            pause(begun.elapsed()).await;
            begun = Instant::now();
        }
        guard(|| {
            let write = write.into_inner();
            write_mark(&write, mark)?;
            write.commit().map_err(|e| error("checkpoint", e))
        })
    }
}

fn mark_in(read: &ReadTransaction) -> Result<Option<Mark>, StateError> {
    let about = match read.open_table(ABOUT) {
        Ok(t) => t,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(e) => return Err(error("read the state's mark", e)),
    };
    let get = |name: &str| -> Result<Vec<u8>, StateError> {
        let row = about.get(name).map_err(|e| error("read the state's mark", e))?;
        Ok(row.ok_or_else(|| error("read the state's mark", format!("no '{name}'")))?.value().to_vec())
    };
    let version = u32::from_be_bytes(get("version")?.try_into().map_err(|_| error("read the state's version", "wrong length"))?);
    if version != VERSION {
        return Err(StateError(format!("the state has format version {version}, this program reads {VERSION}: use the newer program")));
    }
    let applied = u64::from_be_bytes(get("applied")?.try_into().map_err(|_| error("read the state's index", "wrong length"))?);
    Ok(Some(Mark { applied, tail: get("tail")?.into() }))
}

/// Writes rows of one piece; whether there may be more.
fn write_piece<'a>(write: &WriteTransaction, rows: &mut impl Iterator<Item = (&'a [u8], Option<&'a Bytes>)>) -> Result<bool, StateError> {
    let mut table = write.open_table(ROWS).map_err(|e| error("checkpoint", e))?;
    let (mut sealed, mut bytes) = (Vec::new(), 0);
    for (key, value) in rows {
        match value {
            Some(v) => {
                sealed.clear();
                sealed.extend_from_slice(v);
                sealed.extend_from_slice(&seal(key, v));
                table.insert(key, sealed.as_slice()).map(drop)
            }
            None => table.remove(key).map(drop),
        }
        .map_err(|e| error("checkpoint", e))?;
        bytes += key.len() + value.map_or(0, Bytes::len);
        if bytes >= PIECE_BYTES {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write_mark(write: &WriteTransaction, mark: &Mark) -> Result<(), StateError> {
    let mut about = write.open_table(ABOUT).map_err(|e| error("checkpoint", e))?;
    let entries: [(&str, &[u8]); 3] = [("version", &VERSION.to_be_bytes()), ("applied", &mark.applied.to_be_bytes()), ("tail", &mark.tail)];
    for (name, value) in entries {
        about.insert(name, value).map_err(|e| error("checkpoint", e))?;
    }
    Ok(())
}

impl Snapshot {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        guard(|| {
            let row = self.rows.get(key).map_err(|e| error("read the state", e))?;
            row.map(|v| unseal(key, v.value()).map(Bytes::copy_from_slice)).transpose()
        })
    }

    /// Rows as they are stored, with their seals.
    pub(super) fn raw_range(&self, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Result<RawRange, StateError> {
        let range = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
        Ok(Guarded::new(guard(|| self.rows.range::<&[u8]>(range).map_err(|e| error("read the state", e)))?))
    }

    /// Rows with `from <= key < to`.
    pub(crate) fn range(&self, from: &[u8], to: &[u8]) -> Result<SnapshotRange, StateError> {
        let range = guard(|| self.rows.range::<&[u8]>(from..to).map_err(|e| error("read the state", e)))?;
        let mut this = SnapshotRange { range: Guarded::new(range), row: None };
        this.advance()?;
        Ok(this)
    }
}

impl SnapshotRange {
    pub(crate) fn advance(&mut self) -> Result<(), StateError> {
        let range = &mut self.range;
        self.row = guard(|| {
            let row = range.next().transpose().map_err(|e| error("read the state", e))?;
            if let Some((k, v)) = &row {
                unseal(k.value(), v.value())?;
            }
            Ok(row)
        })?;
        Ok(())
    }

    /// Key of the row it stands at; `None` at the end.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.row.as_ref().map(|(k, _)| k.value())
    }

    /// Value of the row it stands at.
    pub(crate) fn value(&self) -> &[u8] {
        // It was unsealed when the range came to it.
        self.row.as_ref().map_or(&[], |(_, v)| v.value().split_last_chunk::<SEAL_BYTES>().map_or(&[], |(value, _)| value))
    }
}

#[cfg(test)]
impl Store {
    /// Writes a mark of another version.
    pub(crate) fn write_version(&self, version: u32) {
        let write = self.db.begin_write().expect("a transaction");
        write.open_table(ABOUT).expect("a table").insert("version", version.to_be_bytes().as_slice()).expect("inserts");
        write.commit().expect("commits");
    }
}
