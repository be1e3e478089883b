//! Making pending stripes stable and reachable: flush, then one numbered Publish.
//!
//! What always holds: publishes of one inode are serial and numbered; data is stable before it is named; callers that wait together share one Publish; a
//! size is published only as far as the data before it is written.

use crate::extent::Place;
use crate::inline::Inlined;
use crate::inode::Inode;
use crate::session::{Session, unexpected};
use crate::types::{Error, Result};
use crate::vfs::Vfs;
use holdfast_meta_client::MetaError;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::meta::{Attr, Command, Extent, Inline, Publish, Reply, TimeNs};
use holdfast_objstore_proto::{StripeId, StripeMeta};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Extents one Publish names at most, unless one stripe alone brings more.
const EXTENTS_MAX: usize = 4096;
/// Tries when the number turns out to be another's.
const NUMBER_TRIES: usize = 3;

/// What one Publish will say.
struct Snapshot {
    extents: Vec<Extent>,
    stripes: Vec<Arc<StripeMeta>>,
    inline: Vec<Inline>,
    number: u64,
    size: u64,
    /// Size and times are all there is to say about changes up to here.
    attr_changes: Option<u64>,
    mtime: TimeNs,
    ctime: TimeNs,
    clear_suid: bool,
    /// No Publish has named any of the stripes before.
    fresh: bool,
}

impl Vfs {
    /// Publishes what was pending when called, and what joined it meanwhile.
    pub(crate) async fn publish(&self, s: &Session, inode: &Inode) -> Result<()> {
        let (landed, changes) = {
            let st = inode.state.lock();
            (st.unpublished.landed, st.attr_changes)
        };
        let _order = inode.order.lock().await;
        let mut result = Ok(());
        while let Some(snapshot) = self.snapshot(s, inode, landed, changes)? {
            result = result.and(self.publish_one(s, inode, snapshot).await);
        }
        result
    }

    /// `None` when everything up to `landed` and `changes` has been said.
    fn snapshot(&self, s: &Session, inode: &Inode, landed: u64, changes: u64) -> Result<Option<Snapshot>> {
        let mut guard = inode.state.lock();
        let st = &mut *guard;
        if !self.is_current(s) {
            return Ok(None);
        }
        let Some(attr) = &st.attr else {
            if st.unpublished.pending.is_empty() {
                return Ok(None);
            }
            // Data without the grant it was taken in under: it must not pass for published.
            st.unpublished.begin_publish(st.unpublished.landed);
            drop(guard);
            tracing::error!(inode = %inode.ino, "unpublished data without attributes");
            self.unpublishable(inode, None);
            self.record_error(s, inode, Error::Io);
            return Err(Error::Io);
        };
        let data_left = st.unpublished.pending.iter().any(|(_, p)| p.born <= landed);
        let unwritten = !st.pages.is_empty() || st.unpublished.in_flight() > 0;
        let attr_left = st.attr_published < changes || st.clear_suid;
        if !data_left && !attr_left {
            return Ok(None);
        }
        // While attributes wait for data that is not written yet, there is nothing to say without extents.
        if !data_left && unwritten {
            return Ok(None);
        }
        let born = cut(st.unpublished.pending.len(), st.unpublished.pending.iter().map(|(_, p)| p.born), st.unpublished.landed);
        let fresh = st.unpublished.unnamed();
        st.unpublished.begin_publish(born);
        let mut extents = Vec::with_capacity(st.unpublished.pending.len());
        let (mut stripes, mut inline) = (Vec::new(), Vec::new());
        let mut last: Option<StripeId> = None;
        let mut seen: HashSet<StripeId> = HashSet::new();
        for (offset, p) in st.unpublished.pending.iter().filter(|(_, p)| p.born <= born) {
            extents.push(Extent { offset, len: p.len, stripe: p.stripe.id, stripe_offset: p.stripe_offset });
            if last != Some(p.stripe.id) && seen.insert(p.stripe.id) {
                match &p.inline {
                    Some(data) => inline.push(Inline { stripe: p.stripe.id, data: data.data.clone() }),
                    None => stripes.push(p.stripe.clone()),
                }
            }
            last = Some(p.stripe.id);
        }
        let complete = !unwritten && extents.len() == st.unpublished.pending.len();
        let end = extents.last().map_or(0, |e| e.offset + e.len as u64);
        Ok(Some(Snapshot {
            size: if complete { attr.size.max(st.committed_size) } else { st.committed_size.max(end) },
            number: attr.number + 1,
            attr_changes: complete.then_some(st.attr_changes),
            mtime: attr.mtime,
            ctime: attr.ctime,
            clear_suid: st.clear_suid,
            extents,
            stripes,
            inline,
            fresh,
        }))
    }

