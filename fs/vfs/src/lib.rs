//! POSIX semantics over `Meta` and `Objects`: what a mount does, without FUSE and without sockets.
//!
//! What always holds: nothing is cached without a grant; data is durable before it is reachable; a read sees every write that returned
//! before it; a lock is never held across an await, and the budget is charged before any lock.
//! What it leaves out: the kernel's wire format (fs/fuse), names over S3 (objstore/s3), where bytes live (objstore/client).
//!
//! # Operations
//! Methods of [`Vfs`], all `async`, all `&self`, callable concurrently from any thread:
//! ```text
//! lookup(Caller, parent: NodeId, name: Bytes) -> Result<LookupReply>          forget(&[(NodeId, u64)])            (not async)
//! getattr(NodeId, Option<HandleId>) -> Result<AttrReply>                      setattr(Caller, NodeId, SetAttrArgs) -> Result<AttrReply>
//! create(Caller, CreateArgs) -> Result<CreateReply>                           mknod(Caller, MknodArgs) -> Result<EntryReply>   (mkdir too)
//! symlink(Caller, parent: NodeId, name: Bytes, target: Bytes) -> Result<EntryReply>
//! link(NodeId, new_parent: NodeId, new_name: Bytes) -> Result<EntryReply>     readlink(NodeId) -> Result<Bytes>
//! unlink(parent: NodeId, name: Bytes) -> Result<()>                           rmdir(parent: NodeId, name: Bytes) -> Result<()>
//! rename(RenameArgs) -> Result<()>
//! open(NodeId, OpenFlags) -> Result<OpenReply>                                read(ReadArgs) -> Result<Vec<Bytes>>
//! write(WriteArgs) -> Result<u32>                                             flush(HandleId) -> Result<()>
//! fsync(HandleId, datasync: bool) -> Result<()>                               release(HandleId)                   (not async)
//! lseek(HandleId, offset: u64, Seek) -> Result<u64>                           fallocate(HandleId, mode: i32, offset: u64, len: u64) -> Result<()>
//! opendir(NodeId) -> Result<OpenReply>                                        releasedir(HandleId)                (not async)
//! readdir(HandleId, after: u64, fill: &mut (dyn FnMut(&DirItem) -> bool + Send)) -> Result<()>
//! readdirplus(the same)        `fill` answers false when the item did not fit: it is then not counted as looked up, and the call ends
//! fsyncdir(HandleId) -> Result<()>                                            statfs() -> StatFs                  (not async)
//! sync_all() -> Result<()>     shutdown() -> Result<()>
//! ```
//! xattr operations do not exist (the adapter answers EOPNOTSUPP), nor does copy_file_range (ENOSYS).

mod acquire;
mod budget;
mod error;
mod evict;
mod extent;
mod forgotten;
mod full;
mod garbage;
mod handle;
mod inline;
mod inode;
mod lease;
pub mod metrics;
mod ops;
mod pages;
mod pending;
mod publish;
mod readahead;
mod recall;
mod session;
pub mod types;
mod vfs;
mod writeback;

pub use metrics::Metrics;
pub use types::*;
pub use vfs::Vfs;
