//! Commands: the only way state changes. Each is applied exactly once per (session, seq), deterministically.

use super::{Attr, AttrChange, Bucket, Extent, Inline, Kind, MetaError, Name, ObjectInfo, Pack, Shape, TimeNs};
use crate::{BucketId, Code, InodeId, InodeRange, SessionEpoch, SessionId, StripeId, StripeMeta, StripeRange, UploadId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the log carries. `seq` starts at 1 in each session and grows by one per request; a request that was applied
/// before is answered from the session's reply table. Everything up to `acked` has been received by the client and may be forgotten.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub seq: u64,
    pub acked: u64,
    pub command: Command,
}

/// Who asks, for new inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Append-only: a variant is never removed or reordered, new ones go to the end (postcard numbers them by position).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Starts a session (sent with session 0, epoch 0, seq 0). Replies `Session`.
    OpenSession { client: String },
    /// Ends a session in order: its ranges are retired, its replies forgotten. Unpublished stripes of its ranges are garbage.
    CloseSession,
    /// Raises the epoch of another session, which ends it (sent by the service itself).
    Evict { session: SessionId },
    /// Replies `Stripes`: ids for new stripes.
    GrantStripes { count: u32 },
    /// Replies `Inodes`: ids for new inodes.
    GrantInodes { count: u32 },

    /// `ino` is from the session's grant. mode is `& 0o7777`. A tree only. Replies `Attr`. In a directory with the sgid bit the
    /// new inode takes its group, and a directory the bit.
    Create { dir: InodeId, name: Name, ino: InodeId, kind: Kind, mode: u32, owner: Owner, rdev: u32, target: Name },
    /// Replies `Attr` of the linked inode.
    Link { dir: InodeId, name: Name, ino: InodeId },
    /// Removes a name that is not a directory. Replies `Unlinked`.
    Unlink { dir: InodeId, name: Name },
    /// Removes an empty directory. Replies `Unlinked`.
    Rmdir { dir: InodeId, name: Name },
    /// As rename(2) with `RENAME_NOREPLACE` or `RENAME_EXCHANGE`. Replies `Renamed`.
    Rename { from_dir: InodeId, from: Name, to_dir: InodeId, to: Name, mode: RenameMode },
    /// chmod, chown, utimens (never the size). Replies `Attr`.
    SetAttr { ino: InodeId, change: AttrChange },
    /// Sets the size; takes part in the inode's numbering: `number` must be `attr.number + 1`. Replies `Attr`.
    Truncate { ino: InodeId, number: u64, size: u64, mtime: TimeNs },
    /// Makes durable stripes reachable. Replies `Attr`.
    Publish(Publish),

    /// Replies `Bucket`. The root directory of a tree gets mode 0755 (given) and `owner`.
    CreateBucket { name: Name, shape: Shape, code: Code, owner: Owner, mode: u32 },
    /// Only an empty one without uploads. Replies `Done`.
    DeleteBucket { name: Name },

    /// The one commit of a PUT or a copy: swaps a new inode under a key. Replies `Put`.
    PutObject(PutObject),
    /// Removes a key; parents that a PUT made vanish with their last key. Replies `Removed`: what the key was, if it was.
    DeleteObject { bucket: BucketId, key: Name, condition: Condition },
    /// Replies `Upload`.
    CreateUpload { bucket: BucketId, key: Name, info: ObjectInfo },
    /// A part's stripes; replaces a part of the same number. Replies `Part`.
    PutPart {
        bucket: BucketId,
        upload: UploadId,
        number: u16,
        size: u64,
        etag: String,
        checksums: Vec<(String, String)>,
        extents: Vec<Extent>,
        stripes: Vec<Arc<StripeMeta>>,
        inline: Vec<Inline>,
    },
    /// Joins parts (number, ETag) in order into an object. Replies `Put`; a retry after success replies the same.
    CompleteUpload {
        bucket: BucketId,
        upload: UploadId,
        ino: InodeId,
        parts: Vec<(u16, String)>,
        info: ObjectInfo,
        owner: Owner,
        part_bytes_min: u64,
        condition: Condition,
    },
    /// Replies `Done`.
    AbortUpload { bucket: BucketId, upload: UploadId },

    /// Frees up to `chunks_max` chunks of an orphan (an inode without names that nobody holds open), and in the end the inode. Sent by
    /// the service. Replies `Reaped { done }`.
    ReapOrphan { ino: InodeId, chunks_max: u32 },
    /// These retired stripes have been deleted at their OSDs (durably): forget them. Sent by the service. Replies `Done`.
    ForgetStripes { stripes: Vec<StripeId> },
    /// Repair's compare-and-swap: the stripe's record becomes `new` if it is still `old`. Replies `Swapped`.
    SwapStripe { old: Arc<StripeMeta>, new: Arc<StripeMeta> },
    /// The packer's compare-and-swap of many small stripes. Replies `Packed`.
    Pack(Pack),
    /// The packer's compare-and-swap of runs of files whose stripes are mostly dead. Replies `Packed`.
    Relocate(Relocate),
    /// Inline bytes that still wait to be packed, once more, so that the log need not keep their old entries. Sent by the service. Replies
    /// `Done`.
    Restage { inline: Vec<Inline> },
    /// What was granted before may have been granted once more by commands that are lost: the incarnation goes up by one, and to `at_least`,
    /// so that no stripe id is given twice. Sent by the service, before anybody is served. Replies `Done`.
    RaiseIncarnation { at_least: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

/// New extents of one inode, with the attributes that belong to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Publish {
    pub ino: InodeId,
    /// `attr.number + 1`, or the whole Publish is refused; a Publish that fails otherwise (no space) still consumes its number.
    pub number: u64,
    /// In order of writing: a later one lies over an earlier one. Only stripes in `stripes` and `inline`.
    pub extents: Vec<Extent>,
    /// Records of the new stripes, all durable on their write quorum, ids from the session's ranges.
    pub stripes: Vec<Arc<StripeMeta>>,
    /// New stripes whose bytes are here; they are durable with the command.
    pub inline: Vec<Inline>,
    /// The new size; never smaller than the committed one (use Truncate).
    pub size: u64,
    pub mtime: TimeNs,
    pub ctime: TimeNs,
    /// Bits to clear of suid and sgid, because the file was written to.
    pub clear_suid: bool,
}

