//! `Meta`: one session's view of the metadata service, by function call or by RPC.
//!
//! **Grants.** A session opened with `caching: true` (a mount) is granted EXCL on the inodes and directories it looks up, reads the
//! attributes of, creates or opens, when nobody else has them. Under EXCL on a file it may cache data and attributes and buffer writes; under
//! EXCL on a directory it may cache its names (also absent ones) and its attributes. Without it: nothing, kernel time-outs 0.
//! A session with `caching: false` (a gateway) is never granted anything.
//!
//! **Recalls.** When another session uses something in a way its holder must know of, the service calls [`SessionEvents::recall`] on
//! the holder and waits; the holder flushes, publishes, invalidates, and answers by completing the future: the grant is then gone.
//! A file held by a session that declared it may write (see [`Meta::acquire`]) is recalled by any foreign use; one held for reading only, and a
//! directory, by a foreign change. A holder's own calls never recall from itself. A holder that neither answers nor gets on
//! with its flush until the deadline is evicted; what it submits for the inode meanwhile, and [`Meta::progress`], move the deadline, within bounds.
//!
//! **Races.** Every grant carries a stamp that grows; a recall carries the stamp it takes away. A reply whose grant's stamp is not above the
//! newest recall the session has seen for that inode grants nothing.

use bytes::Bytes;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{
    Attr, Bucket, Command, DirEntry, Entry, ListPage, ListQuery, MappedExtent, MetaResult, Name, ObjectInfo, Reply, Upload, UploadPart,
};
use holdfast_objstore_proto::{BucketId, InodeId, SessionEpoch, SessionId, StripeId, UploadId};
use std::ops::Range;
use std::sync::Arc;

/// A licence to cache one inode or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// EXCL, with its stamp.
    Excl { stamp: u64 },
    /// Nothing: read and write through, kernel time-outs 0.
    Through,
}

/// The answer to a lookup.
#[derive(Debug, Clone)]
pub struct Looked {
    /// `None`: no such name (which may be cached under `dir_grant`).
    pub entry: Option<Entry>,
    pub dir_grant: Grant,
    /// On the entry's inode; `Through` when there is none.
    pub grant: Grant,
}

/// What a session declares when it acquires a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It will only read: a foreign read needs no recall.
    Read,
    /// It may buffer writes: any foreign use recalls.
    Write,
}

/// Taking back a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    pub ino: InodeId,
    /// The grant with this stamp, and older ones.
    pub stamp: u64,
    /// For a directory: the name about to change, when it is one name.
    pub name: Option<Name>,
}

/// What the service tells a session. Called on any thread; must not block.
pub trait SessionEvents: Send + Sync + 'static {
    /// Complete the future when nothing of the grant is left: writes published, caches and kernel caches invalidated.
    fn recall(&self, recall: Recall) -> BoxFuture<'static, ()>;
    /// The session is over: drop dirty data, EIO once per handle, drop caches.
    fn evicted(&self);
}

