//! read: dirty pages over flights over pending extents over the committed map over zeroes.
//!
//! What always holds: a read sees every write that returned before it; the layers are looked at in one critical section; stripes are read without any
//! lock; what the devices no longer hold makes the map be read again, once.

use crate::acquire::Mode;
use crate::error;
use crate::handle::Handle;
use crate::inode::{Inode, State, chunks_of};
use crate::types::{Error, ReadArgs, Result};
use crate::vfs::{LoadedChunk, Vfs};
use bytes::Bytes;
use futures::future::try_join_all;
use holdfast_meta_client::Use;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_client as objects;
use holdfast_objstore_proto::StripeMeta;
use holdfast_objstore_proto::meta::{Attr, MappedExtent};
use std::ops::Range;
use std::sync::Arc;

/// Where some bytes of a read come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Memory(Bytes),
    Stripe(Arc<StripeMeta>, Range<u32>),
    Hole(u64),
}

/// A read's pieces in order, or that part of the map is not known.
pub(crate) enum Layers {
    Ready(Vec<Source>),
    MapNeeded,
}

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// `len` zero bytes in shared pieces.
fn zeroes(mut len: u64, out: &mut Vec<Bytes>) {
    while len > 0 {
        let n = len.min(ZEROES.len() as u64);
        out.push(Bytes::from_static(&ZEROES[..n as usize]));
        len -= n;
    }
}

/// Finished or dropped, the read is no longer under way.
struct Reading<'a>(&'a Inode);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.state.lock().reading -= 1;
        self.0.changed.notify_waiters();
    }
}

impl Vfs {
    /// Up to `len` bytes from `offset`, fewer only at the end of the file, in pieces.
    pub async fn read(&self, a: ReadArgs) -> Result<Vec<Bytes>> {
        self.metrics().vfs_ops.inc();
        let handle = self.handle(a.handle)?;
        if !handle.readable() {
            return Err(Error::BadHandle);
        }
        let inode = &handle.inode;
        inode.until(|st| st.gate.is_none().then_some(())).await;
        let range = a.offset..a.offset.saturating_add(a.len as u64);
        loop {
            // A page that a writable mapping may dirty is read only under a grant that foreign readers recall.
            let using = if inode.state.lock().write_opens > 0 { Use::Write } else { Use::Read };
            let data = match self.hold(inode, using).await? {
                Mode::Through(attr) => {
                    let data = self.read_through(inode, &attr, range.clone()).await?;
                    if handle.is_cached() {
                        self.uncache(inode, range.start as i64, a.len as i64);
                    }
                    data
                }
                Mode::Held => match self.read_held(&handle, range.clone()).await? {
                    Some(data) => data,
                    None => continue,
                },
            };
            self.metrics().vfs_read.inc_by(data.iter().map(|d| d.len() as u64).sum());
            return Ok(data);
        }
    }

    /// A handle that was opened under a grant keeps its pages in the kernel for life. Without the grant nobody would tell us when they go stale, so
    /// they go at once: the invalidation waits in the kernel for the reply that brings them.
    pub(crate) fn uncache(&self, inode: &Inode, offset: i64, len: i64) {
        self.runtime.spawn(self.notify.inval_inode(self.node_of(inode.ino), offset, len));
    }

    /// `None`: the grant went away, begin again.
    async fn read_held(&self, handle: &Handle, range: Range<u64>) -> Result<Option<Vec<Bytes>>> {
        let inode = &handle.inode;
        let _reading = {
            let mut st = inode.state.lock();
            if !st.lease.is_held() {
                return Ok(None);
            }
            st.reading += 1;
            st.kept_meanwhile(&range);
            Reading(inode)
        };
        let ahead = handle.readahead.lock().read(range.start, range.end - range.start, self.config.readahead_bytes_max);
        let wanted = range.start..range.end.max(ahead.prefetch.end);
        if ahead.hit {
            self.metrics().vfs_readahead_hits.inc();
        }
        if !ahead.prefetch.is_empty()
            && let Some(me) = self.me.upgrade()
        {
            // It begins when this read waits for its own bytes.
            let inode = inode.clone();
            self.runtime.spawn(async move { me.prefetch(&inode, ahead.prefetch).await });
        }
        let mut again = true;
        let data = loop {
            let Some(sources) = self.layers(inode, &range, &wanted).await? else { return Ok(None) };
            match self.fetch(sources).await {
                Ok(data) => break data,
                // Repair may have moved or rewritten it since the map was read.
                Err(objects::Error::Gone { stripe } | objects::Error::Lost { stripe, .. }) if again => {
                    failpoint::reached("vfs.read_again");
                    tracing::debug!(%stripe, "gone or moved: reading the map again");
                    again = false;
                    inode.state.lock().map.forget();
                }
                Err(e) => return Err(error::from_objects(e)),
            }
        };
        Ok(Some(data))
    }

