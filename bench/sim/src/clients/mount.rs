//! A client that uses a mount: files by name and by handle.

use super::{WHO, any_path, ino_of, split, think};
use crate::content::{self, CELL};
use crate::history::{Answer, Op};
use crate::recorder::Recorder;
use holdfast_fs_vfs::{CreateArgs, Error, HandleId, LookupReply, NodeId, OpenFlags, ReadArgs, RenameArgs, SetAttrArgs, Vfs, WriteArgs};
use holdfast_objstore_base::sim::Rng;
use std::sync::Arc;

/// Handles open at once.
const OPEN_MAX: usize = 4;
/// Cells a file may reach.
const FILE_CELLS: u64 = 600;

#[derive(Clone, Copy)]
struct Open {
    node: NodeId,
    handle: HandleId,
}

pub struct Mount {
    number: usize,
    vfs: Arc<Vfs>,
    recorder: Arc<Recorder>,
    rng: Rng,
    folder: NodeId,
    open: Vec<Open>,
}

/// What an error means for the history.
fn answer(e: Error) -> Answer {
    match e {
        Error::NotFound => Answer::NotFound,
        Error::Exists => Answer::Exists,
        // What is gone cannot be changed any more, but half of a call may have been done before.
        Error::Io | Error::Stale | Error::BadHandle | Error::NoSpace => Answer::Unsure(e.to_string()),
        e => Answer::Refused(e.to_string()),
    }
}

fn done<T>(result: Result<T, Error>) -> Answer {
    result.map_or_else(answer, |_| Answer::Done)
}

impl Mount {
    pub async fn new(number: usize, vfs: Arc<Vfs>, recorder: Arc<Recorder>, seed: u64) -> Result<Self, String> {
        let folder = super::folder(&vfs).await?;
        Ok(Self { number, vfs, recorder, rng: Rng::new(seed), folder, open: Vec::new() })
    }

    pub async fn run(mut self, calls: u64) {
        for _ in 0..calls {
            self.one().await;
            think(&mut self.rng).await;
        }
        for i in (0..self.open.len()).rev() {
            self.close(i).await;
        }
    }

    async fn one(&mut self) {
        let (path, other) = (any_path(&mut self.rng), any_path(&mut self.rng));
        let which = self.rng.below(100);
        match which {
            0..14 => self.create(path).await,
            14..24 => self.look(path, true).await,
            24..27 => self.look(path, false).await,
            27..33 => self.unlink(path).await,
            33..40 if path != other => self.rename(path, other).await,
            _ if self.open.is_empty() => self.look(path, true).await,
            _ => {
                let at = self.rng.below(self.open.len() as u64) as usize;
                let file = self.open[at];
                match which {
                    33..64 => self.write(file).await,
                    64..78 => self.read(file).await,
                    78..90 => self.fsync(file).await,
                    90..94 => self.truncate(file).await,
                    94..96 => self.stat(file).await,
                    96..98 => self.link(file, path).await,
                    _ => self.close(at).await,
                }
            }
        }
    }

    fn flags(&mut self) -> OpenFlags {
        OpenFlags { flags: libc::O_RDWR, kill_suidgid: false }
    }

    fn note_open(&mut self, node: NodeId, handle: HandleId) {
        if self.open.len() == OPEN_MAX {
            let old = self.open.remove(0);
            self.vfs.release(old.handle);
        }
        self.open.push(Open { node, handle });
    }

    async fn create(&mut self, path: usize) {
        let (parent, name) = split(path, self.folder);
        let mut open = self.flags();
        open.flags |= libc::O_EXCL | libc::O_CREAT;
        let call = self.recorder.call(self.number, Op::Create { path });
        let args = CreateArgs { parent, name: crate::cluster::name(name), mode: 0o644, open };
        match self.vfs.create(WHO, args).await {
            Ok(made) => {
                self.recorder.answer(call, Answer::Inode(Some(ino_of(made.entry.attr.node))));
                self.note_open(made.entry.attr.node, made.open.handle);
                self.vfs.forget(&[(made.entry.attr.node, 1)]);
            }
            Err(e) => self.recorder.answer(call, answer(e)),
        }
    }

    /// Looks a name up, and opens what is there.
    async fn look(&mut self, path: usize, open: bool) {
        let (parent, name) = split(path, self.folder);
        let call = self.recorder.call(self.number, Op::Lookup { path });
        let found = match self.vfs.lookup(WHO, parent, crate::cluster::name(name)).await {
            Ok(LookupReply::Found(e)) => e,
            Ok(LookupReply::Absent { .. }) => return self.recorder.answer(call, Answer::Inode(None)),
            Err(e) => return self.recorder.answer(call, answer(e)),
        };
        let node = found.attr.node;
        self.recorder.answer(call, Answer::Inode(Some(ino_of(node))));
        if open {
            let flags = self.flags();
            if let Ok(opened) = self.vfs.open(node, flags).await {
                self.note_open(node, opened.handle);
            }
        }
        self.vfs.forget(&[(node, 1)]);
    }

