//! write: buffered, direct, or through.
//!
//! What always holds: the budget is charged before any lock; the grant is checked in the same critical section that takes the data in; an append's
//! offset is chosen there too, whatever the kernel guessed.

use crate::acquire::Mode;
use crate::garbage::Unnamed;
use crate::handle::Handle;
use crate::inode::{Inode, State};
use crate::pending::whole;
use crate::publish::refused;
use crate::session::unexpected;
use crate::types::{Error, Result, WriteArgs};
use crate::vfs::Vfs;
use bytes::Bytes;
use holdfast_meta_client::{MetaError, Use};
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::meta::{CHUNK_BYTES, Command, Extent, Inline, Publish, Reply};
use holdfast_objstore_proto::stripe::{INLINE_BYTES_MAX, STRIPE_BYTES_MAX};
use std::sync::Arc;

/// The highest offset a file can have data at: chunk numbers are 32 bits, and `off_t` is signed.
pub(crate) const FILE_BYTES_MAX: u64 = (u32::MAX as u64) * CHUNK_BYTES;
/// Tries to publish a write against others who publish to the same file.
const THROUGH_TRIES: usize = 1000;

impl Vfs {
    /// Writes all of `data` and answers its length. Errors of earlier background writes come first, once.
    pub async fn write(&self, a: WriteArgs) -> Result<u32> {
        self.metrics().vfs_ops.inc();
        let handle = match self.handle(a.handle) {
            // The kernel's write-back takes whichever handle it finds, or none.
            Err(_) | Ok(_) if a.from_cache => None,
            handle => Some(handle?),
        };
        let inode = match &handle {
            Some(h) => &h.inode,
            None => &self.inode(a.node)?,
        };
        if let Some(h) = &handle {
            if !h.writable() {
                return Err(Error::BadHandle);
            }
            h.check()?;
            inode.until(|st| (st.gate.is_none() && st.write_gate.is_none()).then_some(())).await;
        }
        let len = u32::try_from(a.data.len()).map_err(|_| Error::Invalid)?;
        if len == 0 {
            return Ok(0);
        }
        let append = handle.as_ref().is_some_and(|h| h.appends());
        if !append && a.offset.saturating_add(len as u64) > FILE_BYTES_MAX {
            return Err(Error::FileTooLarge);
        }
        let offset = (!append).then_some(a.offset);
        // A direct write that a sync is known to follow is made durable at once, by one flush of the log, and the sync has nothing left to do.
        let followed = handle.as_ref().is_some_and(|h| h.writes()) && a.direct && a.data.len() <= INLINE_BYTES_MAX;
        let synced = a.sync || handle.as_ref().is_some_and(|h| h.syncs());
        loop {
            let recalled = !a.from_cache && inode.state.lock().lease.writes_through();
            if recalled {
                // What mappings have dirtied is older.
                self.sync_inode(inode).await?;
            }
            if recalled || matches!(self.hold(inode, Use::Write).await?, Mode::Through(_)) {
                if !self.write_through(inode, offset, &a.data, a.kill_suidgid).await? {
                    continue;
                }
                if handle.as_ref().is_none_or(|h| h.is_cached()) {
                    self.uncache(inode, 0, 0);
                }
                break;
            }
            let taken = match a.direct && !a.from_cache {
                true => self.write_direct(inode, offset, &a, synced || followed).await?,
                false => self.write_buffered(inode, offset, &a).await?,
            };
            if !taken {
                // Perhaps a recall that has not reached this side yet.
                tokio::task::yield_now().await;
                continue;
            }
            match &handle {
                Some(h) if synced || followed => self.sync_for(h).await?,
                _ => self.bound_pending(inode).await,
            }
            break;
        }
        self.metrics().vfs_written.inc_by(len as u64);
        Ok(len)
    }

    /// Durable and published, with the handle's own errors.
    pub(crate) async fn sync_for(&self, handle: &Handle) -> Result<()> {
        let synced = self.sync_inode(&handle.inode).await;
        handle.check()?;
        synced
    }