    async fn publish_one(&self, s: &Session, inode: &Inode, snap: Snapshot) -> Result<()> {
        let all = snap.stripes;
        let (stripes, lost) = self.stabilise(all.clone()).await;
        let mut extents = snap.extents;
        if lost {
            let stable: HashSet<StripeId> = stripes.iter().map(|m| m.id).chain(snap.inline.iter().map(|i| i.stripe)).collect();
            if snap.fresh {
                self.bury(all.into_iter().filter(|m| !stable.contains(&m.id)).collect());
            }
            extents.retain(|e| stable.contains(&e.stripe));
            inode.state.lock().map.forget();
            self.record_error(s, inode, Error::Io);
        }
        let mut number = snap.number;
        for attempt in 0.. {
            let publish = Publish {
                ino: inode.ino,
                number,
                extents: extents.clone(),
                stripes: stripes.clone(),
                inline: snap.inline.clone(),
                size: snap.size,
                mtime: snap.mtime,
                ctime: snap.ctime,
                clear_suid: snap.clear_suid,
            };
            self.metrics().vfs_publishes.inc();
            match self.submit_raw(s, Command::Publish(publish)).await {
                Ok(Reply::Attr(attr)) => {
                    self.metrics().vfs_extents_published.inc_by(extents.len() as u64);
                    self.published(s, inode, &attr, &stripes, snap.attr_changes, snap.clear_suid);
                    return if lost { Err(Error::Io) } else { Ok(()) };
                }
                Ok(other) => {
                    self.unpublishable(inode, None);
                    return Err(unexpected(other));
                }
                Err(MetaError::PublishRefused(why)) if attempt < NUMBER_TRIES => {
                    tracing::warn!(inode = %inode.ino, number, why, "publish refused");
                    let (attr, _) = s.meta.getattr(inode.ino).await.map_err(|e| self.meta_error(s, e))?;
                    number = attr.number + 1;
                }
                // Nobody can reach the inode any more: its bytes may go with it.
                Err(MetaError::Stale) => {
                    self.unpublishable(inode, None);
                    self.bury(stripes);
                    return Ok(());
                }
                Err(e) => {
                    failpoint::reached("vfs.publish_failed");
                    // A refusal for want of space has consumed the number.
                    let consumed = matches!(e, MetaError::NoSpace).then_some(number);
                    let refused = refused(&e);
                    let e = self.meta_error(s, e);
                    self.unpublishable(inode, consumed);
                    if refused && snap.fresh {
                        self.bury(stripes);
                    }
                    self.record_error(s, inode, e);
                    return Err(e);
                }
            }
        }
        unreachable!("every attempt returns or counts")
    }

    /// Flushes; after a failure one by one, to keep what can be kept. True: some are lost.
    pub(crate) async fn stabilise(&self, stripes: Vec<Arc<StripeMeta>>) -> (Vec<Arc<StripeMeta>>, bool) {
        if stripes.is_empty() {
            return (stripes, false);
        }
        self.metrics().vfs_flushes.inc();
        match self.objects.flush(stripes.clone()).await {
            Ok(stable) => (stable, false),
            Err(e) => {
                failpoint::reached("vfs.flush_failed");
                tracing::warn!(error = %e, "flush failed");
                let mut stable = Vec::new();
                for stripe in &stripes {
                    if let Ok(s) = self.objects.flush(vec![stripe.clone()]).await {
                        stable.extend(s);
                    }
                }
                let lost = stable.len() < stripes.len();
                (stable, lost)
            }
        }
    }

