//! Printing what an OSD's folder holds, for `holdfast dump`.

use super::record::{self, KIND_DELETE, KIND_DROP, KIND_FENCE, KIND_SHARD};
use super::superblock::{FILE, LOG_DIR, Superblock};
use crate::log;
use holdfast_objstore_base::disk::Disk;
use std::io::{self, Write};
use std::path::Path;

/// Prints the superblock and every record of the log, one a line, whatever their state. Changes nothing.
pub async fn dump(disk: &dyn Disk, dir: &Path, out: &mut (dyn Write + Send)) -> io::Result<()> {
    match disk.read_small(&dir.join(FILE)).map_err(io::Error::other)? {
        None => writeln!(out, "superblock: missing")?,
        Some(bytes) => match Superblock::decode(&bytes) {
            Ok(s) => writeln!(
                out,
                "superblock: {} of cluster {:032x}, log {:032x}, created {} ns, whole: {}",
                s.osd, s.cluster, s.log_id, s.created_ns, s.whole
            )?,
            Err(bad) => writeln!(out, "superblock: {bad}")?,
        },
    }
    log::dump(disk, &dir.join(LOG_DIR), &describe, out).await
}

fn describe(kind: u8, meta: &[u8]) -> String {
    let text = match kind {
        KIND_SHARD => record::decode_shard(meta).map(|h| {
            format!(
                "shard {} {} {:?} of {} bytes, digest {:016x}, {} {}, {} {} chunk {}",
                h.key, h.code, h.codec, h.stripe_len, h.digest, h.session, h.epoch, h.hint.bucket, h.hint.inode, h.hint.chunk
            )
        }),
        KIND_DELETE => record::decode_delete(meta).map(|ids| {
            let some: Vec<String> = ids.iter().take(8).map(|s| s.to_string()).collect();
            format!("delete of {}: {}{}", ids.len(), some.join(" "), if ids.len() > 8 { " …" } else { "" })
        }),
        KIND_DROP => record::decode_drop(meta).map(|keys| {
            let some: Vec<String> = keys.iter().take(8).map(|k| k.to_string()).collect();
            format!("drop of {}: {}{}", keys.len(), some.join(" "), if keys.len() > 8 { " …" } else { "" })
        }),
        KIND_FENCE => record::decode_fence(meta).map(|r| format!("fence of {} from {}", r.count, r.first)),
        other => Ok(format!("kind {other}")),
    };
    text.unwrap_or_else(|bad| format!("kind {kind}: {bad}"))
}
