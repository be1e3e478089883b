//! A filesystem that answers at once: what the FUSE path costs by itself.
//!
//! What it is: names, sizes and modes in memory; reads give zeroes, written bytes are dropped. Enough for fio and for loops
//! that create, look up, rename and remove. What always holds: no answer waits. What it leaves out: data, permissions
//! beyond the kernel's, hard and symbolic links.

use crate::dirbuf::{DirBuffer, DirPlusBuffer, Dirent};
use crate::filesystem::{Answer, Context, Filesystem, Forget};
use crate::flags;
use crate::op::{self, Handle, NodeId, Op, SetTime, Time};
use crate::reply::{Attr, Entry, Opened, Parts, Reply, StatfsReply};
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

/// Bytes of the run of zeroes that reads are answered from.
const ZEROES: usize = 1 << 20;
/// Nodes held at most; more are refused with ENOSPC.
const NODES_MAX: usize = 4 << 20;
/// How long the kernel may cache what this filesystem says: nobody else changes it.
const VALID: Duration = Duration::from_secs(3600);

struct Node {
    attr: Attr,
    parent: u64,
    lookups: u64,
    /// Of a directory: name to (cookie, node). Cookies are never reused.
    names: HashMap<Bytes, (u64, u64)>,
    order: BTreeMap<u64, Bytes>,
    next_cookie: u64,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
}

/// See the module.
pub struct Null {
    state: Mutex<State>,
    zeroes: Bytes,
}

type Errno = i32;
type Result<T> = std::result::Result<T, Errno>;

fn now() -> Time {
    let d = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { secs: d.as_secs() as i64, nanos: d.subsec_nanos() }
}

fn new_node(ino: u64, parent: u64, mode: u32, uid: u32, gid: u32, rdev: u32) -> Node {
    let t = now();
    let dir = mode & libc::S_IFMT == libc::S_IFDIR;
    let attr =
        Attr { ino, atime: t, mtime: t, ctime: t, mode, nlink: if dir { 2 } else { 1 }, uid, gid, rdev, blksize: 4096, ..Attr::default() };
    Node { attr, parent, lookups: 0, names: HashMap::new(), order: BTreeMap::new(), next_cookie: 3 }
}

impl Default for Null {
    fn default() -> Self {
        Self::new()
    }
}

impl Null {
    /// An empty directory.
    pub fn new() -> Self {
        let root = new_node(1, 1, libc::S_IFDIR | 0o1777, 0, 0, 0);
        let state = State { nodes: HashMap::from([(1, root)]), next: 2 };
        Self { state: Mutex::new(state), zeroes: AlignedBuf::zeroed(ZEROES).freeze() }
    }

    fn read(&self, r: &op::Read) -> Result<Reply> {
        let size = self.state.lock().get(r.ino)?.attr.size;
        let mut left = size.saturating_sub(r.offset).min(u64::from(r.size)) as usize;
        let mut parts = Parts::new();
        while left > 0 {
            let n = left.min(ZEROES);
            parts.push(self.zeroes.slice(..n));
            left -= n;
        }
        Ok(Reply::Data(parts))
    }
}

