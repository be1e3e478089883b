//! Backups and checks of the metadata, for the control channel.
//!
//! What always holds: at most one backup is made at a time; one that nobody asks for any more is let go of, and with it the room in the state's
//! file that it keeps.
//! What it leaves out: the backup's file (the client writes it).

use super::data::Running;
use super::snapshots;
use holdfast_meta_server::image::Export;
use holdfast_meta_server::superblock;
use holdfast_objstore_base::real::RealDisk;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A backup is let go of when nobody asked for more of it for this long.
const IDLE: Duration = Duration::from_secs(60);

/// The backup being made.
#[derive(Default)]
pub struct Images {
    open: Mutex<Option<Open>>,
}

struct Open {
    id: u64,
    /// `None` while a piece is being read.
    export: Option<Export>,
    /// Raised by each piece.
    pieces: u64,
}

pub type Answer = Result<(Value, Vec<u8>), String>;

impl Images {
    /// One request: `backup`, `more` of it, `check`, `snapshot`, or `confirm` a restore.
    pub async fn ask(self: &Arc<Self>, running: &Arc<Running>, action: &str, id: u64) -> Answer {
        match action {
            "backup" => self.begin(running).await,
            "more" => self.more(id).await,
            "check" => check(running).await,
            "confirm" => confirm(running),
            "snapshot" => snapshot(running).await,
            other => Err(format!("{other}: this version knows no such request")),
        }
    }

    async fn begin(self: &Arc<Self>, running: &Arc<Running>) -> Answer {
        if self.open.lock().is_some() {
            return Err("another backup is being made; try again when it is done".into());
        }
        let export = export(running).await?;
        let (head, start) = (export.head().clone(), export.start());
        let id = head.wall_ns;
        *self.open.lock() = Some(Open { id, export: Some(export), pieces: 0 });
        tokio::spawn(let_go(self.clone(), id));
        Ok((json!({ "id": id, "applied": head.applied, "wall_ns": head.wall_ns }), start))
    }

    async fn more(&self, id: u64) -> Answer {
        let taken = self.open.lock().as_mut().filter(|o| o.id == id).and_then(|o| o.export.take());
        let Some(mut export) = taken else { return Err("this backup was let go of; begin again".into()) };
        let read = tokio::task::spawn_blocking(move || (export.next(), export)).await;
        let (next, export) = read.map_err(|e| e.to_string())?;
        let rows = export.rows();
        let mut open = self.open.lock();
        match next {
            Ok(Some(bytes)) => {
                if let Some(o) = open.as_mut().filter(|o| o.id == id) {
                    (o.export, o.pieces) = (Some(export), o.pieces + 1);
                }
                Ok((json!({ "rows": rows }), bytes))
            }
            Ok(None) => {
                *open = None;
                Ok((json!({ "rows": rows }), Vec::new()))
            }
            Err(e) => {
                *open = None;
                Err(e.to_string())
            }
        }
    }
}

/// Drops a backup whose client went away.
async fn let_go(images: Arc<Images>, id: u64) {
    let mut seen = None;
    loop {
        tokio::time::sleep(IDLE).await;
        let mut open = images.open.lock();
        match open.as_ref().filter(|o| o.id == id) {
            Some(o) if seen == Some(o.pieces) => {
                *open = None;
                return;
            }
            Some(o) => seen = Some(o.pieces),
            None => return,
        }
    }
}

/// On the data thread, where the service lives.
async fn export(running: &Arc<Running>) -> Result<Export, String> {
    let (service, cluster) = (running.service.clone(), running.layout.cluster.to_be_bytes());
    let export = running.data.spawn(async move { service.export(cluster).await });
    export.await.map_err(|e| format!("the data thread ended: {e}"))?.map_err(|e| e.to_string())
}

async fn check(running: &Arc<Running>) -> Answer {
    let export = export(running).await?;
    let applied = export.head().applied;
    let complaints = tokio::task::spawn_blocking(move || export.check()).await.map_err(|e| e.to_string())?;
    let log = running.service.status();
    let mut said = complaints;
    said.extend(log.failed);
    Ok((json!({ "applied": applied, "complaints": said, "inodes": log.stats.inodes, "stripes": log.stats.stripes }), Vec::new()))
}

/// On the data thread, as `export`.
async fn snapshot(running: &Arc<Running>) -> Answer {
    let service = running.service.clone();
    let made = running.data.spawn(async move { service.snapshot().await });
    let made = made.await.map_err(|e| format!("the data thread ended: {e}"))??;
    Ok((snapshots::shown(&made), Vec::new()))
}

fn confirm(running: &Arc<Running>) -> Answer {
    superblock::confirm(&RealDisk::new(), &running.layout.meta_dir(), running.layout.cluster.to_be_bytes()).map_err(|e| e.to_string())?;
    running.unconfirmed.store(false, std::sync::atomic::Ordering::Release);
    Ok((json!({}), Vec::new()))
}
