//! Every metric of the crate. Counters only grow; tests assert their differences.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::{Registry, Unit};

macro_rules! metrics {
    ($($(#[doc = $doc:literal])* $name:ident $(: $unit:ident)?),* $(,)?) => {
        /// Counters of one mount.
        #[derive(Default)]
        pub struct Metrics {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }
        impl Metrics {
            /// Registers every counter under its field's name.
            pub fn register(&self, registry: &mut Registry) {
                $(metrics!(@reg registry, self, $name, concat!($($doc),*) $(, $unit)?);)*
            }
        }
    };
    (@reg $r:ident, $s:ident, $name:ident, $doc:expr) => { $r.register(stringify!($name), $doc, $s.$name.clone()) };
    (@reg $r:ident, $s:ident, $name:ident, $doc:expr, $unit:ident) => {
        $r.register_with_unit(stringify!($name), $doc, Unit::$unit, $s.$name.clone())
    };
}

metrics! {
    /// Operations begun.
    vfs_ops,
    /// Bytes read by callers.
    vfs_read: Bytes,
    /// Bytes written by callers.
    vfs_written: Bytes,
    /// Bytes copied on the write path.
    vfs_copied: Bytes,
    /// Stripes written to the object cluster.
    vfs_stripes_written,
    /// Bytes sent in Publish commands instead of stripes.
    vfs_inline: Bytes,
    /// Flush calls made to the object cluster.
    vfs_flushes,
    /// Publish commands.
    vfs_publishes,
    /// Extents published.
    vfs_extents_published,
    /// Map reads from metadata.
    vfs_map_reads,
    /// Bytes asked to be read ahead.
    vfs_prefetched: Bytes,
    /// Reads that fell into what was read ahead.
    vfs_readahead_hits,
    /// Recalls answered.
    vfs_recalls,
    /// Writes that waited for the budget.
    vfs_budget_waits,
    /// Writes that waited because one inode had too much unwritten or unpublished.
    vfs_inode_waits,
    /// Write errors recorded for handles.
    vfs_write_errors,
    /// Rounds of publishing because a stripe found no room.
    vfs_room_publishes,
    /// Stripes superseded before they were published, and deleted.
    vfs_stripes_superseded,
    /// Evictions of the session.
    vfs_evictions,
}
