//! Which folders make a cluster, and whether what lies in them may be touched.
//!
//! What always holds: nothing is written before every folder has been looked at; a folder that is not ours, not whole or not
//! this cluster's is refused with one sentence and left as it is. A lost OSD is never formatted by itself.
//! The file `holdfast.json` in each data folder is drawn in docs/formats/cluster.md.

use anyhow::{Context, bail, ensure};
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_proto::{Code, OsdId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub const FILE: &str = "holdfast.json";
/// Held by the process that serves the folder.
pub const LOCK: &str = "lock";
/// 2: the metadata is not in the first folder any more.
pub const FORMAT: u32 = 2;

/// The content of `holdfast.json`, one per data folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    pub format: u32,
    /// 128 random bits as hex.
    pub cluster: String,
    pub state: State,
    pub code: String,
    /// Which of `dirs` this folder is.
    pub index: usize,
    /// All data folders, absolute, as they were last started.
    pub dirs: Vec<PathBuf>,
    pub osds: Vec<OsdPlace>,
    /// Raised by every change of the set of OSDs: of files that differ the one with the highest epoch counts.
    #[serde(default)]
    pub epoch: u64,
    /// The number of the next OSD that is added: numbers are never given twice.
    #[serde(default)]
    pub next_osd: u16,
    /// Which of `dirs` keeps the state of the metadata: the first, until that was lost.
    #[serde(default)]
    pub home: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Formatting,
    Ready,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdPlace {
    pub id: u16,
    /// Index into `dirs`.
    pub dir: usize,
    /// Folder below it, or the device as it was last called.
    pub path: String,
    /// Of an OSD on a block device: the id of the volume on it, as hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(default)]
    pub life: Life,
}

/// What is known of an OSD outside of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Life {
    pub state: Standing,
    /// The id of its log as hex; empty: it was not opened yet.
    pub log: String,
    /// The open epoch of its log at the last start, and the last record that was stable at the last stop. A log that shows less went back in time.
    pub opened: u64,
    pub stable: u64,
}

/// What an OSD is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    #[default]
    In,
    /// It is being made in its place, with the log id above: a start ends what was begun.
    Forming,
    /// It gets nothing new, and what it has is moved elsewhere.
    Draining,
}

/// A cluster whose folders were looked at and may be used.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The first start of a new cluster: everything is still to be formatted.
    pub fresh: bool,
    pub cluster: u128,
    pub code: Code,
    pub dirs: Vec<PathBuf>,
    pub osds: Vec<(OsdId, PathBuf)>,
    pub places: Vec<OsdPlace>,
    pub epoch: u64,
    next_osd: u16,
    /// Which of `dirs` keeps the state of the metadata …
    home: usize,
    /// … and which did: that one is lost, and the state is to be rebuilt.
    pub lost_home: Option<usize>,
}

impl Layout {
    /// The folder that keeps the state of the metadata.
    pub fn home(&self) -> &Path {
        &self.dirs[self.home]
    }
    pub fn meta_dir(&self) -> PathBuf {
        self.home().join("meta")
    }
    pub fn credentials(&self) -> PathBuf {
        self.home().join("credentials")
    }

    /// As the cluster file of this epoch says.
    pub fn at(self, epoch: u64, next_osd: u16, home: usize) -> Layout {
        Layout { epoch, next_osd, home, ..self }
    }

    /// The state of the metadata is lost, and is to be rebuilt: in the same folder if that is there, else in the next one that is.
    pub fn lose_home(&mut self, disk: &dyn Disk) -> anyhow::Result<()> {
        let count = self.dirs.len();
        let there = |i: &usize| matches!(read(disk, &self.dirs[*i]), Ok(Some(_)));
        let next = (0..count).map(|n| (self.home + n) % count).find(there);
        let next = next.with_context(|| {
            format!(
                "{} is missing or empty: it keeps the cluster's metadata; bring it back and start again, nothing was changed",
                self.home().display()
            )
        })?;
        self.lost_home = Some(self.home);
        self.home = next;
        Ok(())
    }

    /// The state was rebuilt where it is now: what is written next says so.
    pub fn found_home(&mut self) {
        self.lost_home = None;
        self.epoch += 1;
    }

    pub fn place(&self, osd: OsdId) -> Option<&OsdPlace> {
        self.places.iter().find(|p| p.id == osd.0)
    }

