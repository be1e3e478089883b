//! The clients of a run: mounts, an S3-like gateway, and the audit between lives.

mod audit;
mod filler;
mod gateway;
mod hung;
mod mount;

pub use audit::{audit, remove_all};
pub use filler::Filler;
pub use gateway::Gateway;
pub use hung::Hung;
pub use mount::Mount;

use crate::plan::PATHS;
use holdfast_fs_vfs::{Caller, LookupReply, MknodArgs, NodeId, ROOT, Vfs};
use holdfast_objstore_base::sim::Rng;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::Kind;

const WHO: Caller = Caller { uid: 0, gid: 0, pid: 1 };

/// The folder that some of the paths lie in.
const FOLDER: &str = "s";

/// The folder and the name of a path, given the folder's node.
fn split(path: usize, folder: NodeId) -> (NodeId, &'static str) {
    match PATHS[path].split_once('/') {
        Some((_, name)) => (folder, name),
        None => (ROOT, PATHS[path]),
    }
}

fn ino_of(node: NodeId) -> InodeId {
    InodeId(node.0)
}

/// The folder's node; it is made when it is not there.
async fn folder(vfs: &Vfs) -> Result<NodeId, String> {
    let name = crate::cluster::name(FOLDER);
    match vfs.lookup(WHO, ROOT, name.clone()).await.map_err(|e| format!("looking for the folder: {e}"))? {
        LookupReply::Found(e) => Ok(e.attr.node),
        LookupReply::Absent { .. } => {
            let args = MknodArgs { parent: ROOT, name, kind: Kind::Dir, mode: 0o755, rdev: 0 };
            vfs.mknod(WHO, args).await.map(|e| e.attr.node).map_err(|e| format!("making the folder: {e}"))
        }
    }
}

fn any_path(rng: &mut Rng) -> usize {
    rng.below(PATHS.len() as u64) as usize
}

/// Gives way to others, sometimes for a while.
async fn think(rng: &mut Rng) {
    match rng.below(6) {
        0 => tokio::time::sleep(std::time::Duration::from_millis(1 + rng.below(50))).await,
        1 => tokio::time::sleep(std::time::Duration::from_millis(rng.below(3000))).await,
        _ => tokio::task::yield_now().await,
    }
}
