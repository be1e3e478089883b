//! A state with one session and one tree, and short ways to command it. The state is checked after every command.

use crate::kv::MemKv;
use crate::{SERVICE_EPOCH, SERVICE_SESSION, apply_with, check, initialise, read};
use bytes::Bytes;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const OWNER: Owner = Owner { uid: 1000, gid: 100 };

pub(crate) struct World {
    pub kv: MemKv,
    pub index: u64,
    pub now: TimeNs,
    pub session: SessionId,
    pub epoch: SessionEpoch,
    pub seq: u64,
    pub tree: Bucket,
    inodes: InodeRange,
    stripes: StripeRange,
    /// Whether `check` runs after every command.
    pub checked: bool,
    /// Inline bytes, kept as the service keeps them: with the index of their command.
    pub staged: BTreeMap<StripeId, (u64, Bytes)>,
}

pub(crate) fn name(s: &str) -> Name {
    Bytes::copy_from_slice(s.as_bytes())
}

pub(crate) fn inline_bytes(stripe: StripeId, len: usize) -> Bytes {
    stripe.counter.to_le_bytes().into_iter().cycle().take(len).collect::<Vec<u8>>().into()
}

pub(crate) fn stripe_meta(id: StripeId, len: u32) -> StripeMeta {
    StripeMeta { id, codec: Codec::Replica, code: Code::new(1, 0), len, digest: 7, osds: [OsdId(3)].into_iter().collect(), missing: 0 }
}

impl World {
    pub fn new() -> Self {
        let mut kv = MemKv::default();
        initialise(&mut kv).unwrap();
        let none = StripeId::default();
        let mut w = World {
            kv,
            index: 0,
            now: 1000,
            session: SessionId(0),
            epoch: SessionEpoch(0),
            seq: 0,
            tree: Bucket { id: BucketId(0), name: name(""), shape: Shape::Tree, code: Code::new(1, 0), root: InodeId(0), created: 0 },
            inodes: InodeRange { first: InodeId(0), count: 0 },
            stripes: StripeRange { first: none, count: 0 },
            checked: true,
            staged: BTreeMap::new(),
        };
        w.open();
        w.tree = w.bucket("home", Shape::Tree);
        w
    }

    /// A new session, with ids.
    pub fn open(&mut self) {
        let open = Command::OpenSession { client: "test".into() };
        let Reply::Session { session, epoch } = self.request(SessionId(0), SessionEpoch(0), 0, 0, open) else { panic!() };
        (self.session, self.epoch, self.seq) = (session, epoch, 0);
        let Reply::Inodes(inodes) = self.run(Command::GrantInodes { count: 4096 }) else { panic!() };
        let Reply::Stripes(stripes) = self.run(Command::GrantStripes { count: 65536 }) else { panic!() };
        (self.inodes, self.stripes) = (inodes, stripes);
    }

    pub fn request(&mut self, session: SessionId, epoch: SessionEpoch, seq: u64, acked: u64, command: Command) -> Reply {
        self.index += 1;
        self.now += 10;
        let request = Request { session, epoch, seq, acked, command: command.clone() };
        let (reply, effects) = apply_with(&mut self.kv, self.index, self.now, &request).unwrap();
        for id in effects.freed {
            assert!(self.staged.remove(&id).is_some(), "{id} was freed and not staged");
        }
        self.staged.extend(effects.staged.into_iter().map(|(id, data)| (id, (self.index, data))));
        if self.checked {
            self.check_staged();
        }
        if self.checked {
            let complaints = check(&self.kv);
            assert!(complaints.is_empty(), "after {command:?} → {reply:?}:\n{}", complaints.join("\n"));
        }
        reply
    }

    pub fn run(&mut self, command: Command) -> Reply {
        self.seq += 1;
        self.request(self.session, self.epoch, self.seq, self.seq - 1, command)
    }

    pub fn serve(&mut self, command: Command) -> Reply {
        self.request(SERVICE_SESSION, SERVICE_EPOCH, 0, 0, command)
    }

    pub fn fails(&mut self, command: Command, with: MetaError) {
        assert_eq!(self.run(command), Reply::Error(with));
    }

    /// Fails as `with` does, whatever the reason it gives.
    pub fn fails_like(&mut self, command: Command, with: MetaError) {
        let reply = self.run(command);
        let Reply::Error(e) = reply else { panic!("{reply:?}") };
        assert_eq!(std::mem::discriminant(&e), std::mem::discriminant(&with), "{e:?}");
    }

    pub fn attr_of(&mut self, command: Command) -> Attr {
        match self.run(command) {
            Reply::Attr(a) => a,
            other => panic!("{other:?}"),
        }
    }

    pub fn bucket(&mut self, n: &str, shape: Shape) -> Bucket {
        match self.run(Command::CreateBucket { name: name(n), shape, code: Code::new(4, 2), owner: OWNER, mode: 0o755 }) {
            Reply::Bucket(b) => b,
            other => panic!("{other:?}"),
        }
    }