impl State {
    fn get(&mut self, node: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&node.0).ok_or(libc::ESTALE)
    }

    fn child(&mut self, parent: NodeId, name: &[u8]) -> Result<u64> {
        self.get(parent)?.names.get(name).map(|(_, ino)| *ino).ok_or(libc::ENOENT)
    }

    fn entry(&mut self, ino: u64) -> Result<Entry> {
        let n = self.get(NodeId(ino))?;
        n.lookups += 1;
        Ok(Entry { node: NodeId(ino), generation: 0, entry_valid: VALID, attr_valid: VALID, attr: n.attr })
    }

    fn link(&mut self, parent: NodeId, name: Bytes, ino: u64) -> Result<()> {
        let p = self.get(parent)?;
        let cookie = p.next_cookie;
        p.next_cookie += 1;
        p.names.insert(name.clone(), (cookie, ino));
        p.order.insert(cookie, name);
        p.attr.mtime = now();
        p.attr.ctime = p.attr.mtime;
        Ok(())
    }

    fn unlink(&mut self, parent: NodeId, name: &[u8]) -> Result<u64> {
        let p = self.get(parent)?;
        let (cookie, ino) = p.names.remove(name).ok_or(libc::ENOENT)?;
        p.order.remove(&cookie);
        p.attr.mtime = now();
        p.attr.ctime = p.attr.mtime;
        Ok(ino)
    }

    fn make(&mut self, c: &Context, parent: NodeId, name: Bytes, mode: u32, rdev: u32) -> Result<Entry> {
        if self.get(parent)?.names.contains_key(&name) {
            return Err(libc::EEXIST);
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(libc::ENOSPC);
        }
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, new_node(ino, parent.0, mode, c.uid, c.gid, rdev));
        self.link(parent, name, ino)?;
        self.entry(ino)
    }

    /// Takes a name away, and the node with it once the kernel has forgotten it too.
    fn remove(&mut self, parent: NodeId, name: &[u8], dir: bool) -> Result<()> {
        let ino = self.child(parent, name)?;
        let n = self.get(NodeId(ino))?;
        let is_dir = n.attr.mode & libc::S_IFMT == libc::S_IFDIR;
        match (dir, is_dir) {
            (true, false) => return Err(libc::ENOTDIR),
            (false, true) => return Err(libc::EISDIR),
            _ if !n.names.is_empty() => return Err(libc::ENOTEMPTY),
            _ => {}
        }
        self.unlink(parent, name)?;
        self.drop_name(ino);
        Ok(())
    }

    fn drop_name(&mut self, ino: u64) {
        let Some(n) = self.nodes.get_mut(&ino) else { return };
        n.attr.nlink = 0;
        if n.lookups == 0 {
            self.nodes.remove(&ino);
        }
    }

    fn rename(&mut self, r: &op::Rename) -> Result<()> {
        if r.flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(libc::EINVAL);
        }
        let moved = self.child(r.parent, &r.name)?;
        if let Ok(there) = self.child(r.new_parent, &r.new_name) {
            if r.flags & libc::RENAME_NOREPLACE != 0 {
                return Err(libc::EEXIST);
            }
            if there == moved {
                return Ok(());
            }
            let dir = self.get(NodeId(moved))?.attr.mode & libc::S_IFMT == libc::S_IFDIR;
            self.remove(r.new_parent, &r.new_name, dir)?;
        }
        self.unlink(r.parent, &r.name)?;
        self.link(r.new_parent, r.new_name.clone(), moved)?;
        self.get(NodeId(moved))?.parent = r.new_parent.0;
        Ok(())
    }

    fn setattr(&mut self, s: &op::Setattr) -> Result<Reply> {
        let a = &mut self.get(s.ino)?.attr;
        a.mode = s.mode.map_or(a.mode, |m| a.mode & libc::S_IFMT | m & 0o7777);
        a.uid = s.uid.unwrap_or(a.uid);
        a.gid = s.gid.unwrap_or(a.gid);
        a.size = s.size.unwrap_or(a.size);
        a.blocks = a.size.div_ceil(512);
        let at = |t: SetTime| match t {
            SetTime::Now => now(),
            SetTime::At(t) => t,
        };
        a.atime = s.atime.map_or(a.atime, at);
        a.mtime = s.mtime.map_or(a.mtime, at);
        a.ctime = now();
        Ok(Reply::Attr(*a, VALID))
    }

    fn write(&mut self, w: &op::Write) -> Result<Reply> {
        let a = &mut self.get(w.ino)?.attr;
        let len = w.data.len() as u64;
        let end = w.offset.checked_add(len).filter(|e| *e <= i64::MAX as u64).ok_or(libc::EFBIG)?;
        a.size = a.size.max(end);
        a.blocks = a.size.div_ceil(512);
        Ok(Reply::Written(len as u32))
    }

    fn entries_after(&mut self, r: &op::Readdir, mut put: impl FnMut(&mut State, u64, u64, &[u8]) -> bool) -> Result<()> {
        let parent = self.get(r.ino)?.parent;
        for (cookie, ino, name) in [(1, r.ino.0, &b"."[..]), (2, parent, &b".."[..])] {
            if r.cookie < cookie && !put(self, cookie, ino, name) {
                return Ok(());
            }
        }
        let mut after = r.cookie.max(2);
        loop {
            let dir = self.get(r.ino)?;
            let Some((cookie, name)) = dir.order.range(after + 1..).next().map(|(c, n)| (*c, n.clone())) else { return Ok(()) };
            let ino = dir.names.get(&name).map_or(0, |(_, i)| *i);
            if !put(self, cookie, ino, &name) {
                return Ok(());
            }
            after = cookie;
        }
    }

    fn readdir(&mut self, r: &op::Readdir) -> Result<Reply> {
        let mut out = DirBuffer::new(r.size);
        self.entries_after(r, |s, cookie, ino, name| {
            let mode = s.nodes.get(&ino).map_or(0, |n| n.attr.mode);
            out.push(&Dirent { ino, cookie, mode, name })
        })?;
        Ok(out.finish())
    }

    fn readdirplus(&mut self, r: &op::Readdir) -> Result<Reply> {
        let mut out = DirPlusBuffer::new(r.size);
        self.entries_after(r, |s, cookie, ino, name| {
            if cookie <= 2 {
                return out.push_bare(&Dirent { ino, cookie, mode: libc::S_IFDIR, name });
            }
            // Asked first: an entry that does not fit must not be counted as looked up.
            if !out.fits(name.len()) {
                return false;
            }
            s.entry(ino).is_ok_and(|e| out.push(&e, cookie, name))
        })?;
        Ok(out.finish())
    }
}

