//! `holdfast dump`: every record that lies in the folders of a stopped cluster, or in an image of its metadata, one a line, for people and
//! for programs.
//!
//! What always holds: nothing is written, and what does not decode is a line with an error and makes the exit non-zero.
//! What it leaves out: secrets. Of the credentials only the access key is told.

use crate::args::Dump;
use crate::roles::snapshots;
use crate::{credentials, layout};
use anyhow::{Context, bail, ensure};
use holdfast_meta_server::image;
use holdfast_meta_server::{Rows, dump_log, dump_root, dump_state, dump_superblock};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::dump::{Line, Sink, unhex};
use holdfast_objstore_base::real::{self, DeviceError, RealDisk};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

pub fn run(args: Dump) -> anyhow::Result<()> {
    let path = std::path::absolute(&args.path).with_context(|| format!("{} is not a path", args.path.display()))?;
    let disk = RealDisk::new();
    let folder = if real::device::is_block_device(&path) {
        Folder::Device
    } else if is_image(&path) {
        Folder::Image
    } else {
        ensure!(
            path.is_dir(),
            "{} is neither a folder nor a backup of metadata; name a data folder, an OSD's folder or device, the metadata's folder, or a backup",
            args.path.display()
        );
        Folder::of(&path)?
    };
    let in_use = folder != Folder::Image && path.ancestors().take(2).any(crate::lock::is_held);
    ensure!(!in_use, "{} is in use by a running holdfast process; stop that one first", path.display());
    if matches!(folder, Folder::Device) {
        // Who serves a device holds it alone. Any other fault is a line of the dump.
        if let Err(e @ DeviceError::InUse(_)) = disk.attach_device(&path) {
            bail!("{e}; stop a holdfast process that serves it first");
        }
        disk.detach_device(&path);
    }
    let rows = match (&args.key, &args.prefix) {
        (Some(key), _) => Rows::Key(bytes(key)?),
        (None, Some(prefix)) => Rows::Prefix(bytes(prefix)?),
        (None, None) => Rows::All,
    };
    // A damaged database makes redb panic; that is caught and told as a line, and needs no second report.
    std::panic::set_hook(Box::new(|panic| tracing::debug!("{panic}")));
    let mut out = io::BufWriter::new(io::stdout());
    let (mut told, mut bad) = (0u64, 0u64);
    let mut print = |line: Line| {
        told += 1;
        bad += line.is_bad() as u64;
        if args.json { writeln!(out, "{}", line.to_json()) } else { writeln!(out, "{line}") }
    };
    let ended = folder.dump(&disk, &path, &rows, &mut print).and_then(|()| out.flush());
    match ended {
        // Whoever read it has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        other => other.context("cannot print")?,
    }
    ensure!(told > 0, "{} holds no row of such a key", path.display());
    ensure!(bad == 0, "{bad} of {told} records of {} do not decode; they are the lines with an error", path.display());
    Ok(())
}

fn bytes(text: &str) -> anyhow::Result<Vec<u8>> {
    unhex(text)
        .with_context(|| format!("'{text}' is not a key: write its bytes as hexadecimal digits, as a dump prints them, for example 20"))
}

/// What a folder is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folder {
    Data,
    Osd,
    /// An OSD's block device.
    Device,
    Meta,
    /// A file: a backup of the metadata.
    Image,
}

fn is_image(path: &Path) -> bool {
    let mut first = [0; 8];
    path.is_file() && File::open(path).and_then(|mut f| f.read_exact(&mut first)).is_ok() && image::looks_like_one(&first)
}

impl Folder {
    fn of(path: &Path) -> anyhow::Result<Folder> {
        let has = |name: &str| path.join(name).exists();
        Ok(if has(layout::FILE) || has("meta") || has("osd.0") {
            Folder::Data
        } else if has("meta.super") || has("state.redb") || has("wal") {
            Folder::Meta
        } else if has("superblock") || has("log") {
            Folder::Osd
        } else {
            bail!("{} is no folder of Holdfast's; name a data folder, an OSD's folder or the metadata's", path.display())
        })
    }

