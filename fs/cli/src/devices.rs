//! OSDs on block devices: which devices make the cluster, whether they may be touched, and the question before they are formatted.
//!
//! What always holds: nothing is written before every device has been looked at and somebody has said yes; a device that holds
//! anything known is refused and left as it is. A device is known by the id of the volume on it, whatever it is called today.

use crate::layout::{self, FILE, Layout, Life, OsdPlace, State};
use anyhow::{Context, bail, ensure};
use holdfast_objstore_base::real::device::{self, DeviceFacts};
use holdfast_objstore_base::real::probe::{Contents, contents};
use holdfast_objstore_base::real::{DEVICE_BYTES_MIN, DeviceError, RealDisk, random_bytes};
use holdfast_objstore_osd::{Inspect, inspect};
use holdfast_objstore_proto::Code;
use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Whether the arguments of `up` speak of devices: the folder for the metadata, if so.
pub fn meta_dir(named: &[PathBuf], meta: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let first = named.iter().find(|p| device::is_block_device(p));
    match (first, meta) {
        (None, None) => Ok(None),
        (Some(d), None) => bail!("{} is a block device: say with --meta DIR where the metadata and the credentials go", d.display()),
        (_, Some(meta)) => {
            if let Some(folder) = named.iter().find(|p| p.exists() && !device::is_block_device(p)) {
                bail!("{} is not a block device; --meta goes with devices, and folders go without it", folder.display());
            }
            Ok(Some(layout::absolute(meta)?))
        }
    }
}

/// Looks at the devices and says what cluster they are or could become. Devices of a known cluster are opened; nothing is written.
pub fn examine(disk: &RealDisk, named: &[PathBuf], meta: PathBuf, code: Option<Code>, random: u128) -> anyhow::Result<Layout> {
    let named: Vec<PathBuf> = named.iter().map(|d| layout::absolute(d)).collect::<anyhow::Result<_>>()?;
    let real = |p: &PathBuf| std::fs::canonicalize(p).unwrap_or_else(|_| p.clone());
    for (i, d) in named.iter().enumerate() {
        ensure!(!named[..i].iter().any(|e| real(e) == real(d)), "{} is named twice", d.display());
    }
    ensure!(!meta.exists() || meta.is_dir(), "{} is not a folder", meta.display());
    match layout::read(disk, &meta)? {
        None => {
            layout::refuse_foreign(disk, &meta)?;
            new_layout(disk, named, meta, code, random)
        }
        Some(known) => {
            ensure!(
                known.state == State::Ready,
                "{} was left half formatted by a first start that did not finish; it holds no data: remove it and start again",
                meta.display()
            );
            ensure!(
                known.osds.iter().all(|o| o.device.is_some()),
                "the OSDs of this cluster lie in folders; start it without --meta: holdfast up {}",
                known.dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(" ")
            );
            let stored: Code = known.code.parse().map_err(anyhow::Error::msg)?;
            if let Some(c) = code {
                ensure!(c == stored, "this cluster was made with --code {stored}, --code {c} does not match");
            }
            let cluster = u128::from_str_radix(&known.cluster, 16).with_context(|| format!("the cluster id in {FILE} is damaged"))?;
            let places = find(disk, &named, known.osds)?;
            Ok(layout::finish(false, cluster, stored, vec![meta], places).at(known.epoch, known.next_osd, 0))
        }
    }
}

fn new_layout(disk: &RealDisk, named: Vec<PathBuf>, meta: PathBuf, code: Option<Code>, random: u128) -> anyhow::Result<Layout> {
    ensure!(!named.is_empty(), "{} has no cluster yet: name the devices to make one of", meta.display());
    ensure!(named.len() <= 64, "{} OSDs are too many for one process: at most 64", named.len());
    let code = code.unwrap_or_else(|| Code::default_for(named.len()));
    code.carried_by(named.len()).map_err(anyhow::Error::msg)?;
    for path in &named {
        refuse_used(disk, path, None)?;
    }
    let place = |(i, path): (usize, &PathBuf)| -> anyhow::Result<OsdPlace> {
        let device = Some(new_id());
        let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_string();
        Ok(OsdPlace { id: i as u16, dir: 0, path, device, life: Life::default() })
    };
    let places = named.iter().enumerate().map(place).collect::<anyhow::Result<_>>()?;
    Ok(layout::finish(true, random, code, vec![meta], places))
}

/// An id for a volume, as the cluster file has it.
pub fn new_id() -> String {
    let mut id = [0; 16];
    random_bytes(&mut id);
    format!("{:032x}", u128::from_le_bytes(id))
}

