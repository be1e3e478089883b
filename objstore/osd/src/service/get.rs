//! Reading shards and their heads.

use super::index::{Entry, Key};
use super::osd::{CORRUPT_MAX, Inner};
use super::record::{KIND_COPY, KIND_SHARD, decode_shard};
use crate::log;
use crate::log::format::head::Head;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::shard::{Error, Result, ShardHead, ShardKey, ShardRead};
use std::sync::atomic::Ordering::Relaxed;

impl Inner {
    pub(super) async fn get(&self, key: ShardKey, offset: u32, len: u32) -> Result<ShardRead> {
        loop {
            self.alive()?;
            let entry = self.state.lock().index.shards.get(&Key::from(key)).copied();
            let entry = entry.ok_or(Error::NotFound { osd: self.id(), key })?;
            let at = entry.location();
            if offset.checked_add(len).is_none_or(|end| end > at.payload_bytes) {
                return Err(self.corrupt(key, format!("it has {} bytes; {len} from {offset} were asked for", at.payload_bytes)));
            }
            match self.log.read_with_head(&at, offset, len).await {
                Ok((head, data)) => {
                    self.read_errors.store(0, Relaxed);
                    let head = self.check(key, &head)?;
                    self.metrics.gets.inc();
                    self.metrics.get_bytes.inc_by(len as u64);
                    return Ok(ShardRead { head, data });
                }
                // Deleted and its segment retired since the look-up: look again.
                Err(log::Error::Gone(_)) if self.moved(key, entry) => {}
                Err(e) => return Err(self.unreadable(key, e)),
            }
        }
    }

    /// The head of a shard from the device, whatever is cached; `whole`: verified with all its blocks.
    pub(super) async fn fresh(&self, key: ShardKey, whole: bool) -> Result<ShardHead> {
        loop {
            self.alive()?;
            let entry = self.state.lock().index.shards.get(&Key::from(key)).copied();
            let entry = entry.ok_or(Error::NotFound { osd: self.id(), key })?;
            let at = entry.location();
            match if whole { self.log.verify(&at).await } else { self.log.reread_head(&at).await } {
                Ok(head) => {
                    self.read_errors.store(0, Relaxed);
                    return self.check(key, &head);
                }
                Err(log::Error::Gone(_)) if self.moved(key, entry) => {}
                Err(e) => return Err(self.unreadable(key, e)),
            }
        }
    }

    fn moved(&self, key: ShardKey, entry: Entry) -> bool {
        self.state.lock().index.shards.get(&Key::from(key)) != Some(&entry)
    }

    /// The record must be the shard asked for: an index that points elsewhere answers nothing wrong.
    pub(super) fn check(&self, key: ShardKey, head: &Head) -> Result<ShardHead> {
        match decode_shard(&head.meta) {
            Ok(shard) if matches!(head.kind, KIND_SHARD | KIND_COPY) && shard.key == key => Ok(shard),
            Ok(shard) => Err(self.found_corrupt(key, format!("shard {} lies in its place", shard.key))),
            Err(bad) => Err(self.found_corrupt(key, bad.to_string())),
        }
    }

    pub(super) fn unreadable(&self, key: ShardKey, e: log::Error) -> Error {
        match e {
            log::Error::Corrupt { .. } => {
                failpoint::reached("osd.read_corrupt");
                self.found_corrupt(key, e.to_string())
            }
            log::Error::Io(_) => {
                failpoint::reached("osd.read_failed");
                let failed = self.read_errors.fetch_add(1, Relaxed) + 1;
                if failed >= self.config.read_errors_max {
                    failpoint::reached("osd.read_errors_max");
                    let why = format!("{failed} reads in a row failed, the last with: {e}");
                    self.state.lock().failure.get_or_insert(why.clone());
                    return self.down(why);
                }
                self.found_corrupt(key, e.to_string())
            }
            e => self.down(e.to_string()),
        }
    }

    fn found_corrupt(&self, key: ShardKey, why: String) -> Error {
        let mut st = self.state.lock();
        if st.corrupt.len() < CORRUPT_MAX {
            st.corrupt.insert(key.into());
        }
        self.corrupt(key, why)
    }
}
