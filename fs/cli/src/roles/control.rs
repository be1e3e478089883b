//! What the control channel shows of a running cluster.

use super::data::Running;
use super::debt::{Debt, Fullness};
use super::images::{self, Images};
use super::mirrors;
use super::osds::{Change, settle};
use super::snapshots;
use crate::admin::proto::OsdRequest;
use crate::admin::server::Control;
use holdfast_meta_client::MetaError;
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_client::Objects;
use holdfast_objstore_proto::meta::{Bucket, Command, Owner, Shape};
use holdfast_objstore_proto::{Code, OsdId};
use holdfast_objstore_repair::Depth;
use prometheus_client::encoding::text;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Cluster {
    running: Arc<Running>,
    s3: Option<SocketAddr>,
    images: Arc<Images>,
}

impl Cluster {
    pub fn new(running: Arc<Running>, s3: Option<SocketAddr>) -> Self {
        Self { running, s3, images: Arc::default() }
    }

    /// Redundancy only: whether what is stored can still lose devices as its code promises.
    fn health(&self, missing_stripes: usize, buckets: &[(Bucket, bool)]) -> (&'static str, Vec<String>) {
        let mut reasons = self.running.losses();
        let (lost, repair) = (reasons.len(), self.running.repair.progress());
        let weak: Vec<&Bucket> = buckets.iter().filter(|(b, used)| *used && lost > b.code.m as usize).map(|(b, _)| b).collect();
        for b in &weak {
            reasons.push(format!(
                "the bucket {} has the code {} and cannot make up for {lost} OSDs",
                String::from_utf8_lossy(&b.name),
                b.code
            ));
        }
        if missing_stripes > 0 {
            reasons.push(format!("{missing_stripes} stripes wait for a missing shard"));
        }
        if repair.queued > 0 {
            reasons.push(format!("{} stripes are being repaired", repair.queued));
        }
        if repair.waiting > 0 {
            reasons.push(format!("{} stripes wait for an OSD that can take a shard", repair.waiting));
        }
        if repair.lost > 0 {
            reasons.push(format!("{} stripes have lost more than their code can replace", repair.lost));
        }
        let health = match lost {
            n if n > self.running.layout.code.m as usize || !weak.is_empty() || repair.lost > 0 => "failed",
            0 if reasons.is_empty() => "ok",
            _ => "degraded",
        };
        (health, reasons)
    }
}