    /// The number that an added OSD gets.
    pub fn next_osd(&self) -> u16 {
        self.places.iter().map(|p| p.id + 1).max().unwrap_or(0).max(self.next_osd)
    }

    /// Changes the places of OSDs: what is written next has a higher epoch.
    pub fn change(&mut self, change: impl FnOnce(&mut Vec<OsdPlace>)) {
        self.next_osd = self.next_osd();
        change(&mut self.places);
        self.places.sort_by_key(|p| p.id);
        self.epoch += 1;
        self.osds = self.places.iter().map(|p| (OsdId(p.id), self.dirs[p.dir].join(&p.path))).collect();
    }

    /// Takes a folder in, and writes the cluster file to it; answers its index. A folder that is in already stays where it is.
    pub fn take_in(&mut self, disk: &dyn Disk, dir: &Path) -> anyhow::Result<usize> {
        if let Some(index) = self.dirs.iter().position(|d| d == dir) {
            return Ok(index);
        }
        disk.create_dir_all(dir)?;
        self.dirs.push(dir.to_path_buf());
        self.write_one(disk, self.dirs.len() - 1, State::Ready)?;
        Ok(self.dirs.len() - 1)
    }

    /// Gives a folder that came back empty its cluster file again. One that has it keeps it.
    pub fn give_back(&self, disk: &dyn Disk, index: usize) -> anyhow::Result<()> {
        if read(disk, &self.dirs[index])?.is_none() {
            disk.create_dir_all(&self.dirs[index])?;
            self.write_one(disk, index, State::Ready)?;
        }
        Ok(())
    }

    fn write_one(&self, disk: &dyn Disk, index: usize, state: State) -> anyhow::Result<()> {
        let home = self.lost_home.unwrap_or(self.home);
        let file = ClusterFile {
            // An older program would look for the metadata in the first folder.
            format: if home == 0 { 1 } else { FORMAT },
            cluster: format!("{:032x}", self.cluster),
            state,
            code: self.code.to_string(),
            index,
            dirs: self.dirs.clone(),
            osds: self.places.clone(),
            epoch: self.epoch,
            next_osd: self.next_osd,
            home,
        };
        disk.write_small(&self.dirs[index].join(FILE), &serde_json::to_vec_pretty(&file)?, 0o644)?;
        Ok(())
    }

    /// Writes `holdfast.json` to every folder: first as `Formatting`, when all is formatted as `Ready`.
    pub fn write(&self, disk: &dyn Disk, state: State) -> anyhow::Result<()> {
        for (index, dir) in self.dirs.iter().enumerate() {
            // An OSD that is made in a lost folder makes it one of the cluster's again.
            let forming = self.places.iter().any(|p| p.dir == index && p.life.state == Standing::Forming);
            let lost = || Ok::<_, anyhow::Error>(state == State::Ready && !self.fresh && !forming && read(disk, dir)?.is_none());
            let written = lost().and_then(|lost| match lost {
                true => Ok(()), // a lost folder stays as it is
                false => {
                    disk.create_dir_all(dir)?;
                    self.write_one(disk, index, state)
                }
            });
            match written {
                // One that cannot be written must not keep it from being replaced; its file is older then, and does not count.
                Err(e) if index != self.home && !self.fresh => tracing::warn!("{} keeps an older {FILE}: {e:#}", dir.display()),
                written => written?,
            }
        }
        Ok(())
    }
}

/// The cluster file of a folder, if it has one; refuses one of a newer format.
pub fn read(disk: &dyn Disk, dir: &Path) -> anyhow::Result<Option<ClusterFile>> {
    let path = dir.join(FILE);
    match disk.read_small(&path)? {
        Some(bytes) => decode(&bytes, &path).map(Some),
        None => Ok(None),
    }
}

/// The content of the cluster file that lies at `path`.
pub fn decode(bytes: &[u8], path: &Path) -> anyhow::Result<ClusterFile> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_slice(bytes)
        .with_context(|| format!("{} is not readable as a cluster file; restore it or use another folder", path.display()))?;
    ensure!(
        version.format <= FORMAT,
        "{} was written by a newer Holdfast (format {}, this one reads up to {FORMAT}); upgrade, nothing was changed",
        path.display(),
        version.format
    );
    let file: ClusterFile =
        serde_json::from_slice(bytes).with_context(|| format!("{} is damaged; restore it from another data folder", path.display()))?;
    ensure!(
        file.index < file.dirs.len() && file.home < file.dirs.len() && !file.osds.is_empty(),
        "{} is damaged; restore it from another data folder",
        path.display()
    );
    Ok(file)
}

