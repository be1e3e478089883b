//! The seam to space that comes back by itself: what was retired and is not deleted yet, and what is dead in stripes that are partly alive.
//!
//! What always holds: asking costs nothing and never waits.

/// Who knows of stripes that are about to be deleted.
pub trait Returning: Send + Sync + 'static {
    /// Stripes and inodes that nobody can reach any more and that are not deleted yet. What somebody still has open does not count.
    fn pending(&self) -> u64;
    /// Data bytes that are dead in stripes which are partly alive, and that come back as those are rewritten; 0 when nobody rewrites them.
    fn worn(&self) -> u64;
    /// Bytes that rewriting has copied: while it grows, it gets on.
    fn rewritten(&self) -> u64;
    /// Asks for all of it now rather than later: deletions, and rewriting.
    fn hurry(&self);
}
