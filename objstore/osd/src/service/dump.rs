//! Telling what an OSD's folder holds, for `holdfast dump`.

use super::record::{self, KIND_COPY, KIND_DELETE, KIND_DROP, KIND_FENCE, KIND_SHARD};
use super::snapshot;
use super::superblock::{FILE, LOG_DIR, Superblock};
use crate::log::{self, Describe};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::dump::{Line, Sink};
use std::io;
use std::path::Path;

/// Tells of the superblock and of every record of the log, whatever their state. Changes nothing; an error is the sink's.
pub async fn dump(disk: &dyn Disk, dir: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    let line = Line::new("osd-superblock", &dir.join(FILE)).at(0);
    sink(match disk.read_small(&dir.join(FILE)) {
        Ok(None) => line.bad("it is missing"),
        Err(e) => line.bad(e),
        Ok(Some(bytes)) => match Superblock::decode(&bytes) {
            Ok(s) => {
                let line =
                    line.with("osd", s.osd.0).show("cluster", format!("{:032x}", s.cluster)).show("log", format!("{:032x}", s.log_id));
                let line = line.show("device", format!("{:032x}", s.device)).with("created_ns", s.created_ns);
                line.with("state", if s.whole { "whole" } else { "being formatted" })
            }
            Err(bad) => line.bad(bad),
        },
    })?;
    log::dump(disk, &dir.join(LOG_DIR), &Shards, sink).await
}

/// What OSDs keep in their logs.
struct Shards;

impl Describe for Shards {
    fn needs_payload(&self, _: u8, _: &[u8]) -> bool {
        false
    }

    fn record(&self, line: Line, kind: u8, meta: &[u8], _: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        sink(match kind {
            KIND_SHARD | KIND_COPY => match record::decode_shard(meta) {
                Ok(h) => {
                    let line = line
                        .named(if kind == KIND_COPY { "copy" } else { "shard" })
                        .show("stripe", h.key.stripe)
                        .with("shard", h.key.shard)
                        .show("code", h.code);
                    let line = line.with("codec", h.codec).with("stripe_bytes", h.stripe_len).show("digest", format!("{:016x}", h.digest));
                    let line = line.with("session", h.session.0).with("session_epoch", h.epoch.0);
                    line.with("bucket", h.hint.bucket).with("inode", h.hint.inode.0).with("chunk", h.hint.chunk)
                }
                Err(bad) => line.named("shard").bad(bad),
            },
            KIND_DELETE => match record::decode_delete(meta) {
                Ok(ids) => line.named("delete").with("stripes", ids.iter().map(ToString::to_string).collect::<Vec<_>>()),
                Err(bad) => line.named("delete").bad(bad),
            },
            KIND_DROP => match record::decode_drop(meta) {
                Ok(keys) => line.named("drop").with("shards", keys.iter().map(ToString::to_string).collect::<Vec<_>>()),
                Err(bad) => line.named("drop").bad(bad),
            },
            KIND_FENCE => match record::decode_fence(meta) {
                Ok(range) => line.named("fence").show("first", range.first).with("count", range.count),
                Err(bad) => line.named("fence").bad(bad),
            },
            other => line.with("kind", other).bad("a record of a kind that this program does not know"),
        })
    }

    fn checkpoint(&self, line: Line, content: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        snapshot::dump(line, content, sink)
    }
}