    async fn unlink(&mut self, path: usize) {
        let (parent, name) = split(path, self.folder);
        let call = self.recorder.call(self.number, Op::Unlink { path });
        let result = self.vfs.unlink(parent, crate::cluster::name(name)).await;
        self.recorder.answer(call, done(result));
    }

    async fn rename(&mut self, from: usize, to: usize) {
        let ((parent, name), (new_parent, new_name)) = (split(from, self.folder), split(to, self.folder));
        let call = self.recorder.call(self.number, Op::Rename { from, to });
        let name = crate::cluster::name(name);
        let args = RenameArgs { parent, name, new_parent, new_name: crate::cluster::name(new_name), flags: 0 };
        let result = self.vfs.rename(args).await;
        self.recorder.answer(call, done(result));
    }

    async fn link(&mut self, file: Open, to: usize) {
        let (parent, name) = split(to, self.folder);
        let call = self.recorder.call(self.number, Op::Link { ino: ino_of(file.node), to });
        let result = match self.vfs.link(file.node, parent, crate::cluster::name(name)).await {
            Ok(_) => {
                // The reply counts as a lookup.
                self.vfs.forget(&[(file.node, 1)]);
                Answer::Done
            }
            Err(Error::Stale) => Answer::NotFound,
            Err(e) => answer(e),
        };
        self.recorder.answer(call, result);
    }

    /// Some cells of a file: mostly few, near its start; sometimes enough for a coded stripe.
    fn range(&mut self) -> (u32, u32) {
        match self.rng.below(8) {
            0 => (self.rng.below(FILE_CELLS - 260) as u32, 130 + self.rng.below(130) as u32),
            1 => (self.rng.below(40) as u32 * 8, 8),
            _ => (self.rng.below(40) as u32, 1 + self.rng.below(24) as u32),
        }
    }

    async fn write(&mut self, file: Open) {
        let (at, cells) = self.range();
        let id = self.recorder.write_id();
        let sync = self.rng.below(8) == 0;
        let op = Op::Write { ino: ino_of(file.node), handle: file.handle.0, at, cells, id, sync };
        let data = content::make(id, at, cells);
        let direct = self.rng.below(4) == 0;
        let call = self.recorder.call(self.number, op);
        let args = WriteArgs {
            node: file.node,
            handle: file.handle,
            offset: u64::from(at) * CELL as u64,
            data,
            direct,
            sync,
            kill_suidgid: false,
            from_cache: false,
        };
        let result = match self.vfs.write(args).await {
            Ok(n) if n as usize == cells as usize * CELL => Answer::Done,
            Ok(n) => Answer::Unsure(format!("{n} bytes were written")),
            Err(e) => answer(e),
        };
        self.recorder.answer(call, result);
    }

    async fn read(&mut self, file: Open) {
        let (at, cells) = self.range();
        let call = self.recorder.call(self.number, Op::Read { ino: ino_of(file.node), at, cells });
        let args = ReadArgs { node: file.node, handle: file.handle, offset: u64::from(at) * CELL as u64, len: cells * CELL as u32 };
        let result = match self.vfs.read(args).await {
            Ok(data) => content::read(at, &data.concat()).map_or_else(Answer::Wrong, Answer::Cells),
            Err(e) => answer(e),
        };
        self.recorder.answer(call, result);
    }

    async fn fsync(&mut self, file: Open) {
        let call = self.recorder.call(self.number, Op::Fsync { ino: ino_of(file.node), handle: file.handle.0 });
        let datasync = self.rng.coin();
        let result = self.vfs.fsync(file.handle, datasync).await;
        self.recorder.answer(call, done(result));
    }

    async fn truncate(&mut self, file: Open) {
        let cells = self.rng.below(60) as u32;
        let call = self.recorder.call(self.number, Op::Truncate { ino: ino_of(file.node), cells });
        let size = Some(u64::from(cells) * CELL as u64);
        let args = SetAttrArgs { size, handle: Some(file.handle), ..SetAttrArgs::default() };
        let result = self.vfs.setattr(WHO, file.node, args).await;
        self.recorder.answer(call, done(result));
    }

    async fn stat(&mut self, file: Open) {
        let call = self.recorder.call(self.number, Op::Stat { ino: ino_of(file.node) });
        let result = match self.vfs.getattr(file.node, Some(file.handle)).await {
            Ok(reply) if reply.attr.size % CELL as u64 == 0 => Answer::Size((reply.attr.size / CELL as u64) as u32),
            Ok(reply) => Answer::Wrong(format!("a size of {} bytes", reply.attr.size)),
            Err(e) => answer(e),
        };
        self.recorder.answer(call, result);
    }

    async fn close(&mut self, at: usize) {
        let file = self.open.remove(at);
        let call = self.recorder.call(self.number, Op::Close { ino: ino_of(file.node) });
        let result = self.vfs.flush(file.handle).await;
        self.vfs.release(file.handle);
        self.recorder.answer(call, done(result));
    }
}
