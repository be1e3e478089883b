//! `holdfast admin meta …`: backup, restore and check of the metadata.
//!
//! What always holds: a backup's file appears under its name only whole and durable; nothing of a cluster is changed before the whole backup
//! was read and its operator agreed.

use crate::admin::client::Client;
use crate::args::AdminMeta;
use crate::layout::{self, ClusterFile, Layout};
use crate::roles::{mirrors, snapshots, storage};
use crate::{credentials, lock};
use anyhow::{Context, bail, ensure};
use holdfast_meta_log::raft;
use holdfast_meta_server::image::{self, Reader};
use holdfast_objstore_base::clock::Clock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::{self, RealClock, RealDisk};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub async fn run(command: AdminMeta) -> anyhow::Result<()> {
    match command {
        AdminMeta::Backup { file, data } => backup(&file, &data).await,
        AdminMeta::Snapshot { data } => snapshot(&data).await,
        AdminMeta::Check { data, json } => check(&data, json).await,
        AdminMeta::Confirm { data } => confirm(&data).await,
        // Its work blocks, and brings its own runtime.
        AdminMeta::Restore { file, data, yes } => tokio::task::spawn_blocking(move || restore(&file, &data, yes)).await?,
    }
}

async fn backup(file: &Path, data: &Path) -> anyhow::Result<()> {
    let mut client = Client::by_data(data).await?;
    let partial = PathBuf::from(format!("{}.partial-{}", file.display(), std::process::id()));
    let mut out =
        OpenOptions::new().write(true).create_new(true).open(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    let copied = copy(&mut client, &mut out).await;
    let (about, rows, bytes) = match copied {
        Ok(done) => done,
        Err(e) => {
            drop(std::fs::remove_file(&partial));
            return Err(e.context("no backup was made"));
        }
    };
    out.sync_all()?;
    std::fs::rename(&partial, file).with_context(|| format!("cannot name the backup {}", file.display()))?;
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    println!(
        "{}: {rows} records, {bytes} bytes, up to command {}, {}",
        file.display(),
        about["applied"],
        when(about["wall_ns"].as_u64().unwrap_or(0))
    );
    Ok(())
}

/// Copies a backup; answers what it is of, its records and its bytes.
async fn copy(client: &mut Client, out: &mut File) -> anyhow::Result<(Value, u64, u64)> {
    let (about, start) = client.meta("backup", 0).await?;
    let id = about["id"].as_u64().context("the process answered nonsense")?;
    out.write_all(&start)?;
    let (mut bytes, mut shown) = (start.len() as u64, 0);
    loop {
        let (said, more) = client.meta("more", id).await?;
        let rows = said["rows"].as_u64().unwrap_or(0);
        if more.is_empty() {
            progress(None);
            return Ok((about, rows, bytes));
        }
        out.write_all(&more)?;
        bytes += more.len() as u64;
        if bytes >> 23 != shown {
            shown = bytes >> 23;
            progress(Some(format!("{rows} records, {} MiB", bytes >> 20)));
        }
    }
}

/// A line that is written over, for people; nothing where nobody looks.
fn progress(line: Option<String>) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{}", line.unwrap_or_default());
    }
}

/// Days and seconds, since no calendar is needed to compare two of them.
fn when(wall_ns: u64) -> String {
    let ago = RealClock.wall_ns().saturating_sub(wall_ns) / 1_000_000_000;
    match ago {
        0..120 => format!("{ago} s ago"),
        120..7200 => format!("{} min ago", ago / 60),
        7200..172_800 => format!("{} h ago", ago / 3600),
        _ => format!("{} days ago", ago / 86_400),
    }
}

/// The cluster of a data folder that no process serves, with its folders locked.
fn stopped(data: &Path, disk: &RealDisk) -> anyhow::Result<(Layout, Vec<lock::Lock>)> {
    let file = layout::read(disk, data)?
        .with_context(|| format!("{} is not a Holdfast data folder (it has no {})", data.display(), layout::FILE))?;
    stand_in(&file, disk)?;
    let layout = layout::examine(disk, &file.dirs, None, None, 0)?;
    let mut locks = Vec::new();
    for dir in layout.dirs.iter().filter(|d| d.exists()) {
        locks.push(lock::take(dir)?);
    }
    Ok((layout, locks))
}

/// A first folder that is new and empty gets its cluster file from the others: it is to hold the metadata again.
fn stand_in(file: &ClusterFile, disk: &RealDisk) -> anyhow::Result<()> {
    let first = &file.dirs[file.home];
    if file.index == file.home || layout::read(disk, first)?.is_some() {
        return Ok(());
    }
    if disk.exists(first) {
        let names = disk.list(first)?;
        ensure!(
            names.iter().all(|n| n == "lost+found"),
            "{} is where the metadata lies, and holds other files; empty it first",
            first.display()
        );
    }
    disk.create_dir_all(first)?;
    let file = ClusterFile { index: file.home, ..file.clone() };
    disk.write_small(&first.join(layout::FILE), &serde_json::to_vec_pretty(&file)?, 0o644)?;
    Ok(())
}

