//! A client that fills the cluster until there is no space, gives everything back, and expects to be able to write again.

use super::{WHO, think};
use crate::content::{self, CELL};
use crate::coverage::Coverage;
use crate::trace::Trace;
use holdfast_fs_vfs::{CreateArgs, Error, HandleId, NodeId, OpenFlags, ROOT, SetAttrArgs, Vfs, WriteArgs};
use holdfast_objstore_base::sim::Rng;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Its file, which no other client knows.
pub const NAME: &str = "filler";
/// Cells of one write: 256 KiB.
const PIECE: u32 = 512;
/// More pieces than the devices of most such plans hold.
const PIECES_MAX: u32 = 100;
/// How long space may take to come back.
const HEALS_WITHIN: Duration = Duration::from_secs(300);

pub struct Filler {
    vfs: Arc<Vfs>,
    trace: Arc<Trace>,
    rng: Rng,
    coverage: Arc<Mutex<Coverage>>,
}

struct File {
    node: NodeId,
    handle: HandleId,
}

impl Filler {
    pub fn new(vfs: Arc<Vfs>, trace: Arc<Trace>, seed: u64, coverage: Arc<Mutex<Coverage>>) -> Self {
        Self { vfs, trace, rng: Rng::new(seed), coverage }
    }

    /// An error: space did not come back.
    pub async fn run(mut self) -> Result<(), String> {
        // Other failures than a lack of space are other clients' business.
        let Ok(file) = self.create().await else { return Ok(()) };
        let done = self.rounds(&file).await;
        self.vfs.release(file.handle);
        let _ = self.vfs.unlink(ROOT, crate::cluster::name(NAME)).await;
        done
    }

    async fn create(&self) -> Result<File, Error> {
        let name = || crate::cluster::name(NAME);
        let _ = self.vfs.unlink(ROOT, name()).await;
        let open = OpenFlags { flags: libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, kill_suidgid: false };
        let made = self.vfs.create(WHO, CreateArgs { parent: ROOT, name: name(), mode: 0o644, open }).await?;
        let node = made.entry.attr.node;
        self.vfs.forget(&[(node, 1)]);
        Ok(File { node, handle: made.open.handle })
    }

    async fn rounds(&mut self, file: &File) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(2) {
            let full = self.fill(file).await;
            think(&mut self.rng).await;
            match full {
                Err(Error::NoSpace) => self.trace.note(format_args!("filler: full")),
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
            let cut = SetAttrArgs { size: Some(0), handle: Some(file.handle), ..SetAttrArgs::default() };
            if self.vfs.setattr(WHO, file.node, cut).await.is_err() {
                return Ok(());
            }
            if full.is_err() {
                self.coverage.lock().add("times full", 1);
                if self.heals(file).await? {
                    self.coverage.lock().add("times healed", 1);
                }
            }
        }
        Ok(())
    }

    async fn fill(&self, file: &File) -> Result<(), Error> {
        for n in 0..PIECES_MAX {
            self.write(file, n).await?;
        }
        Ok(())
    }

    async fn write(&self, file: &File, n: u32) -> Result<(), Error> {
        let at = n * PIECE;
        let (offset, data) = (u64::from(at) * CELL as u64, content::make(u32::MAX, at, PIECE));
        let (node, handle) = (file.node, file.handle);
        let args = WriteArgs { node, handle, offset, data, direct: false, sync: false, kill_suidgid: false, from_cache: false };
        self.vfs.write(args).await?;
        self.vfs.fsync(handle, true).await
    }

    /// Waits until there is space again; whether there is, or something else is in the way.
    async fn heals(&self, file: &File) -> Result<bool, String> {
        let again = async {
            loop {
                match self.write(file, 0).await {
                    Ok(()) => return true,
                    Err(Error::NoSpace) => tokio::time::sleep(Duration::from_secs(1)).await,
                    Err(_) => return false,
                }
            }
        };
        let told = tokio::time::timeout(HEALS_WITHIN, again).await;
        told.map_err(|_| format!("{} s after everything was given back there is no space yet", HEALS_WITHIN.as_secs()))
    }
}
