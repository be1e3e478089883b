//! Putting a shard.

use super::index::{Entry, Key};
use super::osd::Inner;
use super::record::{KIND_SHARD, encode_shard};
use crate::log::{Append, Appended};
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_proto::shard::{Error, Result, ShardKey, ShardPut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::Notify;

/// What stands in the way of a put.
enum Found {
    Held(Entry),
    OnItsWay(Arc<Notify>),
    Nothing(Pending),
}

/// The right to append a key: others that put it wait. Dropping it lets them go on.
struct Pending {
    inner: Arc<Inner>,
    key: Key,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let waiters = self.inner.state.lock().pending.remove(&self.key);
        if let Some(waiters) = waiters {
            waiters.notify_waiters();
        }
    }
}

impl Inner {
    pub(super) async fn put(self: &Arc<Self>, put: ShardPut) -> Result<()> {
        let key = put.head.key;
        self.alive()?;
        let blocks = put.data.len() / BLOCK;
        if put.data.is_empty() || !put.data.len().is_multiple_of(BLOCK) || put.crcs.len() != blocks || blocks > u16::MAX as usize {
            return Err(self.corrupt(key, format!("{} bytes with {} checksums are no shard", put.data.len(), put.crcs.len())));
        }
        let mut again = true;
        loop {
            match self.put_once(&put).await {
                Err(Error::Full { .. }) if again && self.make_room().await => again = false,
                other => return other,
            }
        }
    }

    async fn put_once(self: &Arc<Self>, put: &ShardPut) -> Result<()> {
        let key = put.head.key;
        let pending = loop {
            match self.look(key)? {
                Found::Nothing(pending) => break pending,
                Found::Held(entry) => return self.compare(put, entry).await,
                Found::OnItsWay(waiters) => {
                    let mut done = std::pin::pin!(waiters.notified());
                    done.as_mut().enable();
                    // It may have ended before the wait began.
                    let still = self.state.lock().pending.get(&key.into()).is_some_and(|w| Arc::ptr_eq(w, &waiters));
                    if still {
                        done.await;
                    }
                }
            }
        };
        let append = Append::new(KIND_SHARD, encode_shard(&put.head)).payload(put.data.clone()).crcs(put.crcs.clone());
        let (this, fenced) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let late = fenced.clone();
        let appended = self.log.append_then(append, move |appended| {
            late.store(!this.indexed(key, appended), Relaxed);
            drop(pending);
        });
        appended.await.map_err(|e| self.refused(e))?;
        if fenced.load(Relaxed) {
            return Err(Error::Fenced { osd: self.id(), key });
        }
        self.metrics.puts.inc();
        self.metrics.put_bytes.inc_by(put.data.len() as u64);
        self.housekeep();
        Ok(())
    }

    fn look(self: &Arc<Self>, shard: ShardKey) -> Result<Found> {
        let key = Key::from(shard);
        let mut st = self.state.lock();
        if st.index.fenced(shard.stripe) {
            return Err(Error::Fenced { osd: self.id(), key: shard });
        }
        if let Some(waiters) = st.pending.get(&key) {
            return Ok(Found::OnItsWay(waiters.clone()));
        }
        if let Some(entry) = st.index.shards.get(&key)
            && !st.corrupt.contains(&key)
        {
            return Ok(Found::Held(*entry));
        }
        st.pending.insert(key, Arc::new(Notify::new()));
        Ok(Found::Nothing(Pending { inner: self.clone(), key }))
    }

    /// The device has the shard: it is readable from now on. False when its range was fenced meanwhile.
    fn indexed(&self, shard: ShardKey, appended: Appended) -> bool {
        let entry = Entry::new(&appended.location).expect("its length was checked");
        let mut st = self.state.lock();
        st.keeping.appended(&appended.location);
        if st.index.fenced(shard.stripe) {
            return false;
        }
        let key = Key::from(shard);
        st.index.insert(key, entry);
        st.corrupt.remove(&key);
        true
    }

    /// A shard that is held is put again: the same one, or not.
    async fn compare(self: &Arc<Self>, put: &ShardPut, entry: Entry) -> Result<()> {
        let held = self.head_of(put.head.key, entry).await?;
        if held.digest == put.head.digest {
            return Ok(());
        }
        Err(self.corrupt(put.head.key, format!("a shard of another digest is held ({:016x}, put {:016x})", held.digest, put.head.digest)))
    }

    pub(super) fn corrupt(&self, key: ShardKey, why: String) -> Error {
        Error::Corrupt { osd: self.id(), key, why }
    }
}
