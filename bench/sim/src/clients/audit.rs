//! Reads everything there is, while nothing else runs.

use super::{WHO, ino_of, split};
use crate::cluster::Running;
use crate::content::{self, CELL};
use crate::history::{Audit, Found};
use crate::plan::PATHS;
use holdfast_fs_vfs::{DirItem, LookupReply, NodeId, OpenFlags, ROOT, ReadArgs, Vfs};

/// What an audit found wrong: the promise, and how it is broken.
pub type Broken = (&'static str, String);

fn lost(why: String) -> Broken {
    ("durability", why)
}

/// Every name and every file's content, read through a mount of its own.
pub async fn audit(running: &Running) -> Result<Audit, Broken> {
    let live = |e: String| ("liveness", e);
    let vfs = running.mount().await.map_err(live)?;
    let found = look(&vfs).await?;
    vfs.shutdown().await.map_err(|e| live(format!("the audit's mount cannot be shut down: {e}")))?;
    Ok(found)
}

async fn look(vfs: &Vfs) -> Result<Audit, Broken> {
    let folder = super::folder(vfs).await.map_err(lost)?;
    let mut audit = Audit::default();
    let (root, inner) = (names(vfs, ROOT).await?, names(vfs, folder).await?);
    for (path, shown) in PATHS.iter().enumerate() {
        let (parent, name) = split(path, folder);
        let listed = if parent == ROOT { &root } else { &inner };
        let looked = vfs.lookup(WHO, parent, crate::cluster::name(name)).await;
        let node = match looked {
            Ok(LookupReply::Found(e)) => Some(e.attr.node),
            Ok(LookupReply::Absent { .. }) => None,
            Err(e) => return Err(lost(format!("{} cannot be looked up: {e}", shown))),
        };
        if listed.iter().any(|n| n == name) != node.is_some() {
            return Err(("namespace", format!("{}: the listing and the lookup disagree: {listed:?}, {node:?}", shown)));
        }
        let Some(node) = node else { continue };
        audit.names.insert(path, ino_of(node));
        let found = file(vfs, node).await.map_err(|(promise, why)| (promise, format!("{}: {why}", shown)))?;
        audit.files.insert(ino_of(node), found);
        vfs.forget(&[(node, 1)]);
    }
    for name in root.iter().filter(|n| !matches!(n.as_str(), "." | ".." | super::FOLDER | super::filler::NAME)) {
        if !PATHS.contains(&name.as_str()) {
            return Err(("namespace", format!("a name nobody made: {name}")));
        }
    }
    Ok(audit)
}

async fn names(vfs: &Vfs, dir: NodeId) -> Result<Vec<String>, Broken> {
    let handle = vfs.opendir(dir).await.map_err(|e| lost(format!("opening a folder: {e}")))?.handle;
    let mut names = Vec::new();
    let mut fill = |item: &DirItem| {
        names.push(String::from_utf8_lossy(&item.name).into_owned());
        true
    };
    let read = vfs.readdir(handle, 0, &mut fill).await;
    vfs.releasedir(handle);
    read.map_err(|e| lost(format!("reading a folder: {e}")))?;
    Ok(names)
}

async fn file(vfs: &Vfs, node: NodeId) -> Result<Found, Broken> {
    let opened = vfs.open(node, OpenFlags { flags: libc::O_RDONLY, kill_suidgid: false }).await;
    let handle = opened.map_err(|e| lost(format!("it cannot be opened: {e}")))?.handle;
    let attr = vfs.getattr(node, Some(handle)).await.map_err(|e| lost(format!("no attributes: {e}")))?.attr;
    let read = vfs.read(ReadArgs { node, handle, offset: 0, len: u32::try_from(attr.size).unwrap_or(u32::MAX) }).await;
    vfs.release(handle);
    let data = read.map_err(|e| lost(format!("it cannot be read: {e}")))?.concat();
    if data.len() as u64 != attr.size || !attr.size.is_multiple_of(CELL as u64) {
        return Err(("right bytes", format!("{} bytes read of {}", data.len(), attr.size)));
    }
    let cells = content::read(0, &data).map_err(|why| ("right bytes", why))?;
    Ok(Found { cells })
}

/// Removes every name of the clients.
pub async fn remove_all(vfs: &Vfs) -> Result<(), String> {
    let folder = super::folder(vfs).await?;
    match vfs.unlink(ROOT, crate::cluster::name(super::filler::NAME)).await {
        Ok(()) | Err(holdfast_fs_vfs::Error::NotFound) => {}
        Err(e) => return Err(format!("the filler's file cannot be removed: {e}")),
    }
    for (path, shown) in PATHS.iter().enumerate() {
        let (parent, name) = split(path, folder);
        match vfs.unlink(parent, crate::cluster::name(name)).await {
            Ok(()) | Err(holdfast_fs_vfs::Error::NotFound) => {}
            Err(e) => return Err(format!("{} cannot be removed: {e}", shown)),
        }
    }
    Ok(())
}
