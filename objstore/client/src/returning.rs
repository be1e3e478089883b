//! The seam to space that comes back by itself: what was retired and is not deleted yet.
//!
//! What always holds: asking costs nothing and never waits.

/// Who knows of stripes that are about to be deleted.
pub trait Returning: Send + Sync + 'static {
    /// Stripes and inodes that nobody can reach any more and that are not deleted yet. What somebody still has open does not count.
    fn pending(&self) -> u64;
    /// Asks for them to be deleted now rather than with others later.
    fn hurry(&self);
}