impl Control for Cluster {
    fn status(&self) -> Value {
        let r = &self.running;
        let meta = r.service.status();
        let (mut health, mut reasons) = self.health(meta.missing, &meta.buckets);
        let copies = mirrors::reasons(&meta.mirrors, &meta.notes);
        if !copies.is_empty() && health == "ok" {
            health = "degraded";
        }
        reasons.extend(copies);
        if let Some(why) = meta.snapshot.as_ref().and_then(snapshots::reason) {
            reasons.push(why);
            if health == "ok" {
                health = "degraded";
            }
        }
        if r.unconfirmed.load(std::sync::atomic::Ordering::Acquire) {
            reasons.push(
                "the metadata is from before (a backup, or a log that may not be the newest): nothing is deleted that it does not know until \
                 `holdfast admin meta confirm`"
                    .into(),
            );
        }
        if let Some(why) = &meta.failed {
            reasons.push(format!("metadata: {why}"));
        }
        let usable = r.objects.space(r.layout.code);
        let (mut total, mut used, mut live, mut cleaning) = (0, 0, 0, 0);
        let settled = r.repair.progress().settled();
        let osds: Vec<Value> = r
            .osds
            .list()
            .iter()
            .map(|o| {
                let s = o.space();
                total += s.total;
                used += s.used;
                live += s.live;
                cleaning += s.debt;
                let (state, why) = match (o.failure(), r.damage(o)) {
                    (Some(why), _) => (if o.was_open() { "failed" } else { "lost" }, Some(why)),
                    (None, Some(what)) => (if o.rebuilding() { "rebuilding" } else { "damaged" }, Some(what)),
                    (None, None) if o.draining() && settled => ("drained", Some("no stripe needs it: it may be removed".to_string())),
                    (None, None) if o.draining() => ("draining", Some("its shards are being moved to the others".to_string())),
                    (None, None) => match o.slow() {
                        Some(took) => ("slow", Some(format!("a call has taken {} s and is not answered", took.as_secs()))),
                        None => ("up", None),
                    },
                };
                json!({ "id": o.id.to_string(), "path": o.path, "state": state, "why": why, "used": s.used, "live": s.live, "free": s.free, "total": s.total, "debt": s.debt,
                        "domain": o.domain(), "corrupt_met": r.reports.corrupt(o.id) })
            })
            .collect();
        let sessions: Vec<Value> = meta
            .sessions
            .iter()
            .map(|s| json!({ "id": s.id.to_string(), "client": s.client, "epoch": s.epoch.0, "caching": s.caching, "grants": s.grants, "open": s.open }))
            .collect();
        let mounted = |name: &[u8]| r.mount.as_ref().filter(|m| m.bucket.as_bytes() == name).map(|m| m.point.display().to_string());
        let buckets: Vec<Value> = meta
            .buckets
            .iter()
            .map(|(b, used)| {
                let shape = if b.shape == Shape::Tree { "tree" } else { "flat" };
                json!({ "name": String::from_utf8_lossy(&b.name), "code": b.code.to_string(), "shape": shape, "empty": !used, "mount": mounted(&b.name) })
            })
            .collect();
        let debt = Debt { cleaning_bytes: cleaning, worn_bytes: meta.stats.dead_bytes(), deleting: r.service.returning() };
        let full = Fullness::of(usable.free, usable.total, r.service.tight());
        json!({
            "health": health,
            "reasons": reasons,
            "warnings": full.warning(usable.free).into_iter().chain(r.stale.clone()).chain(r.rotten()).collect::<Vec<_>>(),
            "debt": debt,
            "address": self.s3.map(|a| format!("http://{a}")),
            "cluster": format!("{:032x}", r.layout.cluster),
            "code": r.layout.code.to_string(),
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "memory_bytes": r.shares.memory,
            "mounts": r.mount.iter().map(|m| m.point.display().to_string()).collect::<Vec<_>>(),
            "mount": r.mount.as_ref().map(|m| json!({ "point": m.point, "binding": m.binding, "transport": m.transport })),
            "osds": osds,
            "buckets": buckets,
            "space": { "total": total, "used": used, "live": live, "usable_total": usable.total, "usable_free": usable.free, "state": full },
            "sessions": sessions,
            "metadata": { "applied": meta.applied, "inodes": meta.stats.inodes, "stripes": meta.stats.stripes, "missing": meta.missing, "orphans_queued": meta.orphans_queued,
                          "packs": super::packs::status(&meta),
                          "checkpoints": meta.checkpoints, "recalls": meta.recalls, "evictions": meta.evictions, "log": mirrors::shown(&meta.mirrors),
                          "path": r.layout.meta_dir(), "snapshot": meta.snapshot.as_ref().map(snapshots::shown), "rebuilt": r.rebuilt },
            "repair": r.repair.progress(),
            "scrub": r.repair.scrub_status(),
            "reconcile": r.reconciler.progress(),
            "codec_kernel": holdfast_objstore_ec::kernel_name(),
        })
    }