    pub fn ino(&mut self) -> InodeId {
        assert!(self.inodes.count > 0);
        self.inodes.first.0 += 1;
        self.inodes.count -= 1;
        InodeId(self.inodes.first.0 - 1)
    }

    /// As [`World::ino`], with ids granted as they are needed.
    pub fn next_ino(&mut self) -> InodeId {
        if self.inodes.count == 0 {
            let Reply::Inodes(inodes) = self.run(Command::GrantInodes { count: 4096 }) else { panic!() };
            self.inodes = inodes;
        }
        self.ino()
    }

    pub fn stripe(&mut self, len: u32) -> Arc<StripeMeta> {
        assert!(self.stripes.count > 0);
        let id = self.stripes.first;
        self.stripes.first.counter += 1;
        self.stripes.count -= 1;
        Arc::new(stripe_meta(id, len))
    }

    pub fn create(&mut self, dir: InodeId, n: &str, kind: Kind) -> Command {
        let ino = self.ino();
        let target = if kind == Kind::Symlink { name("over/there") } else { name("") };
        Command::Create { dir, name: name(n), ino, kind, mode: 0o755, owner: OWNER, rdev: 5, target }
    }

    pub fn make(&mut self, dir: InodeId, n: &str, kind: Kind) -> InodeId {
        let command = self.create(dir, n, kind);
        self.attr_of(command).ino
    }

    pub fn file(&mut self, dir: InodeId, n: &str) -> InodeId {
        self.make(dir, n, Kind::File)
    }

    pub fn dir(&mut self, dir: InodeId, n: &str) -> InodeId {
        self.make(dir, n, Kind::Dir)
    }

    /// A Publish of one new stripe over each (offset, len), with the inode's next number.
    pub fn publish(&mut self, ino: InodeId, runs: &[(u64, u32)]) -> Publish {
        let attr = self.attr(ino);
        let (mut extents, mut stripes) = (Vec::new(), Vec::new());
        for (offset, len) in runs {
            let s = self.stripe(*len);
            extents.push(Extent { offset: *offset, len: *len, stripe: s.id, stripe_offset: 0 });
            stripes.push(s);
        }
        let size = runs.iter().map(|(o, l)| o + *l as u64).max().unwrap_or(0).max(attr.size);
        Publish {
            ino,
            number: attr.number + 1,
            extents,
            stripes,
            inline: vec![],
            size,
            mtime: self.now,
            ctime: self.now,
            clear_suid: false,
        }
    }

    pub fn write(&mut self, ino: InodeId, offset: u64, len: u32) -> StripeId {
        let p = self.publish(ino, &[(offset, len)]);
        let id = p.stripes[0].id;
        self.attr_of(Command::Publish(p));
        id
    }

    pub fn truncate(&mut self, ino: InodeId, size: u64) -> Attr {
        let number = self.attr(ino).number + 1;
        let mtime = self.now;
        self.attr_of(Command::Truncate { ino, number, size, mtime })
    }

    pub fn attr(&self, ino: InodeId) -> Attr {
        read::getattr(&self.kv, ino).unwrap().unwrap()
    }

    pub fn look(&self, dir: InodeId, n: &str) -> Option<Attr> {
        read::lookup(&self.kv, dir, n.as_bytes()).unwrap().unwrap().map(|e| e.attr)
    }

    /// The state's list of what is staged is what was staged and not freed.
    pub fn check_staged(&self) {
        let mut kept: Vec<_> = self.staged.iter().map(|(id, (index, _))| (*index, *id)).collect();
        kept.sort();
        assert_eq!(read::staged(&self.kv).unwrap().unwrap(), kept);
    }

    pub fn extents(&self, ino: InodeId) -> Vec<MappedExtent> {
        let staged = |id| self.staged.get(&id).map(|(_, data)| read::StagedBytes::Kept(data.clone()));
        read::extents(&self.kv, ino, 0..u32::MAX, &staged).unwrap().unwrap()
    }

    /// (offset, len, stripe, stripe offset) of all extents.
    pub fn map(&self, ino: InodeId) -> Vec<(u64, u32, StripeId, u32)> {
        self.extents(ino).iter().map(|e| (e.offset, e.len, e.stripe.id, e.stripe_offset)).collect()
    }

    /// A new stripe that travels inline; its bytes tell it from others.
    pub fn inline(&mut self, len: usize) -> Inline {
        let stripe = self.stripe(1).id;
        Inline { stripe, data: inline_bytes(stripe, len) }
    }