    /// Looks through the layers, reading the map of `wanted` (at least `range`) where it is not known. `None`: the grant went away.
    pub(crate) async fn layers(&self, inode: &Arc<Inode>, range: &Range<u64>, wanted: &Range<u64>) -> Result<Option<Vec<Source>>> {
        loop {
            let chunks = {
                let st = inode.state.lock();
                if !st.lease.is_held() {
                    return Ok(None);
                }
                match st.layers(range.clone()) {
                    Layers::Ready(sources) => return Ok(Some(sources)),
                    Layers::MapNeeded => chunks_of(&(wanted.start..wanted.end.min(st.size().max(range.end)))),
                }
            };
            self.load_map(inode, chunks).await?;
        }
    }

    /// Reads the pieces, several stripes at once.
    pub(crate) async fn fetch(&self, sources: Vec<Source>) -> std::result::Result<Vec<Bytes>, objects::Error> {
        if let [Source::Stripe(stripe, range)] = &sources[..] {
            return self.objects.read(stripe, range.clone()).await;
        }
        let stripes: Vec<_> = sources
            .iter()
            .filter_map(|s| if let Source::Stripe(m, r) = s { Some(self.objects.read(m, r.clone())) } else { None })
            .collect();
        let mut read = try_join_all(stripes).await?.into_iter();
        let mut out = Vec::new();
        for source in &sources {
            match source {
                Source::Memory(data) => out.push(data.clone()),
                Source::Hole(len) => zeroes(*len, &mut out),
                Source::Stripe(..) => out.extend(read.next().expect("one answer per stripe")),
            }
        }
        Ok(out)
    }

    /// Asks for the stripes of `range`.
    async fn prefetch(&self, inode: &Arc<Inode>, range: Range<u64>) {
        // A read of the map that fails, or a grant that goes, only costs the read-ahead.
        let Ok(Some(sources)) = self.layers(inode, &range, &range).await else { return };
        for source in sources {
            if let Source::Stripe(stripe, range) = source {
                self.metrics().vfs_prefetched.inc_by((range.end - range.start) as u64);
                self.objects.prefetch(&stripe, range);
            }
        }
    }

    /// Reads the map of `chunks` into the cache, unless what it is based on changes meanwhile.
    async fn load_map(&self, inode: &Arc<Inode>, chunks: Range<u32>) -> Result<()> {
        let s = self.session().await?;
        let epoch = inode.state.lock().map.epoch;
        self.metrics().vfs_map_reads.inc();
        let extents = s.meta.extents(inode.ino, chunks.clone()).await.map_err(|e| self.meta_error(&s, e))?;
        let loading;
        {
            let mut st = inode.state.lock();
            if st.map.epoch != epoch || !st.lease.is_held() || !self.is_current(&s) {
                return Ok(());
            }
            loading = {
                let mut maps = self.maps.lock();
                maps.loadings += 1;
                maps.loadings
            };
            st.map.load(chunks.clone(), &extents, loading, &self.inlined);
        }
        self.bound_maps(inode, chunks, &extents, loading);
        Ok(())
    }

    /// Forgets the chunks loaded longest ago, beyond the limits; never those just loaded.
    fn bound_maps(&self, inode: &Arc<Inode>, chunks: Range<u32>, extents: &[MappedExtent], loading: u64) {
        {
            let mut maps = self.maps.lock();
            // An empty chunk takes room too.
            let each = extents.len().div_ceil(chunks.len().max(1)) + 1;
            for chunk in chunks {
                maps.queue.push_back(LoadedChunk { inode: Arc::downgrade(inode), chunk, extents: each, loading });
                maps.extents += each;
            }
        }
        loop {
            let old = {
                let mut maps = self.maps.lock();
                // Looked at each time: what a chunk gives back is known when it is gone.
                let over = maps.extents > self.config.map_extents_max || self.inlined.bytes() > self.config.inline_cache_bytes_max;
                if !over || maps.queue.front().is_none_or(|c| c.loading == loading) {
                    return;
                }
                let old = maps.queue.pop_front().expect("just seen");
                maps.extents -= old.extents;
                old
            };
            if let Some(inode) = old.inode.upgrade() {
                let mut st = inode.state.lock();
                // It may have been loaded again since.
                if st.map.chunks.get(&old.chunk) == Some(&old.loading) {
                    st.map.forget_chunk(old.chunk);
                }
            }
        }
    }

