//! Telling what a folder of the metadata service holds, for `holdfast dump`: superblock, log, and every row of the state.
//!
//! What always holds: nothing is written, to no file: the database is opened over a file that keeps its writes in memory.
//! What is damaged is told of, with as much of the rest as can be had.
//! What it leaves out: whether the state makes sense (`meta/core`'s check).

use crate::image::{Piece, Root};
use crate::state::{self, dump_rows};
use crate::superblock::{self, Found};
use holdfast_meta_core::dump::describe;
use holdfast_meta_log::raft;
use holdfast_objstore_base::disk::{Disk, Open};
use holdfast_objstore_base::dump::{Line, Sink, hex};
use holdfast_objstore_proto::meta::Request;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// Which rows of the state are told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    All,
    /// The one with this key.
    Key(Vec<u8>),
    /// Those whose keys begin so.
    Prefix(Vec<u8>),
}

impl Rows {
    fn range(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        match self {
            Rows::All => (Bound::Unbounded, Bound::Unbounded),
            Rows::Key(key) => (Bound::Included(key.clone()), Bound::Included(key.clone())),
            Rows::Prefix(prefix) => {
                let end = holdfast_meta_core::dump::after_prefix(prefix);
                (Bound::Included(prefix.clone()), end.map_or(Bound::Unbounded, Bound::Excluded))
            }
        }
    }
}

/// Tells of `meta.super`.
pub fn dump_superblock(disk: &dyn Disk, dir: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    let line = Line::new("meta-superblock", &superblock::path(dir)).at(0);
    sink(match superblock::inspect(disk, dir) {
        Ok(Found::Ready(cluster)) => line.with("cluster", hex(&cluster)).with("state", "ready"),
        Ok(Found::HalfFormatted(cluster)) => line.with("cluster", hex(&cluster)).with("state", "being formatted"),
        Ok(Found::HalfRebuilt(cluster)) => line.with("cluster", hex(&cluster)).with("state", "being rebuilt"),
        Ok(Found::Newer { version }) => line.bad(format!("written by a newer version ({version})")),
        Ok(Found::Nothing | Found::Foreign(_)) => line.bad("it is missing"),
        Ok(Found::Damaged(why)) => line.bad(why),
        Err(e) => line.bad(e),
    })
}

/// Tells of the root of a snapshot, if there is one at `path`.
pub fn dump_root(disk: &dyn Disk, path: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    let line = Line::new("snapshot-root", path).at(0);
    let stripes = |p: &Piece| p.stripes.iter().map(|(id, len)| format!("{id} ({len})")).collect::<Vec<_>>().join(" ");
    let pieces = |r: &Root| r.pieces.iter().map(|p| format!("up to {}: {}", p.applied, stripes(p))).collect::<Vec<_>>();
    match disk.read_small(path) {
        Ok(None) => Ok(()),
        Ok(Some(bytes)) => sink(match Root::decode(&bytes) {
            Ok(root) => line
                .with("cluster", hex(&root.cluster))
                .with("number", root.number)
                .with("incarnation", root.incarnation)
                .with("unconfirmed", root.unconfirmed)
                .with("images", pieces(&root)),
            Err(why) => line.bad(why),
        }),
        Err(e) => sink(line.bad(e)),
    }
}

/// Tells of every record of the log. An error is the sink's.
pub async fn dump_log(disk: &dyn Disk, dir: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    let wal = superblock::wal_path(dir);
    raft::dump_mirrors(disk, &wal, sink)?;
    // A device may know the set of copies and have none.
    if disk.exists(&wal.join("log")) || disk.exists(&superblock::path(dir)) {
        raft::dump(disk, &wal, &describe_command, sink).await
    } else {
        Ok(())
    }
}

fn describe_command(line: Line, bytes: &[u8]) -> Line {
    match state::decode::<Request>(bytes) {
        Ok(request) => line.with("request", request),
        Err(why) => line.bad(format!("the command cannot be decoded: {why}")),
    }
}

/// Tells of the state's rows in the order of their keys. Blocks; not for a runtime's thread. An error is the sink's.
pub fn dump_state(disk: &dyn Disk, dir: &Path, rows: &Rows, sink: &mut Sink<'_>) -> io::Result<()> {
    let path = superblock::state_path(dir);
    let about = Line::new("state", &path);
    let file = match disk.open(&path, Open::Existing).and_then(|f| Ok((f.len()?, f))) {
        Ok((0, _)) => return sink(about.with("applied", 0)),
        Ok((_, file)) => file,
        Err(e) => return sink(about.bad(e)),
    };
    dump_rows(Arc::clone(&file), rows.range(), &mut |row| match row {
        state::Item::Mark(version, applied, tail) => {
            let line = about.clone().with("version", version).with("applied", applied);
            sink(if tail.is_empty() { line } else { raft::describe_tail(line, tail) })
        }
        state::Item::Row(key, Ok(value)) => sink(describe(about.part("row"), key, value)),
        state::Item::Row(key, Err(why)) => sink(about.part("row").with("key", hex(key)).bad(why)),
        state::Item::Damage(why) => sink(about.clone().bad(why)),
    })
}