    fn sync(&self, mount: String) -> BoxFuture<'static, Result<(), String>> {
        let r = self.running.clone();
        Box::pin(async move {
            let (Some(vfs), Some(m)) = (r.vfs.clone(), r.mount.as_ref()) else { return Err("this process has no mount".into()) };
            let same = mount.is_empty() || std::fs::canonicalize(&m.point).is_ok_and(|p| p == Path::new(&mount));
            if !same {
                return Err(format!("{mount} is not a mount of this process"));
            }
            // On the data thread: this one must stay free.
            let drained = r.data.spawn(async move { vfs.sync_all().await }).await;
            drained.map_err(|e| format!("the data thread ended: {e}"))?.map_err(|e| format!("something could not be written: {e}"))
        })
    }

    fn drop_caches(&self) -> BoxFuture<'static, Result<(), String>> {
        self.running.objects.drop_caches();
        Box::pin(std::future::ready(Ok(())))
    }

    fn create_bucket(&self, name: String, code: String) -> BoxFuture<'static, Result<(), String>> {
        let r = self.running.clone();
        Box::pin(async move {
            check_name(&name)?;
            let code: Code = if code.is_empty() { r.layout.code } else { code.parse()? };
            code.carried_by(r.objects.osds().len())?;
            // SAFETY: these calls only read the process's ids.
            let owner = unsafe { Owner { uid: libc::geteuid(), gid: libc::getegid() } };
            let told = name.clone();
            r.run(Command::CreateBucket { name: name.into(), shape: Shape::Tree, code, owner, mode: 0o755 }).await.map_err(|e| match e {
                MetaError::BucketExists => format!("the bucket {told} is already there"),
                other => format!("the bucket {told} could not be made: {other}"),
            })
        })
    }

    fn delete_bucket(&self, name: String) -> BoxFuture<'static, Result<(), String>> {
        let r = self.running.clone();
        Box::pin(async move {
            if let Some(m) = r.mount.as_ref().filter(|m| m.bucket == name) {
                return Err(format!("the bucket {name} is mounted on {}", m.point.display()));
            }
            r.run(Command::DeleteBucket { name: name.clone().into() }).await.map_err(|e| match e {
                MetaError::NoSuchBucket => format!("there is no bucket {name}"),
                MetaError::BucketNotEmpty => format!("the bucket {name} is not empty: delete what is in it first, open uploads too"),
                other => format!("the bucket {name} could not be deleted: {other}"),
            })
        })
    }

    fn osd(&self, request: OsdRequest) -> BoxFuture<'static, Result<String, String>> {
        let r = self.running.clone();
        Box::pin(async move {
            let id = u16::try_from(request.osd).map(OsdId).map_err(|_| format!("there is no osd.{}", request.osd))?;
            let (named, mount) = (PathBuf::from(&request.dir), r.mount.as_ref().map(|m| m.point.clone()));
            let dir = match request.dir.is_empty() {
                true => None,
                false => {
                    let settled = tokio::task::spawn_blocking(move || settle(&named, mount.as_deref())).await;
                    Some(settled.map_err(|e| e.to_string())?.map_err(|e| format!("{e:#}"))?)
                }
            };
            let change = match (request.action.as_str(), dir) {
                ("replace", dir) => Change::Replace(id, dir, request.format),
                ("add", Some(dir)) => Change::Add(dir, request.format),
                ("drain", None) => Change::Drain(id, true),
                ("undrain", None) => Change::Drain(id, false),
                ("remove", None) => Change::Remove(id),
                (other, _) => return Err(format!("{other} is nothing that can be done with an OSD")),
            };
            // On the data thread: OSDs are opened where they are served.
            let changing = r.clone();
            let changed = r.data.spawn(async move { changing.change_osds(change).await }).await;
            changed.map_err(|e| format!("the data thread ended: {e}"))?.map_err(|e| format!("{e:#}"))
        })
    }

    fn scrub(&self, deep: bool) {
        self.running.repair.scrub(if deep { Depth::Deep } else { Depth::Light });
    }

    fn meta(&self, action: String, id: u64) -> BoxFuture<'static, images::Answer> {
        let (images, running) = (self.images.clone(), self.running.clone());
        Box::pin(async move { images.ask(&running, &action, id).await })
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        // Those of the OSDs there are now: nothing can be taken out of a registry.
        let mut encoded = text::encode_registry(&mut text, &self.running.registry.lock());
        for registry in self.running.osds.list().iter().filter_map(|o| o.metrics()) {
            encoded = encoded.and_then(|()| text::encode_registry(&mut text, &registry));
        }
        match encoded.and_then(|()| text::encode_eof(&mut text)) {
            Ok(()) => text,
            Err(e) => format!("# metrics could not be written: {e}\n"),
        }
    }
}

/// A name that S3 clients can say too.
fn check_name(name: &str) -> Result<(), String> {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-');
    let bytes = name.as_bytes();
    if (3..=63).contains(&name.len()) && inner && edge(bytes.first().copied()) && edge(bytes.last().copied()) && !name.contains("..") {
        return Ok(());
    }
    Err(format!(
        "'{name}' is not a bucket's name: 3 to 63 lower-case letters, digits, dots and hyphens, with a letter or digit at both ends"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_are_those_that_s3_takes() {
        assert!(["abc", "a.b-c", "0xyz"].iter().all(|n| check_name(n).is_ok()));
        assert!(["ab", "Abc", "-abc", "abc.", "a..b", "a_b", "a/b", &"x".repeat(64)].iter().all(|n| check_name(n).is_err()));
    }
}
