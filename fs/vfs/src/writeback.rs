//! From dirty runs and direct payloads to stripes on devices.
//!
//! What always holds: bytes on their way stay readable until they have landed or failed; a flight ends exactly once, also when its future is dropped;
//! nothing here charges the budget.
//! What it leaves out: making stripes stable and reachable (publish).

use crate::budget::DirtyCharge;
use crate::error;
use crate::inode::{Inode, State};
use crate::pages::Frozen;
use crate::pending::{Piece, whole};
use crate::session::Session;
use crate::types::{Error, Result};
use crate::vfs::Vfs;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use holdfast_objstore_base::failpoint;
use holdfast_objstore_client as objects;
use holdfast_objstore_client::StripeWrite;
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::meta::CHUNK_BYTES;
use holdfast_objstore_proto::shard::Hint;
use holdfast_objstore_proto::stripe::STRIPE_BYTES_MAX;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Runs of at least this are stripes of their own, handed on without a copy; smaller ones share a stripe.
const OWN_STRIPE_BYTES: usize = 1 << 20;
/// Runs in one stripe: bounds the extents one landing brings.
const PACK_RUNS_MAX: usize = 1024;
/// Between tries while too few OSDs are in service.
const RETRY: Duration = Duration::from_millis(100);

/// A stripe that has departed and is to be written. Dropped before it landed, wherever that is, its flight ends as failed: nobody waits for it for
/// ever, and lost data that a write has acknowledged is an error of the handles. Not to be dropped under the inode's lock.
pub(crate) struct Departed {
    inode: Arc<Inode>,
    seq: u64,
    landed: bool,
    /// The loss is to be recorded.
    buffered: bool,
    /// Data of the stripe, in order.
    data: Vec<Bytes>,
    chunk: u32,
    /// It is to travel in the Publish: there is nothing to write.
    pub inline: bool,
}

impl State {
    /// Puts dirty runs in the air, packed into stripes.
    pub(crate) fn depart_runs(&mut self, inode: &Arc<Inode>, runs: Vec<Frozen>) -> Vec<Departed> {
        let mut out = Vec::new();
        let mut pack: (SmallVec<[Piece; 1]>, Vec<DirtyCharge>, u32) = Default::default();
        for run in runs {
            let len = run.data.len();
            if len >= OWN_STRIPE_BYTES {
                out.push(self.depart(inode, whole(run.offset, run.data), run.charge.into_iter().collect(), true));
                continue;
            }
            if pack.2 as usize + len > STRIPE_BYTES_MAX as usize || pack.0.len() == PACK_RUNS_MAX {
                let (pieces, charges, _) = std::mem::take(&mut pack);
                out.push(self.depart(inode, pieces, charges, true));
            }
            pack.0.push(Piece { offset: run.offset, data: run.data, stripe_offset: pack.2 });
            pack.1.extend(run.charge);
            pack.2 += len as u32;
        }
        if !pack.0.is_empty() {
            out.push(self.depart(inode, pack.0, pack.1, true));
        }
        out
    }

    pub(crate) fn depart(
        &mut self,
        inode: &Arc<Inode>,
        pieces: SmallVec<[Piece; 1]>,
        charges: Vec<DirtyCharge>,
        buffered: bool,
    ) -> Departed {
        let data = pieces.iter().map(|p| p.data.clone()).collect();
        let chunk = (pieces[0].offset / CHUNK_BYTES) as u32;
        let seq = self.unpublished.depart(pieces, charges, buffered);
        Departed { inode: inode.clone(), seq, landed: false, buffered, data, chunk, inline: false }
    }
}

impl Drop for Departed {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        let mut st = self.inode.state.lock();
        // What an eviction took has been recorded with it.
        if st.unpublished.fail(self.seq) && self.buffered {
            failpoint::reached("vfs.writeback_dropped");
            tracing::warn!(inode = %self.inode.ino, "written data is lost with the operation that wrote it back");
            st.errors.record(Error::Io);
        }
        drop(st);
        self.inode.changed.notify_waiters();
    }
}

/// A flight of an operation that may be dropped half way: it goes on in the background then.
struct Kept {
    vfs: Arc<Vfs>,
    session: Arc<Session>,
    departed: Option<Departed>,
}