fn log_config(layout: &Layout, disk: &RealDisk) -> raft::Config {
    raft::Config { mirrors: mirrors::config(layout, disk, false), ..raft::Config::new(storage::random_u128(), false) }
}

async fn check(data: &Path, as_json: bool) -> anyhow::Result<()> {
    let report = match Client::by_data(data).await {
        Ok(mut client) => client.meta("check", 0).await?.0,
        Err(_) => {
            let data = data.to_path_buf();
            tokio::task::spawn_blocking(move || check_stopped(&data)).await??
        }
    };
    let complaints: Vec<&str> = report["complaints"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if as_json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        complaints.iter().for_each(|c| println!("{c}"));
        println!(
            "checked up to command {}: {}",
            report["applied"],
            if complaints.is_empty() { "sound".into() } else { format!("{} complaints", complaints.len()) }
        );
    }
    ensure!(complaints.is_empty(), "the metadata is not sound");
    Ok(())
}

fn check_stopped(data: &Path) -> anyhow::Result<Value> {
    let disk = RealDisk::new();
    let (layout, _locks) = stopped(data, &disk)?;
    let log = log_config(&layout, &disk);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (applied, complaints) =
        real::runtime::block_on(async move { image::check_folder(&disk, &layout.meta_dir(), layout.cluster.to_be_bytes(), &log).await })?;
    Ok(serde_json::json!({ "applied": applied, "complaints": complaints }))
}

fn restore(file: &Path, data: &Path, yes: bool) -> anyhow::Result<()> {
    let open = || -> anyhow::Result<Reader<BufReader<File>>> {
        let file = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        Ok(Reader::open(BufReader::with_capacity(1 << 20, file))?)
    };
    let unusable = || format!("{} cannot be used", file.display());
    // All of it is read before anything is asked or changed.
    let mut all = open().with_context(unusable)?;
    while all.block(|_, _| ()).with_context(unusable)? {}
    let head = all.head().clone();
    let disk = RealDisk::new();
    let (layout, _locks) = stopped(data, &disk)?;
    let cluster = layout.cluster.to_be_bytes();
    ensure!(head.cluster == cluster, "{} is a backup of another cluster; nothing was changed", file.display());
    let (log, dir) = (log_config(&layout, &disk), layout.meta_dir());
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (look, at, config) = (shared.clone(), dir.clone(), log.clone());
    let found = real::runtime::block_on(async move { image::newest(&look, &at, cluster, &config).await })?;
    println!("the backup: {} records, up to command {}, {}", all.rows(), head.applied, when(head.wall_ns));
    match found.log {
        Some((index, now)) => println!("what is there: up to command {index}, {}", when(u64::try_from(now).unwrap_or(0))),
        None => println!("what is there: no part of the metadata log can be read"),
    }
    found.faults.iter().for_each(|f| println!("  {f}"));
    let lost = found.log.map_or(0, |(index, _)| index.saturating_sub(head.applied));
    match found.log {
        Some(_) => println!("lost by the restore: {lost} commands after the backup"),
        None => println!("lost by the restore: everything after the backup"),
    }
    println!("files deleted or overwritten since are named again, and may be unreadable: their data may be gone");
    if !yes {
        ensure!(std::io::stdin().is_terminal(), "nothing was changed; say --yes to restore");
        print!("restore? Type yes: ");
        std::io::stdout().flush()?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        if line.trim() != "yes" {
            bail!("nothing was changed");
        }
    }
    let image = open()?;
    let done = real::runtime::block_on(async move {
        image::restore(shared, &dir, cluster, image, Arc::new(RealClock), log, |rows| progress(Some(format!("{rows} records")))).await
    })??;
    progress(None);
    // What they tell of is another history.
    snapshots::forget(&layout, &disk);
    if !disk.exists(&layout.credentials()) {
        let mut random = [0; 60];
        real::random_bytes(&mut random);
        credentials::store(&disk, &layout.credentials(), &credentials::generate(random))?;
        println!("the credentials were gone: new ones are in {}", layout.credentials().display());
    }
    println!("restored {} records up to command {}, incarnation {}", done.rows, done.applied, done.incarnation);
    println!("until `holdfast admin meta confirm --data {}` nothing is deleted that the metadata does not know", data.display());
    Ok(())
}

async fn snapshot(data: &Path) -> anyhow::Result<()> {
    let made = Client::by_data(data).await?.meta("snapshot", 0).await?.0;
    println!("snapshot {}: up to command {}, {} images, {} bytes", made["number"], made["applied"], made["images"], made["bytes"]);
    Ok(())
}

async fn confirm(data: &Path) -> anyhow::Result<()> {
    Client::by_data(data).await?.meta("confirm", 0).await?;
    println!("confirmed: what the metadata does not know is deleted from now on");
    Ok(())
}
