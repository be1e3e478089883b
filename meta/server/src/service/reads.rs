//! Reads: from committed state, after what foreign holders have is in it.
//!
//! What always holds: a grant given with an answer was made at the very moment the answer was read, so nothing can change
//! between the two. The state's read lock is taken first, the grant table's below it.
//! What it leaves out: what readers see (`meta/core`'s `read`).

use super::core::Core;
use super::grants::{Blocked, Grants};
use super::session::Session;
use crate::state::Layers;
use holdfast_meta_client::{Grant, Looked};
use holdfast_meta_core::lease::{Ask, Asker, Using};
use holdfast_meta_core::{StateError, read};
use holdfast_objstore_proto::meta::{Attr, DirEntry, Kind, ListItem, ListPage, ListQuery, MappedExtent, MetaResult, Name, ObjectInfo};
use holdfast_objstore_proto::{BucketId, InodeId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Entries and keys of one page, at most.
const PAGE_MAX: usize = 10_000;
/// Recalls one listing waits for at a time.
const RECALLS_AT_ONCE: usize = 16;
/// Chunks one question may name.
const CHUNKS_MAX: u32 = 4096;

/// Times one acquire waits for others before it goes on without a grant.
const ACQUIRE_TRIES: u32 = 4;

/// What a look at the state came to.
type Step<T> = Result<T, Blocked>;

fn asker(session: &Session) -> Asker {
    Asker { session: session.id, caching: session.caching }
}

impl Core {
    /// Looks until nothing is in the way.
    async fn look<T>(
        self: &Arc<Self>,
        session: &Session,
        mut look: impl FnMut(&Layers, &Grants, u64) -> Result<MetaResult<Step<T>>, StateError>,
    ) -> MetaResult<T> {
        loop {
            self.admits(session)?;
            let now = self.now_ns();
            match self.view(|kv| look(kv, &self.grants, now))? {
                Ok(found) => {
                    self.metrics.reads.inc();
                    return Ok(found);
                }
                Err(blocked) => self.unblock(blocked).await,
            }
        }
    }

    /// A read that no holder can hide anything from.
    pub(crate) fn plain<T>(&self, session: &Session, read: impl FnOnce(&Layers) -> Result<MetaResult<T>, StateError>) -> MetaResult<T> {
        self.admits(session)?;
        self.metrics.reads.inc();
        self.view(read)
    }

    pub(crate) async fn lookup(self: &Arc<Self>, session: &Session, dir: InodeId, name: &Name) -> MetaResult<Looked> {
        self.look(session, |kv, grants, now| {
            let entry = match read::lookup(kv, dir, name)? {
                Ok(entry) => entry,
                Err(e) => return Ok(Err(e)),
            };
            let mut rows = grants.lock();
            let step = (|| {
                let grant = match &entry {
                    Some(e) => rows.ask(e.ino, asker(session), Ask::Look, now)?,
                    None => Grant::Through,
                };
                let dir_grant = rows.ask(dir, asker(session), Ask::Look, now)?;
                Ok(Looked { entry, dir_grant, grant })
            })();
            Ok(Ok(step))
        })
        .await
    }

    pub(crate) async fn getattr(self: &Arc<Self>, session: &Session, ino: InodeId) -> MetaResult<(Attr, Grant)> {
        self.look(session, |kv, grants, now| {
            Ok(read::getattr(kv, ino)?.map(|attr| {
                let grant = grants.lock().ask(ino, asker(session), Ask::Look, now)?;
                Ok((attr, grant))
            }))
        })
        .await
    }

    pub(crate) async fn acquire(self: &Arc<Self>, session: &Session, ino: InodeId, using: Using) -> MetaResult<(Attr, Grant)> {
        let mut tries = 0;
        self.look(session, |kv, grants, now| {
            tries += 1;
            // Where one change follows another for ever there is nothing to be granted.
            let asker = Asker { session: session.id, caching: session.caching && tries <= ACQUIRE_TRIES };
            Ok(read::getattr(kv, ino)?.map(|attr| {
                // Nothing of a directory is buffered: only its changes concern others.
                let using = if attr.kind == Kind::Dir { Using::Read } else { using };
                let grant = grants.lock().ask(ino, asker, Ask::Acquire(using), now)?;
                Ok((attr, grant))
            }))
        })
        .await
    }

    pub(crate) async fn extents(self: &Arc<Self>, session: &Session, ino: InodeId, chunks: Range<u32>) -> MetaResult<Vec<MappedExtent>> {
        let chunks = chunks.start..chunks.end.min(chunks.start.saturating_add(CHUNKS_MAX));
        self.look(session, |kv, grants, now| {
            // First, since a long map is dear to read twice.
            if let Err(blocked) = grants.lock().look_through(ino, session.id, now) {
                return Ok(Ok(Err(blocked)));
            }
            Ok(read::extents(kv, ino, chunks.clone(), &|id| kv.staged(id))?.map(Ok))
        })
        .await
    }

    pub(crate) async fn resolve(self: &Arc<Self>, session: &Session, bucket: BucketId, key: &Name) -> MetaResult<(Attr, ObjectInfo)> {
        self.look(session, |kv, grants, now| {
            Ok(read::resolve(kv, bucket, key)?.map(|(attr, info)| {
                grants.lock().look_through(attr.ino, session.id, now)?;
                Ok((attr, info))
            }))
        })
        .await
    }

    pub(crate) async fn readdir(
        self: &Arc<Self>,
        session: &Session,
        dir: InodeId,
        after: u64,
        entries_max: usize,
    ) -> MetaResult<(Vec<(DirEntry, Attr)>, Grant)> {
        let page = |kv: &Layers| read::readdir(kv, dir, after, entries_max.min(PAGE_MAX));
        let inos = |page: &Vec<(DirEntry, Attr)>| page.iter().map(|(e, _)| e.ino).collect();
        let ask = |grants: &Grants, now| grants.lock().ask(dir, asker(session), Ask::Look, now);
        self.page(session, page, inos, ask).await
    }

    pub(crate) async fn list(self: &Arc<Self>, session: &Session, bucket: BucketId, query: &ListQuery) -> MetaResult<ListPage> {
        let query = ListQuery { keys_max: query.keys_max.min(PAGE_MAX), ..query.clone() };
        let page = |kv: &Layers| read::list(kv, bucket, &query);
        let inos = |page: &ListPage| {
            let object = |item: &ListItem| match item {
                ListItem::Object { attr, .. } => Some(attr.ino),
                ListItem::CommonPrefix(_) => None,
            };
            page.items.iter().filter_map(object).collect()
        };
        let ask = |_: &Grants, _| Ok(());
        Ok(self.page(session, page, inos, ask).await?.0)
    }

    /// A page of entries, after what foreign writers of any of them had at the time of the call is in it. An inode is asked
    /// for once in a call: what its writer does after it published is later than the call.
    async fn page<P, G>(
        self: &Arc<Self>,
        session: &Session,
        page: impl Fn(&Layers) -> Result<MetaResult<P>, StateError>,
        inos: impl Fn(&P) -> Vec<InodeId>,
        ask: impl Fn(&Grants, u64) -> Result<G, Blocked>,
    ) -> MetaResult<(P, G)> {
        let mut asked = BTreeSet::new();
        loop {
            self.admits(session)?;
            let now = self.now_ns();
            let step = self.view(|kv| {
                Ok(page(kv)?.map(|p| {
                    let mut blocked = Vec::new();
                    let mut rows = self.grants.lock();
                    for ino in inos(&p) {
                        if blocked.len() == RECALLS_AT_ONCE {
                            break;
                        }
                        if rows.hides(ino, session.id) && asked.insert(ino) {
                            blocked.extend(rows.look_through(ino, session.id, now).err());
                        }
                    }
                    drop(rows);
                    if !blocked.is_empty() {
                        return Err(blocked);
                    }
                    ask(&self.grants, now).map(|g| (p, g)).map_err(|b| vec![b])
                }))
            })?;
            match step {
                Ok(found) => {
                    self.metrics.reads.inc();
                    return Ok(found);
                }
                Err(blocked) => {
                    let waiting: Vec<_> = blocked.into_iter().map(|b| self.begin(b)).collect();
                    futures::future::join_all(waiting).await;
                }
            }
        }
    }
}
