//! statfs: what a user can really store.

use super::NAME_MAX;
use crate::types::{BLKSIZE, StatFs};
use crate::vfs::Vfs;

/// Inodes are bounded by space only; tools want to see some free.
const FILES: u64 = 1 << 40;

impl Vfs {
    pub fn statfs(&self) -> StatFs {
        self.metrics().vfs_ops.inc();
        let space = self.objects.space(self.bucket.code);
        let bsize = BLKSIZE as u64;
        let free = space.free / bsize;
        StatFs {
            bsize: BLKSIZE,
            blocks: space.total / bsize,
            bfree: free,
            bavail: free,
            files: FILES,
            ffree: FILES,
            namelen: NAME_MAX as u32,
        }
    }
}