/// Looks at the folders and says what cluster they are or could become. Writes nothing.
pub fn examine(disk: &dyn Disk, dirs: &[PathBuf], osds: Option<u16>, code: Option<Code>, random: u128) -> anyhow::Result<Layout> {
    let dirs: Vec<PathBuf> = dirs.iter().map(|d| absolute(d)).collect::<anyhow::Result<_>>()?;
    for (i, d) in dirs.iter().enumerate() {
        ensure!(!dirs[..i].contains(d), "{} is named twice", d.display());
        ensure!(!d.exists() || d.is_dir(), "{} is not a folder", d.display());
    }
    if let Some(n) = osds {
        ensure!(dirs.len() == 1 || n as usize == dirs.len(), "--osds {n} does not go with {} folders: each folder is one OSD", dirs.len());
    }
    let files: Vec<Option<ClusterFile>> = dirs.iter().map(|d| read(disk, d)).collect::<anyhow::Result<_>>()?;
    for (dir, file) in dirs.iter().zip(&files) {
        match file {
            Some(f) => ensure!(
                f.state == State::Ready,
                "{} was left half formatted by a first start that did not finish; it holds no data: remove it and start again",
                dir.display()
            ),
            None => refuse_foreign(disk, dir)?,
        }
    }
    // Of equal ones the first.
    match files.iter().flatten().rev().max_by_key(|f| f.epoch) {
        None => new_layout(dirs, osds, code, random),
        Some(known) => known_layout(disk, dirs, &files, known.clone(), osds, code),
    }
}

pub(crate) fn absolute(dir: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(dir).with_context(|| format!("{} is not a path", dir.display()))
}

/// What stands in an empty folder, or in one that was locked to become a data folder when a crash cut that short.
fn is_left_over(dir: &Path, name: &str) -> bool {
    let empty = || std::fs::metadata(dir.join(name)).is_ok_and(|m| m.is_file() && m.len() == 0);
    name == "lost+found" || name == format!("{FILE}.tmp") || name == LOCK && empty()
}

/// Whether a folder has a cluster file and nothing else: it was taken in by a change that a crash cut short, and nobody relies on it.
pub(crate) fn is_only_named(disk: &dyn Disk, dir: &Path) -> anyhow::Result<bool> {
    Ok(disk.list(dir)?.iter().all(|n| n == FILE || is_left_over(dir, n)))
}

pub(crate) fn refuse_foreign(disk: &dyn Disk, dir: &Path) -> anyhow::Result<()> {
    if !disk.exists(dir) {
        return Ok(());
    }
    let names: Vec<String> = disk.list(dir)?.into_iter().filter(|n| !is_left_over(dir, n)).collect();
    if names.iter().any(|n| n == LOCK || n == "meta" || n.starts_with("osd.")) {
        bail!(
            "{} looks like a data folder whose {FILE} is gone; restore that file (another data folder of the cluster has its like), nothing was changed",
            dir.display()
        );
    }
    match names.first() {
        Some(name) => {
            bail!("{} holds files that are not Holdfast's ({name}); name an empty or a missing folder, nothing was changed", dir.display())
        }
        None => Ok(()),
    }
}

fn new_layout(dirs: Vec<PathBuf>, osds: Option<u16>, code: Option<Code>, random: u128) -> anyhow::Result<Layout> {
    let count = if dirs.len() > 1 { dirs.len() } else { osds.unwrap_or(1) as usize };
    ensure!(count <= 64, "{count} OSDs are too many for one process: at most 64");
    let code = code.unwrap_or_else(|| Code::default_for(count));
    code.carried_by(count).map_err(anyhow::Error::msg)?;
    let place = |i| OsdPlace {
        id: i as u16,
        dir: if dirs.len() > 1 { i } else { 0 },
        path: format!("osd.{i}"),
        device: None,
        life: Life::default(),
    };
    let places = (0..count).map(place).collect();
    Ok(finish(true, random, code, dirs, places))
}