    fn published(&self, s: &Session, inode: &Inode, attr: &Attr, stripes: &[Arc<StripeMeta>], changes: Option<u64>, cleared: bool) {
        let mut st = inode.state.lock();
        if !self.is_current(s) {
            return;
        }
        let st = &mut *st;
        let stable: HashMap<StripeId, &Arc<StripeMeta>> = stripes.iter().map(|m| (m.id, m)).collect();
        let map = &mut st.map;
        map.epoch += 1;
        let mut kept: HashMap<StripeId, Inlined> = HashMap::new();
        st.unpublished.end_publish(|offset, p| match (&p.inline, stable.get(&p.stripe.id)) {
            (Some(data), _) => {
                let inlined = kept.entry(p.stripe.id).or_insert_with(|| self.inlined.keep(data.data.clone())).clone();
                map.lay(offset, Place { inline: Some(inlined), ..p });
            }
            (None, Some(&stripe)) => map.lay(offset, Place { stripe: stripe.clone(), ..p }),
            (None, None) => {}
        });
        // Those that no place shows would count otherwise.
        drop(kept);
        if self.inlined.bytes() > self.config.inline_cache_bytes_max {
            // Read again when it is needed, from where it is by then.
            map.forget_inline();
        }
        // What was overwritten while the Publish was on its way is not in the pending tree any more, but it is in metadata's map, under a
        // pending extent. The cache may lack it; the pending extent hides that until its own Publish lies over it.
        st.attr_published = st.attr_published.max(changes.unwrap_or(0));
        if cleared {
            st.clear_suid = false;
        }
        st.absorb(attr);
        inode.changed.notify_waiters();
    }

    /// What the Publish named is lost.
    fn unpublishable(&self, inode: &Inode, consumed: Option<u64>) {
        let mut st = inode.state.lock();
        st.unpublished.end_publish(|_, _| {});
        st.map.forget();
        st.attr_published = st.attr_changes;
        st.clear_suid = false;
        if let (Some(number), Some(a)) = (consumed, &mut st.attr) {
            a.number = a.number.max(number);
        }
        inode.changed.notify_waiters();
    }
}

/// Whether a Publish that was answered so is known not to be applied, now or later.
pub(crate) fn refused(e: &MetaError) -> bool {
    matches!(e, MetaError::PublishRefused(_) | MetaError::NoSpace | MetaError::Stale | MetaError::FileTooLarge | MetaError::Invalid(_))
}

/// The last landing a Publish takes, so that it names at most about [`EXTENTS_MAX`] extents.
fn cut(len: usize, born: impl Iterator<Item = u64>, landed: u64) -> u64 {
    if len <= EXTENTS_MAX {
        return landed;
    }
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for b in born {
        *counts.entry(b).or_default() += 1;
    }
    let mut sum = 0;
    let mut last = None;
    for (b, n) in counts {
        sum += n;
        if sum > EXTENTS_MAX && last.is_some() {
            break;
        }
        last = Some(b);
    }
    last.unwrap_or(landed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_takes_whole_landings_up_to_its_limit() {
        assert_eq!(cut(3, [3, 1, 2].into_iter(), 9), 9);
        let many: Vec<u64> = (0..3 * EXTENTS_MAX as u64).map(|i| i / 1024).collect();
        assert_eq!(cut(many.len(), many.clone().into_iter(), 99), 3);
        assert_eq!(cut(EXTENTS_MAX + 1, vec![5; EXTENTS_MAX + 1].into_iter(), 9), 5);
    }
}
