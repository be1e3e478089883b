//! What a command touches: which holders of grants must be asked before it is applied.
//!
//! What always holds: an inode whose attributes, data or names the command changes is named, and one whose data it reads. The answer holds for
//! the state it was asked of; whoever waits for recalls asks again before it applies. A command that will fail may name more or less.

use crate::fail::{Done, Fail};
use crate::record::{BucketRecord, UploadRecord, load};
use crate::{KvRead, StateError, bucket, dir, keys, object};
use holdfast_objstore_proto::meta::{Command, Kind, Name};
use holdfast_objstore_proto::{BucketId, InodeId};

/// One inode a command touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    pub ino: InodeId,
    pub kind: TouchKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TouchKind {
    /// Its data is read.
    Read,
    /// Its attributes or data change, or it goes away (any kind of inode).
    ChangeFile,
    /// A name in it appears, disappears or stands for something else.
    ChangeDir { name: Name },
}

/// The inodes `command` touches, in ascending order. Empty when it only concerns sessions, ids, stripes or parts.
pub fn touches(kv: &dyn KvRead, command: &Command) -> Result<Vec<Touch>, StateError> {
    let mut touched = Vec::new();
    match collect(kv, command, &mut touched) {
        Ok(()) => {}
        // The command will fail with this; what was found so far does no harm.
        Err(Fail::Meta(_)) => {}
        Err(Fail::State(e)) => return Err(e),
    }
    touched.sort_by(|a, b| a.ino.cmp(&b.ino).then_with(|| rank(&a.kind).cmp(&rank(&b.kind))));
    touched.dedup();
    Ok(touched)
}

fn rank(kind: &TouchKind) -> (u8, &[u8]) {
    match kind {
        TouchKind::Read => (0, b""),
        TouchKind::ChangeFile => (1, b""),
        TouchKind::ChangeDir { name } => (2, name),
    }
}

fn collect(kv: &dyn KvRead, command: &Command, out: &mut Vec<Touch>) -> Done<()> {
    use Command as C;
    let change = |ino| Touch { ino, kind: TouchKind::ChangeFile };
    let name_in = |ino, name: &Name| Touch { ino, kind: TouchKind::ChangeDir { name: name.clone() } };
    match command {
        C::Create { dir, name, .. } => out.push(name_in(*dir, name)),
        C::Link { dir, name, ino } => out.extend([name_in(*dir, name), change(*ino)]),
        C::Unlink { dir, name } | C::Rmdir { dir, name } => {
            out.push(name_in(*dir, name));
            out.extend(dir::find(kv, *dir, name)?.map(|d| change(d.ino)));
        }
        C::Rename { from_dir, from, to_dir, to, .. } => {
            out.extend([name_in(*from_dir, from), name_in(*to_dir, to)]);
            out.extend(dir::find(kv, *from_dir, from)?.map(|d| change(d.ino)));
            out.extend(dir::find(kv, *to_dir, to)?.map(|d| change(d.ino)));
        }
        C::SetAttr { ino, .. } | C::Truncate { ino, .. } => out.push(change(*ino)),
        C::Publish(p) => out.push(change(p.ino)),
        C::DeleteBucket { name } => out.push(change(bucket::by_name(kv, name)?.1.root)),
        C::PutObject(p) => {
            out.extend(p.copy_from.map(|(ino, _)| Touch { ino, kind: TouchKind::Read }));
            placed(kv, p.bucket, &p.key, out)?;
        }
        C::CompleteUpload { bucket, upload, .. } => {
            if let Some(u) = load::<UploadRecord>(kv, &keys::upload(*upload))? {
                placed(kv, *bucket, &u.key, out)?;
            }
        }
        C::DeleteObject { bucket, key, .. } => {
            let record: BucketRecord = bucket::by_id(kv, *bucket)?;
            if let Some(found) = object::find(kv, &record, key)? {
                out.push(change(found.dentry.ino));
                for (dir, name, child) in object::vanishing(kv, &found)? {
                    out.extend([name_in(dir, &name), change(child)]);
                }
            }
        }
        C::OpenSession { .. }
        | C::CloseSession
        | C::Evict { .. }
        | C::GrantStripes { .. }
        | C::GrantInodes { .. }
        | C::CreateBucket { .. }
        | C::CreateUpload { .. }
        | C::PutPart { .. }
        | C::AbortUpload { .. }
        | C::ReapOrphan { .. }
        | C::ForgetStripes { .. }
        | C::SwapStripe { .. }
        | C::Pack(_)
        | C::Relocate(_)
        | C::Restage { .. }
        | C::RaiseIncarnation { .. } => {}
    }
    Ok(())
}

/// A key that is PUT: the directory in which a name appears or changes (directories it makes are new, so nobody holds them), and
/// what the name stood for.
fn placed(kv: &dyn KvRead, bucket: BucketId, key: &Name, out: &mut Vec<Touch>) -> Done<()> {
    let record = bucket::by_id(kv, bucket)?;
    let spot = object::locate(kv, &record, key)?;
    let name = spot.missing.first().unwrap_or(&spot.name).clone();
    // A directory that becomes an object keeps its name; only it changes.
    if spot.found.is_none_or(|d| d.kind != Kind::Dir) {
        out.push(Touch { ino: spot.dir, kind: TouchKind::ChangeDir { name } });
    }
    out.extend(spot.found.map(|d| Touch { ino: d.ino, kind: TouchKind::ChangeFile }));
    Ok(())
}
