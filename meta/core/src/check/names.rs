//! Checks inodes, names in both orders, links, buckets and object records against each other.

use super::{Report, number};
use crate::keys;
use crate::record::{Body, BucketRecord, CookieRecord, Dentry, Inode, Orphan};
use holdfast_objstore_proto::meta::{Kind, ObjectInfo, Shape};
use holdfast_objstore_proto::{BucketId, InodeId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Inodes = BTreeMap<InodeId, Inode>;

pub(super) fn check(r: &mut Report) -> Inodes {
    let inodes: Inodes = r.all::<Inode>(keys::INODE).into_iter().map(|(k, v)| (InodeId(number(&k, 0)), v)).collect();
    let roots = buckets(r, &inodes);
    let names = dentries(r, &inodes);
    cookies(r, &inodes, &names);
    links(r, &inodes, &roots, &names);
    orphans(r, &inodes);
    for (k, _) in r.all::<ObjectInfo>(keys::INFO) {
        let ino = InodeId(number(&k, 0));
        r.expect(inodes.get(&ino).is_some_and(|i| matches!(i.kind(), Kind::File | Kind::Dir)), || {
            format!("{ino} has an object record and is no file or directory")
        });
    }
    inodes
}

fn buckets(r: &mut Report, inodes: &Inodes) -> BTreeSet<InodeId> {
    let named: BTreeMap<Vec<u8>, BucketId> = r.all::<BucketId>(keys::BUCKET_NAME).into_iter().collect();
    let mut roots = BTreeSet::new();
    let mut count = 0;
    for (key, b) in r.all::<BucketRecord>(keys::BUCKET) {
        count += 1;
        let id = BucketId(key.try_into().map_or(0, u32::from_be_bytes));
        r.expect(named.get(&b.name[..]) == Some(&id), || format!("{id} is not under its name"));
        let root = inodes.get(&b.root);
        let flat = b.shape == Shape::Flat;
        let fits = |i: &Inode| i.bucket == id && matches!(i.body, Body::Dir { parent, flat: f, .. } if parent == b.root && f == flat);
        r.expect(root.is_some_and(fits), || format!("{} is not a root for {id}", b.root));
        roots.insert(b.root);
    }
    r.expect(named.len() == count, || "there are other bucket names than buckets".into());
    roots
}

/// (directory, name without the slash) → dentry.
type Names = BTreeMap<(InodeId, Vec<u8>), Dentry>;

fn dentries(r: &mut Report, inodes: &Inodes) -> Names {
    let mut names = Names::new();
    for (key, d) in r.all::<Dentry>(keys::DENTRY) {
        let (dir, name) = (InodeId(number(&key, 0)), key.get(8..).unwrap_or_default());
        let show = || format!("name {:?} in {dir}", String::from_utf8_lossy(name));
        let bare = if d.kind == Kind::Dir { name.strip_suffix(b"/") } else { Some(name) };
        let flat = match inodes.get(&dir).map(|i| &i.body) {
            Some(Body::Dir { flat, .. }) => *flat,
            _ => {
                r.say(format!("{}: there is no such directory", show()));
                continue;
            }
        };
        let Some(bare) = bare else {
            r.say(format!("{}: a directory's key does not end in a slash", show()));
            continue;
        };
        r.expect(flat || crate::dir::check_name(bare).is_ok(), || format!("{}: it cannot be a name", show()));
        r.expect(inodes.get(&d.ino).is_some_and(|i| i.kind() == d.kind), || {
            format!("{}: {} is not there, or of another kind", show(), d.ino)
        });
        r.expect(names.insert((dir, bare.to_vec()), d).is_none(), || format!("{}: it is there twice", show()));
    }
    names
}

fn cookies(r: &mut Report, inodes: &Inodes, names: &Names) {
    let mut per_dir: BTreeMap<InodeId, u64> = BTreeMap::new();
    for (key, c) in r.all::<CookieRecord>(keys::COOKIE) {
        let (dir, cookie) = (InodeId(number(&key, 0)), number(&key, 8));
        *per_dir.entry(dir).or_default() += 1;
        let same = names.get(&(dir, c.name.to_vec())).is_some_and(|d| (d.ino, d.kind, d.cookie) == (c.ino, c.kind, cookie));
        r.expect(same, || format!("cookie {cookie} in {dir} and its name disagree"));
        let next = match inodes.get(&dir).map(|i| &i.body) {
            Some(Body::Dir { next_cookie, .. }) => *next_cookie,
            _ => 0,
        };
        r.expect((3..next).contains(&cookie), || format!("cookie {cookie} in {dir} was never given"));
    }
    let mut names_in: BTreeMap<InodeId, u64> = BTreeMap::new();
    for (dir, _) in names.keys() {
        *names_in.entry(*dir).or_default() += 1;
    }
    for (ino, inode) in inodes.iter().filter(|(_, i)| i.is_dir()) {
        let n = names_in.get(ino).copied().unwrap_or(0);
        let c = per_dir.get(ino).copied().unwrap_or(0);
        r.expect(n == c && n == inode.size, || format!("{ino} says it has {} entries; there are {n} names and {c} cookies", inode.size));
    }
}

fn links(r: &mut Report, inodes: &Inodes, roots: &BTreeSet<InodeId>, names: &Names) {
    let mut links: BTreeMap<InodeId, u32> = BTreeMap::new();
    let mut children: BTreeMap<InodeId, u32> = BTreeMap::new();
    for ((dir, name), d) in names {
        *links.entry(d.ino).or_default() += 1;
        if d.kind == Kind::Dir {
            *children.entry(*dir).or_default() += 1;
            let parent = inodes.get(&d.ino).map(|i| &i.body);
            r.expect(matches!(parent, Some(Body::Dir { parent, .. }) if parent == dir), || {
                format!("{} is {:?} in {dir}, but has another parent", d.ino, String::from_utf8_lossy(name))
            });
        }
        let of = |ino| inodes.get(ino).map(|i: &Inode| i.bucket);
        r.expect(of(dir) == of(&d.ino), || format!("{} is not in the bucket of {dir}, where it has a name", d.ino));
    }
    for (ino, inode) in inodes {
        let found = links.get(ino).copied().unwrap_or(0);
        let want = match inode.kind() {
            Kind::Dir if found == 0 && !roots.contains(ino) => 0,
            Kind::Dir => 2 + children.get(ino).copied().unwrap_or(0),
            _ => found,
        };
        r.expect(inode.nlink == want, || format!("{ino} says it has {} links, it has {want}", inode.nlink));
        let most = if roots.contains(ino) { 0 } else { 1 };
        r.expect(!inode.is_dir() || found <= most, || format!("directory {ino} has {found} names"));
        if inode.is_dir() && inode.nlink > 0 {
            r.expect(reaches_root(inodes, roots, *ino), || format!("directory {ino} is below no root"));
        }
    }
}

fn reaches_root(inodes: &Inodes, roots: &BTreeSet<InodeId>, mut ino: InodeId) -> bool {
    for _ in 0..=inodes.len() {
        if roots.contains(&ino) {
            return true;
        }
        match inodes.get(&ino).map(|i| &i.body) {
            Some(Body::Dir { parent, .. }) => ino = *parent,
            _ => return false,
        }
    }
    false
}

fn orphans(r: &mut Report, inodes: &Inodes) {
    let mut nameless = BTreeSet::new();
    let mut tails = BTreeMap::new();
    for (key, o) in r.all::<Orphan>(keys::ORPHAN) {
        let id = InodeId(number(&key, 0));
        match o {
            Orphan::Inode => drop(nameless.insert(id)),
            Orphan::Tail { of } => drop(tails.insert(of, id)),
            Orphan::Parts { .. } => {}
        }
    }
    for (ino, inode) in inodes {
        let listed = nameless.remove(ino);
        r.expect(listed == (inode.nlink == 0), || format!("{ino} has {} links, and listed as an orphan is {listed}", inode.nlink));
        if let Body::File { cuts, tail, .. } = &inode.body {
            let listed = tails.remove(ino);
            r.expect(listed == *tail && tail.is_some() != cuts.is_empty(), || format!("the tail of {ino} is not listed as it should be"));
            let in_order = cuts.windows(2).all(|w| w[0].to <= w[1].from && w[0].number < w[1].number);
            r.expect(in_order && cuts.iter().all(|c| c.from < c.to), || format!("the cuts of {ino} are out of order"));
        }
    }
    r.expect(nameless.is_empty() && tails.is_empty(), || "the orphan list names inodes that are not there".into());
}
