//! Every limit of the state machine, in one table. They are part of the format: all members must agree on them.

/// Requests of one session that may be in flight (replies kept for it), beyond those it acknowledged.
pub const REPLIES_MAX: u64 = 4096;
/// Acknowledged replies are dropped this many at a time, so that the session's record is not rewritten by each command.
pub(crate) const REPLIES_TRIM: u64 = 64;
/// Sessions at once.
pub const SESSIONS_MAX: u32 = 16_384;
/// Bytes of the name a client gives itself.
pub const CLIENT_NAME_BYTES_MAX: usize = 256;
/// Ids granted at a time.
pub const GRANT_MAX: u32 = 1 << 20;
/// Ids in one block: the unit in which ranges are recorded.
pub(crate) const BLOCK_IDS: u64 = 512;
/// Blocks of one kind a session may hold. A block leaves when all its ids are spent; those with an id that was dropped on the way
/// (an overwritten stripe, a failed upload) stay, so past this the oldest are given up, or the grant is refused.
pub const BLOCKS_MAX: u32 = 65_536;
/// Nanoseconds after which a block may be given up: a write or an upload takes less from its id to its publish. With `BLOCKS_MAX` it
/// bounds how fast a session may drop ids: one of every block lets it take 18,000 a second without ever being refused.
pub const BLOCK_AGE_NS: i64 = 30 * 60 * 1_000_000_000;
/// Bytes of one name in a tree.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a symlink's target.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Links of one inode, and subdirectories of a directory.
pub const LINKS_MAX: u32 = i32::MAX as u32;
/// Bytes of a file: chunk numbers are 32 bits, and one past the last is still one.
pub const FILE_BYTES_MAX: u64 = (u32::MAX as u64) << 22;
/// Bytes an object may have to be copied by reference in one command.
pub const COPY_BYTES_MAX: u64 = 5 << 30;
/// Extents, and stripes, of one command.
pub const EXTENTS_MAX: usize = 65_536;
/// Inline bytes of one command.
pub const INLINE_BYTES_MAX: usize = 256 << 10;
/// Members of one pack.
pub const PACK_MEMBERS_MAX: usize = 4096;
/// Runs of one Relocate.
pub const RUNS_MAX: usize = 2048;
/// Buckets of a cluster.
pub const BUCKETS_MAX: u32 = 10_000;
/// Parts of an upload.
pub const PARTS_MAX: u16 = 10_000;
/// Bytes of the headers, checksums and ETag kept with an object.
pub const INFO_BYTES_MAX: usize = 16 << 10;
/// Uploads that were completed and are still answered when the client asks again.
pub const COMPLETED_UPLOADS_MAX: u64 = 10_000;
/// Fragments past which a chunk's map is kept as one record per 64 KiB.
pub(crate) const FRAGMENTS_MAX: usize = 64;
/// Chunks a truncation frees at once; what lies beyond is left to the reaper.
pub(crate) const CUT_CHUNKS_NOW: u32 = 16;
/// Pending cuts of one file. Publishes free two chunks for each one they make, newest cut first, so the stack cannot grow past
/// the logarithm of the file's chunks; this is its belt.
pub(crate) const CUTS_MAX: usize = 48;
/// Chunks one ReapOrphan may free.
pub const REAP_CHUNKS_MAX: u32 = 4096;
/// Names one page of a listing looks at, beyond what it returns.
pub(crate) const LIST_VISITS_MAX: usize = 20_000;
