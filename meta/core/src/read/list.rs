//! S3 listings: a walk over names in key order.
//!
//! Dentry keys are in the order S3 wants, a directory as `name/`, so nothing is sorted. The walk holds one frame per directory
//! on its path and can be set to any key by descending to it; a common prefix is passed by setting it behind the prefix, never
//! by visiting what is below. What always holds: the cost of a page is in what it returns, the hidden names it
//! passes and the depth; a page that passed 20,000 names without filling up ends early, with a key to go on from.

use crate::fail::{Done, split};
use crate::limits::{KEY_BYTES_MAX, LIST_VISITS_MAX};
use crate::object::{info, with_etag};
use crate::record::{Dentry, decode};
use crate::{KvRead, StateError, bucket, dir, keys};
use bytes::Bytes;
use holdfast_objstore_proto::meta::{Kind, ListItem, ListPage, ListQuery, MetaResult, Name, Shape};
use holdfast_objstore_proto::{BucketId, InodeId};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// One page of keys. `NoSuchBucket`. Objects have their ETag filled in.
pub fn list(kv: &dyn KvRead, bucket: BucketId, query: &ListQuery) -> Result<MetaResult<ListPage>, StateError> {
    split(list_in(kv, bucket, query))
}

fn list_in(kv: &dyn KvRead, bucket: BucketId, query: &ListQuery) -> Done<ListPage> {
    let bucket = bucket::by_id(kv, bucket)?;
    let mut page = ListPage::default();
    if query.keys_max == 0 {
        return Ok(page);
    }
    let prefix = &query.prefix[..];
    let common = |key: &[u8]| {
        let delimiter = query.delimiter.as_deref().filter(|d| !d.is_empty())?;
        let rest = key.strip_prefix(prefix)?;
        let at = rest.windows(delimiter.len()).position(|w| w == delimiter)?;
        Some(prefix.len() + at + delimiter.len())
    };
    let mut walk = Walk { kv, tree: bucket.shape == Shape::Tree, root: bucket.root, frames: Vec::new(), path: Vec::new() };
    let start = match &query.after {
        // A common prefix was returned as a whole: go on behind it.
        Some(after) if common(after) == Some(after.len()) => keys::after_prefix(after),
        Some(after) => Some([after, &b"\0"[..]].concat()),
        None => Some(Vec::new()),
    };
    let Some(start) = start else { return Ok(page) };
    walk.seek(&start.max(prefix.to_vec()))?;

    let mut visits = 0;
    while let Some(found) = walk.next()? {
        visits += 1;
        let Step { key, dentry } = found;
        if !key.starts_with(prefix) {
            break;
        }
        if std::str::from_utf8(&key).is_err() || key.len() > KEY_BYTES_MAX {
            page.hidden += 1;
            // What is below a hidden directory is hidden with it.
            walk.leave();
        } else if let Some(item) = show(kv, &key, dentry)? {
            let shared = common(&key);
            if page.items.len() == query.keys_max {
                page.next = page.items.last().map(last_key);
                return Ok(page);
            }
            match shared {
                Some(len) => {
                    page.items.push(ListItem::CommonPrefix(Bytes::copy_from_slice(&key[..len])));
                    match keys::after_prefix(&key[..len]) {
                        Some(behind) => walk.seek(&behind)?,
                        None => break,
                    }
                }
                None => page.items.push(item),
            }
        }
        if visits >= LIST_VISITS_MAX.saturating_add(query.keys_max) {
            page.next = Some(match page.items.last() {
                Some(ListItem::CommonPrefix(p)) if key.starts_with(p) => p.clone(),
                // A directory that was only passed must not be taken for a common prefix that was shown: its keys are to come.
                _ if walk.tree && key.ends_with(b"/") => [&key[..], b"\0"].concat().into(),
                _ => key.into(),
            });
            return Ok(page);
        }
    }
    Ok(page)
}

fn last_key(item: &ListItem) -> Name {
    match item {
        ListItem::Object { key, .. } => key.clone(),
        ListItem::CommonPrefix(p) => p.clone(),
    }
}

