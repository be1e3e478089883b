//! Reading the durable file row by row, without changing it, in whatever state it is.

use super::backend::read_any;
use super::guarded::guard;
use super::store::{Store, unseal};
use holdfast_meta_core::StateError;
use holdfast_objstore_base::disk::File;
use holdfast_objstore_base::units::BLOCK;
use parking_lot::Mutex;
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// What is found in the file.
pub(crate) enum Item<'a> {
    /// Version, index of the last command, the log's own bytes.
    Mark(u32, u64, &'a [u8]),
    /// A row; the value unless its seal is broken.
    Row(&'a [u8], Result<&'a [u8], String>),
    Damage(String),
}

/// Tells `tell` of the mark and of the rows in `range`. An error is `tell`'s. Blocks; not for a runtime's thread.
pub(crate) fn dump_rows(
    file: Arc<dyn File>,
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    tell: &mut dyn FnMut(Item<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut store = match Frozen::new(file).map_err(|e| StateError(e.to_string())).and_then(Store::open_frozen) {
        Ok(store) => store,
        Err(e) => return tell(Item::Damage(e.0)),
    };
    match store.mark() {
        Ok(None) => {}
        Ok(Some(mark)) => tell(Item::Mark(super::store::VERSION, mark.applied, &mark.tail))?,
        Err(e) => tell(Item::Damage(e.0))?,
    }
    let mut snapshot = match store.snapshot().and_then(|s| s.map(|s| s.raw_range(&range)).transpose()) {
        Ok(None) => return Ok(()),
        Ok(Some(rows)) => rows,
        Err(e) => return tell(Item::Damage(e.0)),
    };
    loop {
        // Copied under the guard: what a damaged page says of its own lengths is believed only there.
        let row = guard(|| match snapshot.next() {
            None => Ok(None),
            Some(Ok((key, value))) => Ok(Some((key.value().to_vec(), value.value().to_vec()))),
            Some(Err(e)) => Err(StateError(format!("read the state: {e}"))),
        });
        match row {
            Ok(None) => break,
            Ok(Some((key, stored))) => tell(Item::Row(&key, unseal(&key, &stored).map_err(|e| e.0)))?,
            // Behind it nothing can be found: the pages name each other.
            Err(e) => return tell(Item::Damage(e.0)),
        }
    }
    drop(snapshot);
    match store.check_pages() {
        Ok(()) => Ok(()),
        Err(e) => tell(Item::Damage(e.0)),
    }
}

/// A file under redb that keeps what redb writes to itself: opening a database after a crash repairs it.
pub(super) struct Frozen {
    file: Arc<dyn File>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    len: u64,
    /// Written blocks, by number.
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl std::fmt::Debug for Frozen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frozen({})", self.file.path().display())
    }
}

impl Frozen {
    fn new(file: Arc<dyn File>) -> io::Result<Self> {
        let len = file.len().map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Self { file, kept: Mutex::new(Kept { len, ..Kept::default() }) })
    }

    fn block(&self, kept: &Kept, n: u64) -> io::Result<Box<[u8; BLOCK]>> {
        if let Some(b) = kept.blocks.get(&n) {
            return Ok(b.clone());
        }
        let mut b = Box::new([0; BLOCK]);
        let stored = self.file.len().map_err(|e| io::Error::other(e.to_string()))?;
        if (n + 1) * BLOCK as u64 <= stored {
            b.copy_from_slice(&read_any(&*self.file, n * BLOCK as u64, BLOCK)?);
        }
        Ok(b)
    }
}

impl StorageBackend for Frozen {
    fn len(&self) -> io::Result<u64> {
        Ok(self.kept.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let kept = self.kept.lock();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > kept.len) {
            return Err(io::Error::other("a page beyond the end of the file"));
        }
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let lead = (at % BLOCK as u64) as usize;
            let n = (BLOCK - lead).min(out.len() - done);
            let block = self.block(&kept, at / BLOCK as u64)?;
            out[done..done + n].copy_from_slice(&block[lead..lead + n]);
            done += n;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut kept = self.kept.lock();
        kept.len = len;
        kept.blocks.retain(|n, _| n * (BLOCK as u64) < len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut kept = self.kept.lock();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (n, lead) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let len = (BLOCK - lead).min(data.len() - done);
            let mut block = self.block(&kept, n)?;
            block[lead..lead + len].copy_from_slice(&data[done..done + len]);
            kept.blocks.insert(n, block);
            done += len;
        }
        Ok(())
    }
}