    /// Into dirty pages. False: the grant went away, begin again.
    async fn write_buffered(&self, inode: &Arc<Inode>, offset: Option<u64>, a: &WriteArgs) -> Result<bool> {
        let mut charge = None;
        let mut charged = 0;
        loop {
            if !a.from_cache {
                self.bound_dirty(inode).await;
            }
            let need = {
                let mut guard = inode.state.lock();
                let st = &mut *guard;
                if !(st.lease.may_buffer() || a.from_cache && st.lease.is_held()) {
                    return Ok(false);
                }
                let at = offset.unwrap_or_else(|| st.append_offset());
                if at.saturating_add(a.data.len() as u64) > FILE_BYTES_MAX {
                    return Err(Error::FileTooLarge);
                }
                let plan = st.pages.plan(at, a.data.len());
                if plan.charge_bytes <= charged {
                    let end = at + a.data.len() as u64;
                    let copied = st.pages.apply(plan, &a.data, charge.take());
                    self.metrics().vfs_copied.inc_by(copied);
                    st.wrote(end, self.now(), a.kill_suidgid);
                    if !a.from_cache {
                        st.kept_meanwhile(&(at..end));
                    }
                    st.reserved_end = st.reserved_end.max(end);
                    self.touch(inode, st);
                    self.pressable(inode, st);
                    let filled = st.pages.take_filled(at..end);
                    let departed = st.depart_runs(inode, filled);
                    drop(guard);
                    if !departed.is_empty() {
                        let s = self.session.lock().clone();
                        self.launch(&s, departed);
                    }
                    return Ok(true);
                }
                plan.charge_bytes
            };
            // Give back before waiting: two writers that each hold a part would wait for each other.
            drop(charge.take());
            charge = match self.budget.try_charge(need) {
                Some(c) => Some(c),
                None => {
                    self.metrics().vfs_budget_waits.inc();
                    self.press();
                    Some(self.budget.charge(need, || self.objects.drop_caches()).await)
                }
            };
            charged = need;
        }
    }

    /// Straight to the devices; a small one that is `synced` before the reply may travel in its Publish instead. False: the grant went away, begin
    /// again.
    async fn write_direct(&self, inode: &Arc<Inode>, offset: Option<u64>, a: &WriteArgs, synced: bool) -> Result<bool> {
        let s = self.session().await?;
        let mut at = None;
        let mut from = 0;
        // The kernel sends at most 1 MiB: one turn. Larger writes take several, in order.
        while from < a.data.len() {
            let data = a.data.slice(from..a.data.len().min(from + STRIPE_BYTES_MAX as usize));
            let len = data.len() as u64;
            let (mut departed, below) = {
                let mut guard = inode.state.lock();
                let st = &mut *guard;
                if !st.lease.may_buffer() {
                    return if from == 0 { Ok(false) } else { Err(Error::Io) };
                }
                let start = *at.get_or_insert_with(|| offset.unwrap_or_else(|| st.append_offset()));
                let range = start + from as u64..start + from as u64 + len;
                if range.end > FILE_BYTES_MAX {
                    return Err(Error::FileTooLarge);
                }
                st.reserved_end = st.reserved_end.max(range.end);
                // What is dirty there is older: it departs first, so that this write lies over it.
                let below = st.pages.take_overlapping(range.clone());
                let below = st.depart_runs(inode, below);
                self.touch(inode, st);
                let inline = synced && self.may_inline(&s, st, data.len());
                let mut departed = st.depart(inode, whole(range.start, data), Vec::new(), false);
                departed.inline = inline;
                (departed, below)
            };
            self.launch(&s, below);
            let landed = |st: &mut State, end: Option<u64>| st.wrote(end.unwrap_or(0), self.now(), a.kill_suidgid);
            match self.fly(&s, &mut departed, landed).await {
                Ok(()) => (),
                Err(e) => {
                    let mut st = inode.state.lock();
                    // An append that failed gives its place back if it was the last.
                    if st.reserved_end == at.unwrap_or(0) + from as u64 + len {
                        st.reserved_end = at.unwrap_or(0) + from as u64;
                    }
                    return Err(e);
                }
            }
            from += len as usize;
        }
        Ok(true)
    }

    /// Waits while one inode has too much unwritten, so that its recall stays short.
    async fn bound_dirty(&self, inode: &Arc<Inode>) {
        let max = self.config.inode_dirty_bytes_max;
        let over = |st: &State| st.pages.bytes() + st.unpublished.buffered_bytes > max;
        let departed = {
            let mut st = inode.state.lock();
            if !over(&st) {
                return;
            }
            let runs = st.pages.take_all();
            st.depart_runs(inode, runs)
        };
        self.metrics().vfs_inode_waits.inc();
        let s = self.session.lock().clone();
        self.launch(&s, departed);
        inode.until(|st| (!over(st) || st.unpublished.in_flight() == 0).then_some(())).await;
    }

