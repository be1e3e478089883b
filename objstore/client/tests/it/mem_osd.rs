//! An OSD in memory with faults on order, for tests of the cluster.
//!
//! What always holds: it checks what it is given (whole aligned blocks, right checksums), and counts what it is asked.

use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_base::buf::is_aligned;
use holdfast_objstore_base::checksum::block_crcs;
use holdfast_objstore_proto::shard::{Error, OsdSpace, Result, ShardHead, ShardKey, ShardPut, ShardRead, ShardService};
use holdfast_objstore_proto::{OsdId, StripeId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
pub struct State {
    pub shards: BTreeMap<ShardKey, (ShardHead, Bytes)>,
    pub stable: HashSet<ShardKey>,
    /// Out of service, and says so.
    pub down: bool,
    /// Fails every call, but does not say that it is out of service.
    pub sick: bool,
    /// Refuses puts as full, but reports free space.
    pub full: bool,
    pub fail_flush: bool,
    /// Refuses deletes as full.
    pub full_for_deletes: bool,
    /// Errors for the next puts.
    pub fail_puts: VecDeque<Error>,
    pub corrupt: HashSet<ShardKey>,
    pub put_takes: Duration,
    pub get_takes: Duration,
    pub flush_takes: Duration,
    /// Cleaning is behind: it has made so many steps, and who paces waits.
    pub cleaning: Option<u64>,
    pub free: u64,
    pub total: u64,
    pub puts: u64,
    pub put_bytes: u64,
    pub gets: u64,
    pub get_bytes: u64,
    pub flushes: u64,
    pub deletes: u64,
}

pub struct MemOsd {
    id: OsdId,
    domain: u64,
    pub state: Mutex<State>,
}

impl MemOsd {
    pub fn new(id: u16, domain: u64) -> Arc<MemOsd> {
        let state = State { free: 10 << 30, total: 10 << 30, ..State::default() };
        Arc::new(MemOsd { id: OsdId(id), domain, state: Mutex::new(state) })
    }

    fn down(&self) -> Error {
        Error::Down { osd: self.id, why: "the test says so".into() }
    }

    fn served(&self) -> Result<()> {
        let s = self.state.lock();
        if s.down || s.sick { Err(self.down()) } else { Ok(()) }
    }

    async fn wait(&self, takes: Duration) {
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
    }

    /// Makes one bit of a shard wrong in a way that checksums show.
    pub fn corrupt(&self, key: ShardKey) {
        self.state.lock().corrupt.insert(key);
    }

    pub fn holds(&self, key: ShardKey) -> bool {
        self.state.lock().shards.contains_key(&key)
    }
}

impl ShardService for MemOsd {
    fn osd(&self) -> OsdId {
        self.id
    }

    fn put(&self, put: ShardPut) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            assert!(is_aligned(&put.data) && !put.data.is_empty());
            assert_eq!(*put.crcs, *block_crcs(&put.data));
            let takes = {
                let mut s = self.state.lock();
                s.puts += 1;
                s.put_bytes += put.data.len() as u64;
                s.put_takes
            };
            self.wait(takes).await;
            self.served()?;
            let mut s = self.state.lock();
            if let Some(error) = s.fail_puts.pop_front() {
                return Err(error);
            }
            if s.full {
                return Err(Error::Full { osd: self.id });
            }
            let key = put.head.key;
            if s.corrupt.remove(&key) {
                s.shards.remove(&key);
            }
            match s.shards.get(&key) {
                Some((head, _)) if head.digest == put.head.digest => Ok(()),
                Some(_) => Err(Error::Corrupt { osd: self.id, key, why: "held under another digest".into() }),
                None => {
                    s.free = s.free.saturating_sub(put.data.len() as u64);
                    s.shards.insert(key, (put.head, put.data));
                    Ok(())
                }
            }
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (held, takes): (Vec<_>, _) = {
                let mut s = self.state.lock();
                s.flushes += 1;
                (s.shards.keys().copied().collect(), s.flush_takes)
            };
            self.wait(takes).await;
            self.served()?;
            let mut s = self.state.lock();
            if s.fail_flush {
                s.down = true;
                return Err(self.down());
            }
            s.stable.extend(held);
            Ok(())
        })
    }

    fn get(&self, key: ShardKey, offset: u32, len: u32) -> BoxFuture<'_, Result<ShardRead>> {
        Box::pin(async move {
            let takes = {
                let mut s = self.state.lock();
                s.gets += 1;
                s.get_bytes += len as u64;
                s.get_takes
            };
            self.wait(takes).await;
            self.served()?;
            let s = self.state.lock();
            let Some((head, data)) = s.shards.get(&key) else {
                return Err(Error::NotFound { osd: self.id, key });
            };
            if s.corrupt.contains(&key) {
                return Err(Error::Corrupt { osd: self.id, key, why: "the test says so".into() });
            }
            Ok(ShardRead { head: *head, data: data.slice(offset as usize..(offset + len) as usize) })
        })
    }

    fn head(&self, key: ShardKey) -> BoxFuture<'_, Result<ShardHead>> {
        Box::pin(async move {
            self.served()?;
            let held = self.state.lock().shards.get(&key).map(|(head, _)| *head);
            held.ok_or(Error::NotFound { osd: self.id, key })
        })
    }

    fn delete(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.served()?;
            let mut s = self.state.lock();
            if s.full_for_deletes {
                return Err(Error::Full { osd: self.id });
            }
            s.deletes += 1;
            s.shards.retain(|key, _| !stripes.contains(&key.stripe));
            Ok(())
        })
    }

    fn drop_shards(&self, keys: Vec<ShardKey>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.served()?;
            let mut s = self.state.lock();
            for key in keys {
                s.shards.remove(&key);
                s.corrupt.remove(&key);
            }
            Ok(())
        })
    }

    fn list(&self, after: Option<ShardKey>, limit: usize) -> BoxFuture<'_, Result<Vec<ShardKey>>> {
        Box::pin(async move {
            self.served()?;
            let s = self.state.lock();
            Ok(s.shards.keys().filter(|k| after.is_none_or(|a| **k > a)).take(limit).copied().collect())
        })
    }

    fn space(&self) -> OsdSpace {
        let s = self.state.lock();
        OsdSpace {
            total: s.total,
            live: s.total - s.free,
            used: s.total - s.free,
            free: s.free,
            free_own: s.free,
            debt: s.cleaning.is_some() as u64,
        }
    }
    fn pace(&self, _: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while self.state.lock().cleaning.is_some() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
    fn steps(&self) -> u64 {
        self.state.lock().cleaning.unwrap_or(0)
    }

    fn failure(&self) -> Option<String> {
        self.state.lock().down.then(|| "the test says so".to_string())
    }

    fn domain(&self) -> u64 {
        self.domain
    }
}