impl Kept {
    async fn fly(mut self) {
        let d = self.departed.as_mut().expect("taken below");
        self.vfs.fly_buffered(&self.session, d).await;
        self.departed = None;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.vfs.launch(&self.session, self.departed.take().into_iter().collect());
    }
}

impl Vfs {
    /// Writes one stripe; waits, up to the configured time, while too few OSDs are in service.
    pub(crate) async fn put_stripe(&self, s: &Session, inode: &Inode, data: Vec<Bytes>, chunk: u32) -> Result<Arc<StripeMeta>> {
        let deadline = self.clock.boot_ns().saturating_add(self.config.unavailable_wait.as_nanos() as u64);
        let hint = Hint { bucket: self.bucket.id.0, inode: inode.ino, chunk };
        let mut full = self.room_wait();
        loop {
            let id = s.ids.stripe().await.map_err(|e| self.meta_error(s, e))?;
            let write =
                StripeWrite { id, code: self.bucket.code, data: data.clone(), session: s.id, epoch: s.epoch, hint, background: false };
            match self.objects.write(write).await {
                Ok(meta) => {
                    self.metrics().vfs_stripes_written.inc();
                    return Ok(meta);
                }
                Err(objects::Error::Unavailable { .. }) if !s.is_over() && self.clock.boot_ns() < deadline => {
                    failpoint::reached("vfs.write_unavailable");
                    // Waiting for OSDs is no reason to lose everything to a recall that has a deadline of its own.
                    s.meta.progress(inode.ino);
                    tokio::time::sleep(RETRY).await
                }
                Err(objects::Error::Full) if self.room_may_come(s, inode, &mut full).await => {}
                Err(e) => return Err(error::from_objects(e)),
            }
        }
    }

    /// Flies a departed stripe to its landing; `landed` runs in the same critical section, with the end of what was left of it. The error is
    /// the caller's to record.
    pub(crate) async fn fly(&self, s: &Session, d: &mut Departed, landed: impl FnOnce(&mut State, Option<u64>)) -> Result<()> {
        let inode = d.inode.clone();
        let (stripe, inline) = match d.inline {
            true => self.inline_stripe(s, &d.data).await.map(|(stripe, data)| (stripe, Some(data)))?,
            false => (self.put_stripe(s, &inode, d.data.clone(), d.chunk).await?, None),
        };
        let mut st = inode.state.lock();
        if !self.is_current(s) {
            drop(st);
            self.bury(vec![stripe]);
            return Err(Error::Io);
        }
        d.landed = true;
        let end = st.unpublished.land(d.seq, stripe, inline);
        landed(&mut st, end);
        let recalled = !st.lease.may_cache();
        drop(st);
        if recalled {
            s.meta.progress(inode.ino);
        }
        inode.changed.notify_waiters();
        Ok(())
    }

    /// Flies buffered data: what fails is dropped, and recorded for the handles.
    async fn fly_buffered(&self, s: &Session, d: &mut Departed) {
        let _permit = self.flights.acquire().await;
        if let Err(e) = self.fly(s, d, |_, _| {}).await {
            // First the error, then the end of the flight: who waits for it looks for errors then.
            self.record_error(s, &d.inode, e);
            d.buffered = false;
        }
    }

    /// Records that written data is lost; what one eviction takes counts once.
    pub(crate) fn record_error(&self, s: &Session, inode: &Inode, e: Error) {
        let mut st = inode.state.lock();
        if s.is_over() && st.lost_with.replace(s.generation) == Some(s.generation) {
            return;
        }
        failpoint::reached("vfs.write_lost");
        tracing::warn!(inode = %inode.ino, error = %e, "written data is lost");
        self.metrics().vfs_write_errors.inc();
        st.errors.record(e);
    }

    /// Flies in the background.
    pub(crate) fn launch(&self, s: &Arc<Session>, departed: Vec<Departed>) {
        for mut d in departed {
            let Some(me) = self.me.upgrade() else { return };
            let s = s.clone();
            self.runtime.spawn(async move { me.fly_buffered(&s, &mut d).await });
        }
    }

