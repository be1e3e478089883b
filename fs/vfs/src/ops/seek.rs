//! lseek with SEEK_DATA and SEEK_HOLE, from the layers a read looks through.

use super::read::Source;
use crate::acquire::Mode;
use crate::inode::chunk_range;
use crate::types::{Error, HandleId, Result, Seek};
use crate::vfs::Vfs;
use holdfast_meta_client::Use;
use holdfast_objstore_proto::meta::CHUNK_BYTES;

impl Vfs {
    /// The first offset at or after `offset` that is data, or a hole (the end of the file is one). `NoSuchOffset` past the end.
    pub async fn lseek(&self, id: HandleId, offset: u64, seek: Seek) -> Result<u64> {
        self.metrics().vfs_ops.inc();
        let inode = self.handle(id)?.inode.clone();
        let mut at = offset;
        loop {
            let size = match self.hold(&inode, Use::Read).await? {
                // Shared: all of it counts as data, which is always allowed.
                Mode::Through(attr) if seek == Seek::Data && offset < attr.size => return Ok(offset),
                Mode::Through(attr) if offset < attr.size => return Ok(attr.size),
                Mode::Through(_) => return Err(Error::NoSuchOffset),
                Mode::Held => inode.state.lock().size(),
            };
            if offset >= size || (at >= size && seek == Seek::Data) {
                return Err(Error::NoSuchOffset);
            }
            if at >= size {
                return Ok(size);
            }
            let range = at..chunk_range((at / CHUNK_BYTES) as u32).end.min(size);
            // The maps of the next chunks will be wanted too.
            let wanted = at..(range.end + 64 * CHUNK_BYTES).min(size);
            let Some(sources) = self.layers(&inode, &range, &wanted).await? else { continue };
            for source in sources {
                let (hole, len) = match source {
                    Source::Hole(n) => (true, n),
                    Source::Memory(d) => (false, d.len() as u64),
                    Source::Stripe(_, r) => (false, (r.end - r.start) as u64),
                };
                if hole == (seek == Seek::Hole) {
                    return Ok(at);
                }
                at += len;
            }
        }
    }
}