/// Runs of files that were copied into one new stripe: each is mapped there if the file still maps it where it was copied from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Relocate {
    pub bucket: BucketId,
    /// Durable on its write quorum, id from the session's ranges.
    pub stripe: Arc<StripeMeta>,
    pub runs: Vec<Run>,
}

/// A run of a file on a run of a stripe, within one chunk, and where its bytes are now too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub ino: InodeId,
    /// From the file's first byte.
    pub offset: u64,
    pub len: u32,
    pub from: StripeId,
    pub from_at: u32,
    /// In the new stripe.
    pub at: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PutObject {
    pub bucket: BucketId,
    pub key: Name,
    /// The new inode, from the session's grant.
    pub ino: InodeId,
    pub size: u64,
    /// A key that ends in `/` in a tree makes a directory (size must be 0).
    pub extents: Vec<Extent>,
    pub stripes: Vec<Arc<StripeMeta>>,
    /// As in a Publish.
    pub inline: Vec<Inline>,
    pub info: ObjectInfo,
    /// Owner and mode of the file and of parents it makes; a file that it replaces keeps its own.
    pub owner: Owner,
    pub condition: Condition,
    /// Copy by reference: take size and extents from this inode if its change counter is still this one.
    pub copy_from: Option<(InodeId, u64)>,
}

/// Checked inside the commit. All that are set must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Condition {
    /// If-None-Match: *
    pub absent: bool,
    /// If-Match: this ETag (`*`: any object). On an absent key `NotFound`.
    pub etag: Option<String>,
}

/// What a command answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Session {
        session: SessionId,
        epoch: SessionEpoch,
    },
    Stripes(StripeRange),
    Inodes(InodeRange),
    Attr(Attr),
    /// The inode whose name went away, with the links it has left.
    Unlinked {
        ino: InodeId,
        nlink: u32,
    },
    /// `replaced`: the inode that lost its name to the moved one, and its links left.
    Renamed {
        moved: InodeId,
        replaced: Option<(InodeId, u32)>,
    },
    Bucket(Bucket),
    Put {
        attr: Attr,
        etag: String,
        replaced: Option<InodeId>,
    },
    Removed {
        ino: Option<InodeId>,
    },
    Upload(UploadId),
    Reaped {
        done: bool,
    },
    Swapped {
        swapped: bool,
    },
    Error(MetaError),
    /// When the part was made.
    Part {
        modified: TimeNs,
    },
    /// How many members are found in the pack now; of a Relocate, how many runs are mapped to the new stripe, in whole or in part.
    Packed {
        moved: u32,
    },
}