/// The folders of a known cluster in the order of its file: those that were named by what their own files say, others where they
/// were last, and what is missing or empty in the places left over.
fn order(disk: &dyn Disk, named: &[PathBuf], files: &[Option<ClusterFile>], known: &ClusterFile) -> anyhow::Result<Vec<PathBuf>> {
    let mut ordered: Vec<Option<PathBuf>> = vec![None; known.dirs.len()];
    for (dir, file) in named.iter().zip(files) {
        let Some(f) = file else { continue };
        let (was, is) = (&f.dirs[f.index], known.dirs.get(f.index));
        ensure!(
            f.epoch == known.epoch && is.is_some() || is == Some(was),
            "{} was taken out of this cluster while OSDs were replaced or removed; leave it out, nothing was changed",
            dir.display()
        );
        ensure!(ordered[f.index].is_none(), "{} is a copy of another data folder of this cluster", dir.display());
        ordered[f.index] = Some(dir.clone());
    }
    let moved = ordered.iter().zip(&known.dirs).any(|(now, was)| now.as_ref().is_some_and(|now| now != was));
    ensure!(
        !moved || named.len() >= known.dirs.len(),
        "this cluster has {} data folders, some of them were moved, and {} were named: name all of {}",
        known.dirs.len(),
        named.len(),
        known.dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(" ")
    );
    // Folders that came later need not be named: they are where the file says.
    for (index, place) in ordered.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
        let there = read(disk, &known.dirs[index])?;
        *place = there.filter(|f| f.cluster == known.cluster && f.index == index).map(|_| known.dirs[index].clone());
    }
    let mut absent: Vec<PathBuf> = named.iter().zip(files).filter(|(_, f)| f.is_none()).map(|(d, _)| d.clone()).collect();
    for (index, place) in ordered.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
        // One that was named by the name it had goes to its own place, others in order.
        let at = absent.iter().position(|d| *d == known.dirs[index]);
        let any = || (!absent.is_empty()).then_some(0);
        *place = Some(at.or_else(any).map_or_else(|| known.dirs[index].clone(), |at| absent.remove(at)));
    }
    for dir in absent {
        ensure!(
            !disk.exists(&dir) || disk.list(&dir)?.is_empty(),
            "this cluster has {} data folders and {} is none of them: {}",
            known.dirs.len(),
            dir.display(),
            known.dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(" ")
        );
        tracing::warn!("{} is no data folder of this cluster any more: leave it out", dir.display());
    }
    Ok(ordered.into_iter().flatten().collect())
}

fn known_layout(
    disk: &dyn Disk,
    dirs: Vec<PathBuf>,
    files: &[Option<ClusterFile>],
    known: ClusterFile,
    osds: Option<u16>,
    code: Option<Code>,
) -> anyhow::Result<Layout> {
    for (dir, file) in dirs.iter().zip(files) {
        if let Some(f) = file {
            ensure!(
                f.cluster == known.cluster,
                "{} belongs to another cluster ({}) than {}; nothing was changed",
                dir.display(),
                &f.cluster[..8.min(f.cluster.len())],
                dirs[0].display()
            );
        }
    }
    ensure!(
        known.osds.iter().all(|o| o.device.is_none()),
        "the OSDs of this cluster lie on block devices; start it with: holdfast up --meta {}",
        known.dirs[0].display()
    );
    let ordered = order(disk, &dirs, files, &known)?;
    // Once OSDs were added or removed, the number is that of the first start.
    if let Some(n) = osds
        && known.epoch == 0
    {
        ensure!(n as usize == known.osds.len(), "this cluster has {} OSDs, --osds {n} does not match", known.osds.len());
    }
    let stored: Code = known.code.parse().map_err(anyhow::Error::msg)?;
    if let Some(c) = code {
        ensure!(c == stored, "this cluster was made with --code {stored}, --code {c} does not match");
    }
    let cluster = u128::from_str_radix(&known.cluster, 16).context("the cluster id in holdfast.json is damaged")?;
    ensure!(known.osds.iter().all(|o| o.dir < ordered.len()), "holdfast.json is damaged: an OSD lies in no folder");
    let mut layout = finish(false, cluster, stored, ordered, known.osds).at(known.epoch, known.next_osd, known.home);
    if !disk.exists(&layout.home().join(FILE)) {
        layout.lose_home(disk)?;
    }
    Ok(layout)
}

pub(crate) fn finish(fresh: bool, cluster: u128, code: Code, dirs: Vec<PathBuf>, places: Vec<OsdPlace>) -> Layout {
    let osds = places.iter().map(|p| (OsdId(p.id), dirs[p.dir].join(&p.path))).collect();
    Layout { fresh, cluster, code, dirs, osds, places, epoch: 0, next_osd: 0, home: 0, lost_home: None }
}
