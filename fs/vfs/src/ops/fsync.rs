//! fsync, fdatasync, fsyncdir.

use crate::types::{Error, HandleId, Result};
use crate::vfs::Vfs;

impl Vfs {
    /// Returns when all that was written before the call is on stable media and reachable. The file's name is: creations are durable when they
    /// return. `datasync` saves nothing here: data and what reaches it are one Publish.
    pub async fn fsync(&self, id: HandleId, _datasync: bool) -> Result<()> {
        self.metrics().vfs_ops.inc();
        let handle = self.handle(id)?;
        handle.synced();
        self.sync_for(&handle).await
    }

    /// Changes of names are durable when they return: nothing is left to do.
    pub async fn fsyncdir(&self, id: HandleId) -> Result<()> {
        self.metrics().vfs_ops.inc();
        self.handle(id).map(|_| ())
    }

    /// Space cannot be reserved, and holes are not punched yet.
    pub async fn fallocate(&self, id: HandleId, _mode: i32, _offset: u64, _len: u64) -> Result<()> {
        self.metrics().vfs_ops.inc();
        self.handle(id)?;
        Err(Error::NotSupported)
    }
}