    /// Starts a publish when much is pending, and waits for it when there is far too much.
    async fn bound_pending(&self, inode: &Arc<Inode>) {
        let max = self.config.pending_extents_max;
        let start = {
            let mut st = inode.state.lock();
            let n = st.unpublished.pending.len().max(st.unpublished.dead_len());
            if n <= max {
                return;
            }
            !std::mem::replace(&mut st.publishing, true)
        };
        if start && let Some(me) = self.me.upgrade() {
            let inode = inode.clone();
            self.runtime.spawn(async move {
                me.publish_pending(&inode).await;
                inode.state.lock().publishing = false;
                inode.changed.notify_waiters();
            });
        }
        inode.until(|st| (st.unpublished.pending.len() <= 8 * max || !st.publishing).then_some(())).await;
    }

    /// Without a grant: durable and published before the reply, against others who may do the same. False: a grant came meanwhile, under which others of
    /// this mount may have written what is not committed: begin again.
    async fn write_through(&self, inode: &Arc<Inode>, offset: Option<u64>, data: &Bytes, kill_suidgid: bool) -> Result<bool> {
        let s = self.session().await?;
        let mut written = Unnamed { vfs: self, stripes: Vec::new() };
        let (mut inline, mut bare) = (Vec::new(), None);
        let mut from = 0;
        if data.len() <= INLINE_BYTES_MAX && s.meta.inline_room(data.len()) {
            let (stripe, inlined) = self.inline_stripe(&s, std::slice::from_ref(data)).await?;
            inline.push(Inline { stripe: stripe.id, data: inlined.data });
            bare = Some(stripe);
            from = data.len();
        }
        while from < data.len() {
            let part = data.slice(from..data.len().min(from + STRIPE_BYTES_MAX as usize));
            from += part.len();
            let chunk = (offset.unwrap_or(0) / CHUNK_BYTES) as u32;
            written.stripes.push(self.put_stripe(&s, inode, vec![part], chunk).await?);
        }
        let (stripes, lost) = self.stabilise(written.stripes.clone()).await;
        if lost {
            return Err(Error::Io);
        }
        let _order = inode.order.lock().await;
        for _ in 0..THROUGH_TRIES {
            let _granting = self.granting();
            let (attr, grant) = s.meta.getattr(inode.ino).await.map_err(|e| self.meta_error(&s, e))?;
            if self.granted(&s, inode, &attr, grant, Use::Read) && !inode.state.lock().lease.writes_through() {
                return Ok(false);
            }
            let at = offset.unwrap_or(attr.size);
            let end = at.saturating_add(data.len() as u64);
            if end > FILE_BYTES_MAX {
                return Err(Error::FileTooLarge);
            }
            let now = self.now();
            let publish = Publish {
                ino: inode.ino,
                number: attr.number + 1,
                extents: extents_over(at, bare.iter().chain(&stripes)),
                stripes: stripes.clone(),
                inline: inline.clone(),
                size: attr.size.max(end),
                mtime: now,
                ctime: now,
                clear_suid: kill_suidgid,
            };
            self.metrics().vfs_publishes.inc();
            written.named();
            let answer = self.submit_raw(&s, Command::Publish(publish)).await;
            if answer.as_ref().is_err_and(refused) {
                written.stripes = stripes.clone();
            }
            match answer {
                Ok(Reply::Attr(attr)) => {
                    let mut st = inode.state.lock();
                    st.map.forget();
                    st.kept_meanwhile(&(at..end));
                    if st.lease.is_held() && self.is_current(&s) {
                        st.absorb(&attr);
                        // A grant that came since may have been written under; that is no reason to hide this.
                        if let Some(own) = st.attr.as_mut().filter(|own| own.change <= attr.change) {
                            own.size = own.size.max(end);
                        }
                    }
                    return Ok(true);
                }
                Ok(other) => return Err(unexpected(other)),
                Err(MetaError::PublishRefused(_)) => tokio::task::yield_now().await,
                Err(e) => return Err(self.meta_error(&s, e)),
            }
        }
        tracing::warn!(inode = %inode.ino, "a write found no turn among those of others");
        Err(Error::Io)
    }
}

impl State {
    /// Where an append goes: behind all that is there and all that is on its way.
    fn append_offset(&self) -> u64 {
        if self.unpublished.in_flight() == 0 { self.size() } else { self.size().max(self.reserved_end) }
    }
}

/// Stripes one after the other from `at`, cut at chunk borders.
fn extents_over<'a>(at: u64, stripes: impl Iterator<Item = &'a Arc<StripeMeta>>) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut offset = at;
    for s in stripes {
        let mut done = 0;
        while done < s.len {
            let room = CHUNK_BYTES - offset % CHUNK_BYTES;
            let len = (s.len - done).min(room as u32);
            extents.push(Extent { offset, len, stripe: s.id, stripe_offset: done });
            done += len;
            offset += len as u64;
        }
    }
    extents
}