/// The object under a name, if it is one.
fn show(kv: &dyn KvRead, key: &[u8], dentry: Dentry) -> Done<Option<ListItem>> {
    let info = match dentry.kind {
        Kind::File => info(kv, dentry.ino)?,
        Kind::Dir => match info(kv, dentry.ino)? {
            None => return Ok(None),
            some => some,
        },
        _ => return Ok(None),
    };
    let inode = dir::inode(kv, dentry.ino)?;
    let info = with_etag(dentry.ino, &inode, info);
    Ok(Some(ListItem::Object { key: Bytes::copy_from_slice(key), attr: inode.attr(dentry.ino), info }))
}

/// A name met on the way: its whole key (a directory's ends in `/`).
struct Step {
    key: Vec<u8>,
    dentry: Dentry,
}

/// One directory on the walk's path.
struct Frame {
    dir: InodeId,
    /// Bytes of `path` that lead to it.
    path_len: usize,
    /// Names at or above this are still to come; `None`: no more.
    from: Option<Vec<u8>>,
    read: VecDeque<(Vec<u8>, Dentry)>,
    /// Names to read at once: few after a jump, more as the walk goes on.
    batch: usize,
}

struct Walk<'a> {
    kv: &'a dyn KvRead,
    tree: bool,
    root: InodeId,
    frames: Vec<Frame>,
    path: Vec<u8>,
}

impl Walk<'_> {
    fn push(&mut self, dir: InodeId, from: Vec<u8>) {
        self.frames.push(Frame { dir, path_len: self.path.len(), from: Some(from), read: VecDeque::new(), batch: 4 });
    }

    /// Sets the walk so that it goes on with the first key at or above `target`.
    fn seek(&mut self, target: &[u8]) -> Result<(), StateError> {
        self.frames.clear();
        self.path.clear();
        let (mut dir, mut rest) = (self.root, target);
        // A directory named by the target's next segment sorts before it, but holds keys that do not.
        while self.tree
            && let Some(slash) = rest.iter().position(|b| *b == b'/')
            && slash + 1 < rest.len()
            && let Some(d) = dir::find(self.kv, dir, &rest[..slash])?
            && d.kind == Kind::Dir
        {
            self.push(dir, [&rest[..=slash], &b"\0"[..]].concat());
            self.path.extend_from_slice(&rest[..=slash]);
            (dir, rest) = (d.ino, &rest[slash + 1..]);
        }
        self.push(dir, rest.to_vec());
        Ok(())
    }

    /// The next name in key order. A directory comes itself first; then the walk is inside it.
    fn next(&mut self) -> Result<Option<Step>, StateError> {
        while let Some(frame) = self.frames.last_mut() {
            self.path.truncate(frame.path_len);
            if frame.read.is_empty() {
                fill(self.kv, frame)?;
            }
            let Some((name, dentry)) = frame.read.pop_front() else {
                self.frames.pop();
                continue;
            };
            self.path.extend_from_slice(&name);
            let key = self.path.clone();
            if self.tree && dentry.kind == Kind::Dir {
                self.push(dentry.ino, Vec::new());
            }
            return Ok(Some(Step { key, dentry }));
        }
        Ok(None)
    }

    /// Passes what is below the name just met, if it is a directory.
    fn leave(&mut self) {
        if self.tree && self.path.ends_with(b"/") {
            self.frames.pop();
        }
    }
}

fn fill(kv: &dyn KvRead, frame: &mut Frame) -> Result<(), StateError> {
    let Some(from) = frame.from.take() else { return Ok(()) };
    let mut failed = Ok(());
    let read = &mut frame.read;
    let batch = frame.batch;
    kv.scan(&keys::dentry(frame.dir, &from), &keys::end_of(&keys::dentry(frame.dir, b"")), &mut |k, v| {
        match decode::<Dentry>(v) {
            Ok(d) => read.push_back((keys::dentry_name(k).to_vec(), d)),
            Err(e) => failed = Err(e),
        }
        if failed.is_err() || read.len() == batch { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed?;
    if frame.read.len() == batch
        && let Some((name, _)) = frame.read.back()
    {
        frame.from = Some([name, &b"\0"[..]].concat());
    }
    frame.batch = (batch * 2).min(256);
    Ok(())
}