    /// Flies here and now, several at once.
    async fn fly_all(&self, s: &Arc<Session>, departed: Vec<Departed>) {
        let Some(me) = self.me.upgrade() else { return };
        let keep = |d| Kept { vfs: me.clone(), session: s.clone(), departed: Some(d) };
        let mut kept: Vec<Kept> = departed.into_iter().map(keep).collect();
        match kept.len() {
            0 => (),
            1 => kept.remove(0).fly().await,
            _ => {
                let flights = kept.into_iter().map(Kept::fly);
                stream::iter(flights).buffer_unordered(self.config.stripes_in_flight_max).collect::<Vec<()>>().await;
            }
        }
    }

    /// Starts writing everything dirty, because the budget is tight. Costs what has become dirty since the last time.
    pub(crate) fn press(&self) {
        let s = self.session.lock().clone();
        let dirty = std::mem::take(&mut *self.pressable.lock());
        for inode in dirty {
            let departed = {
                let mut st = inode.state.lock();
                st.pressable = false;
                let runs = st.pages.take_all();
                st.depart_runs(&inode, runs)
            };
            self.launch(&s, departed);
        }
    }

    /// Remembers that the inode has dirty pages; with its lock held.
    pub(crate) fn pressable(&self, inode: &Arc<Inode>, st: &mut State) {
        if !std::mem::replace(&mut st.pressable, true) {
            self.pressable.lock().push(inode.clone());
        }
    }

    /// Drops from that list what has been written since.
    pub(crate) fn forget_pressable(&self) {
        let listed = std::mem::take(&mut *self.pressable.lock());
        for inode in listed {
            let mut st = inode.state.lock();
            st.pressable = !st.pages.is_empty();
            if st.pressable {
                self.pressable.lock().push(inode.clone());
            }
        }
    }

    /// Remembers that the inode has something unpublished; with its lock held.
    pub(crate) fn touch(&self, inode: &Arc<Inode>, st: &mut State) {
        st.unpublished_since.get_or_insert_with(|| self.clock.boot_ns());
        if !st.active {
            st.active = true;
            self.active.lock().insert(inode.ino, inode.clone());
        }
    }

    /// Makes all of an inode durable and reachable: what was written before the call is published when it returns.
    ///
    /// Errors are recorded for the inode's handles as well, so a caller with a handle reports the handle's.
    pub(crate) async fn sync_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let s = self.session().await?;
        self.sync_inode_in(&s, inode).await
    }

    /// The same with one session: when it is over, what is there is the next one's and stays.
    pub(crate) async fn sync_inode_in(&self, s: &Arc<Session>, inode: &Arc<Inode>) -> Result<()> {
        let (departed, mark, errors) = {
            let mut st = inode.state.lock();
            if st.is_clean() {
                return Ok(());
            }
            if !self.is_current(s) {
                return Err(Error::Io);
            }
            let runs = st.pages.take_all();
            st.unpublished_since = None;
            let inline = self.may_inline(s, &st, runs.iter().map(|r| r.data.len()).sum());
            let mut departed = st.depart_runs(inode, runs);
            departed.iter_mut().for_each(|d| d.inline = inline);
            (departed, st.unpublished.mark(), st.errors.seq)
        };
        self.fly_all(s, departed).await;
        inode.until(|st| st.unpublished.landed_before(mark).then_some(())).await;
        self.publish(s, inode).await?;
        let st = inode.state.lock();
        if st.errors.seq > errors { Err(st.errors.last()) } else { Ok(()) }
    }

    /// Publishes what has landed, so that what is pending stays bounded; the handles hear of failures.
    pub(crate) async fn publish_pending(&self, inode: &Arc<Inode>) {
        let Ok(s) = self.session().await else { return };
        let _ = self.publish(&s, inode).await;
        self.bury_dead(inode);
    }

    /// Has superseded stripes deleted.
    pub(crate) fn bury_dead(&self, inode: &Inode) {
        self.bury(inode.state.lock().unpublished.take_dead());
    }

    /// The clockwork's sync, one at a time per inode; also deletes superseded stripes.
    pub(crate) async fn sync_in_background(&self, inode: &Arc<Inode>) {
        if std::mem::replace(&mut inode.state.lock().syncing, true) {
            return;
        }
        let _ = self.sync_inode(inode).await;
        let forgotten = {
            let mut st = inode.state.lock();
            st.syncing = false;
            st.lookups == 0 && st.opens == 0
        };
        self.bury_dead(inode);
        if forgotten {
            self.reap(inode);
        }
    }
}
