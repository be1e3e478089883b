//! `holdfast bench …`: wires the passthrough rung and what the running process says of itself into the harness.

use crate::admin::client::Client;
use anyhow::Context;
use holdfast_bench_harness as harness;
use holdfast_fs_fuse::passthrough::Passthrough;
use holdfast_fs_fuse::{MountOptions, mount};
use holdfast_objstore_base::real::{self, device::is_block_device};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

pub fn ceiling(data: PathBuf, at: PathBuf, out: PathBuf, quick: bool) -> anyhow::Result<()> {
    let status = crate::alone(async {
        Client::by_mount(&at).await?; // a clear error when it is no mount of ours
        Client::by_data(&data).await?.status().await
    })?;
    // fio runs in a folder of its own.
    harness::ceiling(harness::CeilingOptions {
        data: std::path::absolute(data)?,
        mount: std::path::absolute(at)?,
        out: std::path::absolute(out)?,
        quick,
        fio_jobs_dir: None,
        raw_dir: None,
        pass_mount: Some(Box::new(mount_pass)),
        product: product(&status),
        stop: stop_on_signals()?,
    })
}

/// A flag that an interrupt or a termination sets, so that the run takes away what it made.
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let (set, (tell, told)) = (stop.clone(), std::sync::mpsc::channel());
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let waited = crate::alone(async {
            let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            let _ = tell.send(());
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            Ok(())
        });
        if waited.is_ok() {
            set.store(true, Ordering::Relaxed);
        }
    })?;
    told.recv().context("signals cannot be waited for")?;
    Ok(stop)
}

fn product(s: &serde_json::Value) -> harness::Product {
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_string();
    harness::Product {
        version: text(&s["version"]),
        code: text(&s["code"]),
        transport: text(&s["mount"]["transport"]),
        binding: text(&s["mount"]["binding"]),
        daemon_pid: s["pid"].as_u64().and_then(|p| u32::try_from(p).ok()),
        memory_bytes: s["memory_bytes"].as_u64(),
        devices: s["osds"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|o| PathBuf::from(text(&o["path"])))
            .filter(|p| is_block_device(p))
            .collect(),
    }
}

pub fn render(results: PathBuf) -> anyhow::Result<()> {
    harness::render_beside(&results).with_context(|| format!("cannot draw {}", results.display()))?;
    Ok(())
}

/// The passthrough rung: the same loop as the product's own mount, on a thread of its own, until the guard is dropped.
fn mount_pass(backing: &Path, at: &Path) -> anyhow::Result<Box<dyn Any>> {
    let options = MountOptions { fsname: "holdfast-pass".into(), ..MountOptions::at(at) };
    let (tell, told) = std::sync::mpsc::channel();
    let backing = backing.to_path_buf();
    let thread = real::runtime::spawn_thread("pass", move || async move {
        let mounted = Passthrough::new(backing).map_err(anyhow::Error::from).and_then(|p| Ok(mount(&options, Arc::new(p))?));
        match mounted {
            Ok(m) => {
                let unmounter = m.unmounter();
                if tell.send(Ok(unmounter)).is_ok()
                    && let Err(e) = m.run().await
                {
                    tracing::warn!("the passthrough ended: {e}");
                }
            }
            Err(e) => drop(tell.send(Err(e))),
        }
    })?;
    let unmounter = told.recv().context("the passthrough thread ended early")??;
    struct Guard(holdfast_fs_fuse::Unmounter, Option<std::thread::JoinHandle<std::io::Result<()>>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if let Err(e) = self.0.unmount_blocking() {
                tracing::warn!("the passthrough could not be unmounted: {e}");
                return;
            }
            if let Some(t) = self.1.take() {
                drop(t.join());
            }
        }
    }
    Ok(Box::new(Guard(unmounter, Some(thread))))
}