    /// Publishes `len` bytes inline.
    pub fn write_inline(&mut self, ino: InodeId, offset: u64, len: usize) -> StripeId {
        let i = self.inline(len);
        let (id, mut p) = (i.stripe, self.publish(ino, &[]));
        p.extents.push(Extent { offset, len: len as u32, stripe: id, stripe_offset: 0 });
        p.size = p.size.max(offset + len as u64);
        p.inline.push(i);
        self.attr_of(Command::Publish(p));
        id
    }

    /// A pack of what was gathered, tightly, in that order.
    pub fn pack_of(&mut self, found: &read::Gathered) -> Pack {
        let stripe = self.stripe(found.bytes as u32);
        let mut at = 0;
        let members = found.places.iter().map(|p| {
            at += p.len;
            PackMember { stripe: p.stripe, len: p.len, at: at - p.len, from: p.from }
        });
        Pack { bucket: found.bucket, members: members.collect(), stripe }
    }

    /// The same for runs on worn stripes.
    pub fn relocate_of(&mut self, found: &read::Worn) -> Relocate {
        let stripe = self.stripe(found.bytes as u32);
        let mut at = 0;
        let runs = found.runs.iter().map(|r| {
            at += r.run.len;
            Run { at: at - r.run.len, ..r.run }
        });
        Relocate { bucket: found.bucket, runs: runs.collect(), stripe }
    }

    pub fn names(&self, dir: InodeId) -> Vec<String> {
        let all = read::readdir(&self.kv, dir, 0, usize::MAX).unwrap().unwrap();
        all.iter().map(|(e, _)| String::from_utf8_lossy(&e.name).into()).collect()
    }

    pub fn orphans(&self) -> Vec<InodeId> {
        read::orphans(&self.kv, None, usize::MAX).unwrap().unwrap()
    }

    pub fn retired(&self) -> Vec<StripeId> {
        read::retired(&self.kv, None, usize::MAX).unwrap().unwrap().iter().map(|s| s.id).collect()
    }

    pub fn stats(&self) -> read::Stats {
        read::stats(&self.kv).unwrap().unwrap()
    }

    /// Reaps everything, `chunks_max` at a time; answers how many commands it took.
    pub fn reap_all(&mut self, chunks_max: u32) -> usize {
        let mut commands = 0;
        for ino in self.orphans() {
            loop {
                commands += 1;
                if self.serve(Command::ReapOrphan { ino, chunks_max }) == (Reply::Reaped { done: true }) {
                    break;
                }
            }
        }
        commands
    }

    pub fn put(&mut self, bucket: BucketId, key: &str, len: u32) -> PutObject {
        let ino = self.ino();
        let (mut extents, mut stripes) = (Vec::new(), Vec::new());
        if len > 0 {
            let s = self.stripe(len);
            extents.push(Extent { offset: 0, len, stripe: s.id, stripe_offset: 0 });
            stripes.push(s);
        }
        let info = ObjectInfo {
            etag: Some(format!("md5-of-{key}-{len}")),
            headers: vec![("content-type".into(), "text/plain".into())],
            ..Default::default()
        };
        PutObject {
            bucket,
            key: name(key),
            ino,
            size: len as u64,
            extents,
            stripes,
            inline: vec![],
            info,
            owner: OWNER,
            condition: Condition::default(),
            copy_from: None,
        }
    }

    pub fn put_ok(&mut self, bucket: BucketId, key: &str, len: u32) -> (Attr, Option<InodeId>) {
        let p = self.put(bucket, key, len);
        match self.run(Command::PutObject(p)) {
            Reply::Put { attr, replaced, .. } => (attr, replaced),
            other => panic!("{key}: {other:?}"),
        }
    }

    pub fn delete(&mut self, bucket: BucketId, key: &str) -> Option<InodeId> {
        match self.run(Command::DeleteObject { bucket, key: name(key), condition: Condition::default() }) {
            Reply::Removed { ino } => ino,
            other => panic!("{key}: {other:?}"),
        }
    }

    pub fn resolve(&self, bucket: BucketId, key: &str) -> MetaResult<(Attr, ObjectInfo)> {
        read::resolve(&self.kv, bucket, &name(key)).unwrap()
    }

    pub fn list(&self, bucket: BucketId, prefix: &str, delimiter: &str, after: Option<&str>, keys_max: usize) -> ListPage {
        let delimiter = (!delimiter.is_empty()).then(|| name(delimiter));
        read::list(&self.kv, bucket, &ListQuery { prefix: name(prefix), delimiter, after: after.map(name), keys_max }).unwrap().unwrap()
    }
}

/// Items of a page as strings; a common prefix in brackets.
pub(crate) fn shown(page: &ListPage) -> Vec<String> {
    let show = |i: &ListItem| match i {
        ListItem::Object { key, .. } => String::from_utf8_lossy(key).to_string(),
        ListItem::CommonPrefix(p) => format!("[{}]", String::from_utf8_lossy(p)),
    };
    page.items.iter().map(show).collect()
}