    /// Without a grant: from committed state, nothing kept.
    async fn read_through(&self, inode: &Arc<Inode>, attr: &Attr, range: Range<u64>) -> Result<Vec<Bytes>> {
        let s = self.session().await?;
        let mut size = attr.size;
        for again in [true, false] {
            let range = range.start..range.end.min(size);
            if range.is_empty() {
                return Ok(Vec::new());
            }
            let extents = s.meta.extents(inode.ino, chunks_of(&range)).await.map_err(|e| self.meta_error(&s, e))?;
            match self.fetch(committed(&extents, range)).await {
                Ok(data) => return Ok(data),
                Err(objects::Error::Gone { .. } | objects::Error::Lost { .. }) if again => {
                    size = s.meta.getattr(inode.ino).await.map_err(|e| self.meta_error(&s, e))?.0.size;
                }
                Err(e) => return Err(error::from_objects(e)),
            }
        }
        unreachable!("the second turn returns")
    }
}

/// Pieces in order over a range, filled from the top layer down.
struct Cover {
    found: Vec<(u64, Source)>,
    left: Vec<Range<u64>>,
}

impl Cover {
    /// Lays what `layer` has of each uncovered piece.
    fn lay<I: Iterator<Item = (u64, u64, Source)>>(&mut self, mut layer: impl FnMut(Range<u64>) -> I) {
        let mut left = Vec::new();
        for piece in std::mem::take(&mut self.left) {
            let mut at = piece.start;
            for (offset, len, source) in layer(piece.clone()) {
                if at < offset {
                    left.push(at..offset);
                }
                self.found.push((offset, source));
                at = offset + len;
            }
            if at < piece.end {
                left.push(at..piece.end);
            }
        }
        self.left = left;
    }

    /// In order; neighbours in one stripe become one piece.
    fn finish(mut self) -> Vec<Source> {
        self.found.extend(self.left.into_iter().map(|r| (r.start, Source::Hole(r.end - r.start))));
        self.found.sort_by_key(|(offset, _)| *offset);
        let mut out: Vec<Source> = Vec::with_capacity(self.found.len());
        for (_, source) in self.found {
            match (out.last_mut(), source) {
                (Some(Source::Stripe(a, r)), Source::Stripe(b, q)) if a.id == b.id && r.end == q.start => r.end = q.end,
                (Some(Source::Hole(n)), Source::Hole(m)) => *n += m,
                (_, source) => out.push(source),
            }
        }
        out
    }
}

impl State {
    /// What `range`, cut at the end of the file, consists of.
    pub(crate) fn layers(&self, range: Range<u64>) -> Layers {
        let range = range.start..range.end.min(self.size());
        if range.is_empty() {
            return Layers::Ready(Vec::new());
        }
        let mut cover = Cover { found: Vec::new(), left: vec![range] };
        if !self.pages.is_empty() {
            cover.lay(|r| self.pages.overlaps(r).map(|(o, d)| (o, d.len() as u64, Source::Memory(Bytes::copy_from_slice(d)))));
        }
        for seq in self.unpublished.flights_down() {
            cover.lay(|r| self.unpublished.flight_overlaps(seq, r).into_iter().map(|(o, d)| (o, d.len() as u64, Source::Memory(d))));
        }
        let placed = |(o, p): (u64, crate::extent::Place)| {
            let range = p.stripe_offset..p.stripe_offset + p.len;
            let source = match p.inline {
                Some(data) => Source::Memory(data.slice(range)),
                None => Source::Stripe(p.stripe, range),
            };
            (o, p.len as u64, source)
        };
        if !self.unpublished.pending.is_empty() {
            cover.lay(|r| self.unpublished.pending.overlaps(r).map(placed));
        }
        // A truncation under way: metadata's map may still have what is beyond it.
        let end = self.truncating.unwrap_or(u64::MAX);
        for left in &cover.left {
            let left = left.start..left.end.min(end);
            if !left.is_empty() && chunks_of(&left).any(|c| !self.map.chunks.contains_key(&c)) {
                return Layers::MapNeeded;
            }
        }
        cover.lay(|r| self.map.tree.overlaps(r.start..r.end.min(end).max(r.start)).map(placed));
        Layers::Ready(cover.finish())
    }
}

fn committed(extents: &[MappedExtent], range: Range<u64>) -> Vec<Source> {
    let mut cover = Cover { found: Vec::new(), left: vec![range] };
    cover.lay(|r| {
        extents.iter().filter_map(move |e| {
            let (from, to) = (e.offset.max(r.start), (e.offset + e.len as u64).min(r.end));
            (from < to).then(|| {
                let start = e.stripe_offset + (from - e.offset) as u32;
                let range = start..start + (to - from) as u32;
                let source = match &e.inline {
                    Some(data) => Source::Memory(data.slice(range.start as usize..range.end as usize)),
                    None => Source::Stripe(e.stripe.clone(), range),
                };
                (from, to - from, source)
            })
        })
    });
    cover.finish()
}