const OPENED: Opened = Opened { handle: Handle(0), flags: 0 };

fn opened(flags: i32) -> Opened {
    let direct = flags & libc::O_DIRECT != 0;
    Opened { flags: if direct { flags::FOPEN_DIRECT_IO | flags::FOPEN_PARALLEL_DIRECT_WRITES } else { flags::FOPEN_KEEP_CACHE }, ..OPENED }
}

impl Null {
    fn answer(&self, c: &Context, op: Op) -> Result<Reply> {
        if let Op::Read(r) = &op {
            return self.read(r);
        }
        let mut s = self.state.lock();
        Ok(match op {
            Op::Write(w) => s.write(&w)?,
            Op::Lookup(l) => match s.child(l.parent, &l.name) {
                Ok(ino) => Reply::Entry(s.entry(ino)?),
                Err(libc::ENOENT) => Reply::Absent(VALID),
                Err(e) => return Err(e),
            },
            Op::Getattr(g) => Reply::Attr(s.get(g.ino)?.attr, VALID),
            Op::Setattr(a) => s.setattr(&a)?,
            Op::Create(n) => Reply::Created(s.make(c, n.parent, n.name, libc::S_IFREG | n.mode & 0o7777, 0)?, opened(n.flags)),
            Op::Mknod(n) => Reply::Entry(s.make(c, n.parent, n.name, n.mode, n.rdev)?),
            Op::Mkdir(n) => Reply::Entry(s.make(c, n.parent, n.name, libc::S_IFDIR | n.mode & 0o7777, 0)?),
            Op::Unlink(u) => s.remove(u.parent, &u.name, false).map(|()| Reply::Empty)?,
            Op::Rmdir(u) => s.remove(u.parent, &u.name, true).map(|()| Reply::Empty)?,
            Op::Rename(r) => s.rename(&r).map(|()| Reply::Empty)?,
            Op::Open(o) => {
                if o.flags & libc::O_TRUNC != 0 {
                    s.get(o.ino)?.attr.size = 0;
                }
                Reply::Opened(opened(o.flags))
            }
            Op::Opendir(_) => Reply::Opened(Opened { flags: flags::FOPEN_KEEP_CACHE | flags::FOPEN_CACHE_DIR, ..OPENED }),
            Op::Readdir(r) => s.readdir(&r)?,
            Op::Readdirplus(r) => s.readdirplus(&r)?,
            Op::Release(_) | Op::Releasedir(_) | Op::Flush(_) | Op::Fsync(_) | Op::Fsyncdir(_) => Reply::Empty,
            Op::Fallocate(f) if f.mode == 0 => {
                let end = f.offset.checked_add(f.len).filter(|e| *e <= i64::MAX as u64).ok_or(libc::EFBIG)?;
                let a = &mut s.get(f.ino)?.attr;
                a.size = a.size.max(end);
                Reply::Empty
            }
            Op::Fallocate(_) => return Err(libc::EOPNOTSUPP),
            Op::Statfs(_) => {
                let (blocks, files) = (1 << 30, NODES_MAX as u64);
                let free = files - s.nodes.len().min(NODES_MAX) as u64;
                Reply::Statfs(StatfsReply {
                    blocks,
                    bfree: blocks,
                    bavail: blocks,
                    files,
                    ffree: free,
                    bsize: 4096,
                    frsize: 4096,
                    name_max: 255,
                })
            }
            _ => return Err(libc::ENOSYS),
        })
    }
}

impl Filesystem for Null {
    fn handle(&self, context: Context, op: Op) -> Answer<'_> {
        Answer::Ready(self.answer(&context, op).unwrap_or_else(Reply::Err))
    }

    fn forget(&self, items: &[Forget]) {
        let mut s = self.state.lock();
        for f in items {
            let Some(n) = s.nodes.get_mut(&f.node.0) else { continue };
            n.lookups = n.lookups.saturating_sub(f.lookups);
            if n.lookups == 0 && n.attr.nlink == 0 {
                s.nodes.remove(&f.node.0);
            }
        }
    }
}