/// Refuses a device that must not be formatted. `ours`: the cluster that asks, where there is one. Changes nothing.
pub fn refuse_used(disk: &RealDisk, path: &Path, ours: Option<u128>) -> anyhow::Result<()> {
    let shown = path.display();
    ensure!(device::is_block_device(path), "{shown} is not a block device, or not there; nothing was changed");
    let facts = device::facts(path).with_context(|| format!("cannot look at {shown}"))?;
    if let Some(at) = &facts.mounted {
        bail!("{shown} is mounted on {}; nothing was changed", at.display());
    }
    ensure!(facts.partitions.is_empty(), "{shown} has partitions ({}); nothing was changed", facts.partitions.join(", "));
    ensure!(facts.holders.is_empty(), "{shown} is part of {}; nothing was changed", facts.holders.join(", "));
    ensure!(!facts.read_only, "{shown} is read-only; nothing was changed");
    ensure!(
        facts.bytes >= DEVICE_BYTES_MIN,
        "{shown} is too small: {} MiB, at least {} are needed",
        facts.bytes >> 20,
        DEVICE_BYTES_MIN >> 20
    );
    match device::check_unused(path) {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => bail!("{}; nothing was changed", DeviceError::InUse(path.into())),
        other => other.with_context(|| format!("cannot open {shown}"))?,
    }
    let erase = "to use it all the same, erase it first (blkdiscard, or zeroes over its first and last MiB)";
    match contents(path).with_context(|| format!("cannot read {shown}"))? {
        Contents::Nothing => {}
        Contents::Foreign(what) => bail!("{shown} holds {what}; nothing was changed; {erase}"),
        Contents::Volume(_) => {
            // A format that did not end left no data behind.
            let found = match disk.attach_device(path) {
                Ok(_) => inspect(disk, path)?,
                Err(e) => Inspect::Damaged(e.to_string()),
            };
            disk.detach_device(path);
            match found {
                Inspect::Empty | Inspect::HalfFormatted => {}
                Inspect::Osd(s) if ours == Some(s.cluster) => {
                    bail!("{shown} holds {} of this cluster, of now or a former time; nothing was changed; {erase}", s.osd)
                }
                Inspect::Osd(s) => {
                    bail!("{shown} holds {} of another cluster ({:08x}); nothing was changed; {erase}", s.osd, s.cluster >> 96)
                }
                _ => bail!("{shown} holds an OSD of another cluster; nothing was changed; {erase}"),
            }
        }
    }
    Ok(())
}

/// Finds the device of every OSD by the id of its volume, among those named and then among all there are, and opens it.
fn find(disk: &RealDisk, named: &[PathBuf], mut places: Vec<OsdPlace>) -> anyhow::Result<Vec<OsdPlace>> {
    let ids: Vec<Option<u128>> = places.iter().map(|p| u128::from_str_radix(p.device.as_deref()?, 16).ok()).collect();
    ensure!(ids.iter().all(Option::is_some), "{FILE} is damaged: an OSD's device has no id");
    let mut at: BTreeMap<u128, PathBuf> = BTreeMap::new();
    for path in named {
        if !device::is_block_device(path) {
            tracing::warn!("{} is not there, or no block device any more", path.display());
            continue;
        }
        match contents(path).with_context(|| format!("cannot read {}", path.display()))? {
            Contents::Volume(id) if ids.contains(&Some(id)) => {
                if let Some(other) = at.insert(id, path.clone()) {
                    bail!("{} is a copy of {}; nothing was changed", path.display(), other.display());
                }
            }
            Contents::Volume(_) => bail!("{} holds an OSD of another cluster; nothing was changed", path.display()),
            Contents::Foreign(what) => bail!("{} holds {what} and no OSD of this cluster; nothing was changed", path.display()),
            Contents::Nothing => tracing::warn!("{} is empty: its OSD is lost", path.display()),
        }
    }
    if ids.iter().flatten().any(|id| !at.contains_key(id)) {
        for path in device::all_devices() {
            // One that cannot be read is none of ours, or as good as lost.
            if let Ok(Contents::Volume(id)) = contents(&path)
                && ids.contains(&Some(id))
            {
                at.entry(id).or_insert(path);
            }
        }
    }
    for (place, id) in places.iter_mut().zip(ids.into_iter().flatten()) {
        let found = at.get(&id);
        if let Some(path) = found {
            place.path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_string();
        }
        let opened = match found {
            None => Err("no device holds it".to_string()),
            Some(path) => match disk.attach_device(path) {
                Ok(_) => Ok(()),
                Err(e @ (DeviceError::Damaged { .. } | DeviceError::Io { .. } | DeviceError::NotAVolume(_))) => Err(e.to_string()),
                Err(e) => bail!("{e}; nothing was changed"),
            },
        };
        if let Err(why) = opened {
            tracing::error!("osd.{} is lost: {why}", place.id);
            // Its name may be another's by now.
            if at.values().any(|p| p == Path::new(&place.path)) {
                place.path = format!("{}.osd.{}", place.path, place.id);
            }
            disk.attach_lost(Path::new(&place.path));
        }
    }
    Ok(places)
}

/// Asks before devices are formatted: on a terminal a question, else only `--format-devices` says yes.
pub fn ask(layout: &Layout, yes: bool) -> anyhow::Result<()> {
    if !yes {
        said_yes(&layout.osds.iter().map(|(_, p)| p.as_path()).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Asks whether these devices may be formatted. Answers true, or an error.
pub fn said_yes(paths: &[&Path]) -> anyhow::Result<bool> {
    let facts: Vec<DeviceFacts> = paths.iter().map(|p| device::facts(p)).collect::<Result<_, _>>()?;
    let list: Vec<String> = facts.iter().map(|f| format!("{} ({}, {} MiB)", f.path.display(), f.model, f.bytes >> 20)).collect();
    ensure!(
        std::io::stdin().is_terminal(),
        "{} would be formatted, and there is no terminal to ask on: say --format-devices; nothing was changed",
        list.join(", ")
    );
    let mut out = std::io::stderr();
    for line in &list {
        writeln!(out, "  {line}")?;
    }
    write!(out, "Everything on {} will be lost. Format? Type yes: ", if list.len() == 1 { "this device" } else { "these devices" })?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    ensure!(answer.trim() == "yes", "not formatted; nothing was changed");
    Ok(true)
}

/// Makes an empty volume on every device of a new cluster.
pub fn format(layout: &Layout, disk: &RealDisk) -> anyhow::Result<()> {
    for (place, (_, path)) in layout.places.iter().zip(&layout.osds) {
        if let Some(id) = place.device.as_deref().and_then(|d| u128::from_str_radix(d, 16).ok()) {
            disk.format_device(path, id)?;
        }
    }
    Ok(())
}