    fn dump(self, disk: &RealDisk, path: &Path, rows: &Rows, sink: &mut Sink<'_>) -> io::Result<()> {
        match (self, rows) {
            (Folder::Data, Rows::All) => data(disk, path, sink),
            (Folder::Data, _) => dump_state(disk, &path.join("meta"), rows, &mut only_rows(sink)),
            (Folder::Meta, Rows::All) => meta(disk, path, sink),
            (Folder::Meta, _) => dump_state(disk, path, rows, &mut only_rows(sink)),
            (Folder::Osd, Rows::All) => osd(disk, path, sink),
            (Folder::Device, Rows::All) => device(disk, path, sink),
            (Folder::Image, Rows::All) => image::dump(path, BufReader::with_capacity(1 << 20, File::open(path)?), sink),
            (Folder::Osd | Folder::Device | Folder::Image, _) => {
                Err(io::Error::other("--key and --prefix name rows of the metadata: name a data folder or the metadata's"))
            }
        }
    }
}

/// With a filter only rows are asked for, and what is wrong.
fn only_rows<'a, 'b>(sink: &'a mut Sink<'b>) -> impl FnMut(Line) -> io::Result<()> + Send + use<'a, 'b> {
    |line| if line.kind() == "row" || line.is_bad() { sink(line) } else { Ok(()) }
}

fn osd(disk: &RealDisk, path: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    dump_root(disk, &path.join(snapshots::FILE), sink)?;
    real::runtime::block_on(holdfast_objstore_osd::dump(disk, path, sink))?
}

fn device(disk: &RealDisk, path: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    if !real::dump_volume(path, sink)? {
        return Ok(());
    }
    match disk.attach_device(path) {
        Ok(_) => osd(disk, path, sink),
        Err(e) => sink(Line::new("volume", path).bad(e)),
    }
}

fn meta(disk: &RealDisk, path: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    dump_superblock(disk, path, sink)?;
    real::runtime::block_on(dump_log(disk, path, sink))??;
    let names = disk.list(path).map_err(io::Error::other)?;
    for ballast in names.iter().filter(|n| n.starts_with("ballast.")).map(|n| path.join(n)) {
        // No record in it: room kept back for the state's file.
        let line = Line::new("ballast", &ballast).at(0);
        sink(match std::fs::metadata(&ballast) {
            Ok(found) => line.with("bytes", found.len()),
            Err(e) => line.bad(e),
        })?;
    }
    dump_state(disk, path, &Rows::All, sink)
}

fn data(disk: &RealDisk, path: &Path, sink: &mut Sink<'_>) -> io::Result<()> {
    let line = Line::new("cluster-file", &path.join(layout::FILE)).at(0);
    let (mut osds, mut devices) = (Vec::new(), Vec::new());
    let mut first = path.join("meta").join("meta.super").exists() || path.join("meta").join("state.redb").exists();
    sink(match layout::read(disk, path) {
        Ok(Some(file)) => {
            osds.extend(file.osds.iter().filter(|o| o.dir == file.index && o.device.is_none()).map(|o| o.path.clone()));
            devices.extend(file.osds.iter().filter(|o| o.device.is_some() && file.index == 0).map(|o| o.path.clone()));
            first |= file.index == file.home;
            line.with("value", file)
        }
        Ok(None) => line.bad("it is missing"),
        Err(e) => line.bad(format!("{e:#}")),
    })?;
    if first {
        let keys = path.join("credentials");
        let line = Line::new("credentials", &keys).at(0);
        sink(match credentials::load(disk, &keys) {
            Ok(keys) => line.with("access_key", keys.access_key),
            Err(e) => line.bad(format!("{e:#}")),
        })?;
        let scrub = path.join("scrub.json");
        if let Some(bytes) = disk.read_small(&scrub).map_err(io::Error::other)? {
            let line = Line::new("scrub", &scrub).at(0);
            sink(match serde_json::from_slice::<serde_json::Value>(&bytes) {
                Ok(value) => line.with("value", value),
                Err(e) => line.bad(e),
            })?;
        }
        meta(disk, &path.join("meta"), sink)?;
    } else if path.join("meta").exists() {
        // A copy of the log of commands.
        real::runtime::block_on(dump_log(disk, &path.join("meta"), sink))??;
    }
    // Also those that a damaged cluster file does not name.
    let names = disk.list(path).map_err(io::Error::other)?;
    osds.extend(names.into_iter().filter(|n| n.starts_with("osd.") && path.join(n).is_dir()));
    osds.sort();
    osds.dedup();
    osds.iter().try_for_each(|name| osd(disk, &path.join(name), sink))?;
    devices.iter().try_for_each(|at| device(disk, Path::new(at), sink))
}