/// A session. Calls may be made concurrently from any thread's runtime; commands of one session are ordered by when `submit` is called.
pub trait Meta: Send + Sync + 'static {
    fn session(&self) -> (SessionId, SessionEpoch);

    /// Ends the session in order. Later calls answer `Evicted`.
    fn close_session(&self) -> BoxFuture<'_, ()>;

    // ---- reads: answered from committed state after any recall they need ----

    /// One name in a directory.
    fn lookup(&self, dir: InodeId, name: Name) -> BoxFuture<'_, MetaResult<Looked>>;
    fn getattr(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<(Attr, Grant)>>;
    fn readlink(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<Bytes>>;
    /// Entries with cookies above `after`, in cookie order; empty at the end. The attributes come from committed state: a
    /// holder overlays its own newer ones. Grants nothing on the entries; the grant is on the directory.
    #[expect(clippy::type_complexity, reason = "an entry and its attributes travel together")]
    fn readdir(&self, dir: InodeId, after: u64, entries_max: usize) -> BoxFuture<'_, MetaResult<(Vec<(DirEntry, Attr)>, Grant)>>;
    /// The parent of a directory (itself for a root).
    fn parent(&self, dir: InodeId) -> BoxFuture<'_, MetaResult<InodeId>>;
    /// The committed map of the chunks in `chunks`, in file order, clipped to nothing. What the service keeps inline comes with it. From the holder
    /// itself: never waits for a recall.
    fn extents(&self, ino: InodeId, chunks: Range<u32>) -> BoxFuture<'_, MetaResult<Vec<MappedExtent>>>;

    fn bucket(&self, name: Name) -> BoxFuture<'_, MetaResult<Bucket>>;
    /// All buckets in byte order.
    fn buckets(&self) -> BoxFuture<'_, MetaResult<Vec<Bucket>>>;
    /// The object under a key; a directory only for a key that ends in `/`.
    fn resolve(&self, bucket: BucketId, key: Name) -> BoxFuture<'_, MetaResult<(Attr, ObjectInfo)>>;
    /// As S3 lists. In a tree, a directory that a PUT of `name/` made is an object; others show only by what is in them.
    fn list(&self, bucket: BucketId, query: ListQuery) -> BoxFuture<'_, MetaResult<ListPage>>;
    /// Uploads in order of (key, id), after that pair, at most `uploads_max`.
    fn uploads(
        &self,
        bucket: BucketId,
        prefix: Name,
        after: Option<(Name, UploadId)>,
        uploads_max: usize,
    ) -> BoxFuture<'_, MetaResult<Vec<Upload>>>;
    /// An upload and its parts with numbers above `after`, at most `parts_max`.
    fn upload_parts(
        &self,
        bucket: BucketId,
        upload: UploadId,
        after: u16,
        parts_max: usize,
    ) -> BoxFuture<'_, MetaResult<(Upload, Vec<UploadPart>)>>;
    /// For each id: is it referred to, waiting for its deletion, or in a range of a session that lives? (Repair's walks drop the others.)
    fn stripes_live(&self, stripes: Vec<StripeId>) -> BoxFuture<'_, MetaResult<Vec<bool>>>;

    // ---- changes ----

    /// Runs a command exactly once: after any recall it needs, returns when it is durable and applied. `Reply::Error` becomes `Err`.
    /// For a caching session, the inode a `Create` makes and the directories it changes are granted as by a lookup: ask `acquire`.
    fn submit(&self, command: Command) -> BoxFuture<'_, MetaResult<Reply>>;

    /// Whether small writes of `bytes` in all may travel inside their command now. When not (too much waits to be packed), they are
    /// written as stripes. Cheap.
    fn inline_room(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }

    // ---- grants and handles ----

    /// Asks for EXCL on an inode or directory, waiting for foreign uses in progress to end. Idempotent; `Use::Write` upgrades.
    fn acquire(&self, ino: InodeId, using: Use) -> BoxFuture<'_, MetaResult<(Attr, Grant)>>;
    /// Says that the flush a recall of this inode asked for gets on: some of it is stored. Moves the deadline of the recall. Cheap.
    fn progress(&self, ino: InodeId) {
        let _ = ino;
    }
    /// Gives grants back (the kernel forgot the inode; everything is published). To the session itself a release is a recall of the newest
    /// stamp it knows: a reply that crosses it and carries that stamp grants nothing.
    fn release(&self, inos: Vec<InodeId>);
    /// The session has a handle open on the inode: it outlives its last name until `closed` or the session's end. Counted. `Stale` if it is gone.
    fn opened(&self, ino: InodeId) -> BoxFuture<'_, MetaResult<()>>;
    fn closed(&self, ino: InodeId);
}

/// The service, as those who open sessions see it.
pub trait MetaService: Send + Sync + 'static {
    /// `client` names the session in `status`.
    fn connect(&self, client: &str, caching: bool, events: Arc<dyn SessionEvents>) -> BoxFuture<'_, MetaResult<Arc<dyn Meta>>>;
}

/// Events for a session that caches nothing.
pub struct NoEvents;

impl SessionEvents for NoEvents {
    fn recall(&self, _: Recall) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
    fn evicted(&self) {}
}
