//! Putting a shard.

use super::index::{Entry, Key};
use super::osd::{Inner, wait_for};
use super::record::{KIND_SHARD, encode_shard};
use crate::log::{Append, Appended, Need};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_base::units::BLOCK;
use holdfast_objstore_proto::SessionId;
use holdfast_objstore_proto::shard::{Error, Result, ShardKey, ShardPut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::Notify;

/// Attempts of a put that finds the log full, each after room was made; others may take that room first.
const TRIES_MAX: usize = 64;

/// What stands in the way of a put.
enum Found {
    Held,
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
        for _ in 0..TRIES_MAX {
            match self.put_once(&put).await {
                Err(Error::Full { .. }) if self.make_room(put.data.len() as u64).await => {}
                other => return other,
            }
        }
        self.put_once(&put).await
    }

    async fn put_once(self: &Arc<Self>, put: &ShardPut) -> Result<()> {
        let key = put.head.key;
        let pending = loop {
            match self.look(key, put.head.session)? {
                Found::Nothing(pending) => break pending,
                Found::Held => match self.compare(put).await {
                    Err(Error::NotFound { .. }) => {}
                    compared => return compared,
                },
                Found::OnItsWay(waiters) => {
                    let still = || {
                        let st = self.state.lock();
                        let key = Key::from(key);
                        [st.pending.get(&key), st.moving.get(&key)].into_iter().flatten().any(|w| Arc::ptr_eq(w, &waiters))
                    };
                    wait_for(&waiters, still).await;
                }
            }
        };
        let need = if put.background { Need::Background } else { Need::Ordinary };
        let (meta, crcs) = (encode_shard(&put.head).into(), Some(put.crcs.clone()));
        let append = Append { kind: KIND_SHARD, meta, payload: put.data.clone(), crcs, need };
        let (this, fenced) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let (late, session) = (fenced.clone(), put.head.session);
        let appended = self.log.append_then(append, move |appended| {
            late.store(!this.indexed(key, session, appended), Relaxed);
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

    fn look(self: &Arc<Self>, shard: ShardKey, session: SessionId) -> Result<Found> {
        let key = Key::from(shard);
        let mut st = self.state.lock();
        if self.refuses(&st.index, shard.stripe, session) {
            failpoint::reached("osd.put_fenced");
            return Err(Error::Fenced { osd: self.id(), key: shard });
        }
        if let Some(waiters) = st.pending.get(&key).or_else(|| st.moving.get(&key).filter(|_| st.corrupt.contains(&key))) {
            return Ok(Found::OnItsWay(waiters.clone()));
        }
        if st.index.shards.contains_key(&key) && !st.corrupt.contains(&key) {
            return Ok(Found::Held);
        }
        st.pending.insert(key, Arc::new(Notify::new()));
        Ok(Found::Nothing(Pending { inner: self.clone(), key }))
    }

    /// The device has the shard: it is readable from now on. False when its range was fenced meanwhile.
    fn indexed(&self, shard: ShardKey, session: SessionId, appended: Appended) -> bool {
        let entry = Entry::new(&appended.location).expect("its length was checked");
        let mut st = self.state.lock();
        st.keeping.appended(&appended.location);
        if self.refuses(&st.index, shard.stripe, session) {
            return false;
        }
        let key = Key::from(shard);
        st.index.insert(key, entry);
        st.corrupt.remove(&key);
        true
    }

    /// A shard that is held is put again: the same one, or not. `NotFound` when it was deleted meanwhile.
    async fn compare(self: &Arc<Self>, put: &ShardPut) -> Result<()> {
        let held = self.get(put.head.key, 0, 0).await?.head;
        if held.digest == put.head.digest {
            return Ok(());
        }
        failpoint::reached("osd.put_other_digest");
        Err(self.corrupt(put.head.key, format!("a shard of another digest is held ({:016x}, put {:016x})", held.digest, put.head.digest)))
    }

    pub(super) fn corrupt(&self, key: ShardKey, why: String) -> Error {
        Error::Corrupt { osd: self.id(), key, why }
    }
}
