//! What a directory does.

use crate::rig::*;
use holdfast_fs_vfs::{CreateArgs, DirItem, Error, LookupReply, MknodArgs, OpenFlags, ROOT, RenameArgs};
use holdfast_objstore_proto::meta::Kind;
use std::collections::BTreeSet;

#[tokio::test]
async fn every_kind_of_node_is_made_found_and_removed() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let d = m.mkdir(ROOT, "d").await;
    for (n, kind, rdev) in [("fifo", Kind::Fifo, 0), ("sock", Kind::Socket, 0), ("chr", Kind::CharDev, 0x0103), ("reg", Kind::File, 0)] {
        let made = m.mknod(WHO, MknodArgs { parent: d, name: name(n), kind, mode: 0o600, rdev }).await.unwrap();
        assert_eq!((made.attr.kind, made.attr.rdev, made.attr.uid, made.attr.nlink), (kind, rdev, 1000, 1));
    }
    let link = m.symlink(WHO, d, name("link"), name("../target")).await.unwrap();
    assert_eq!(m.readlink(link.attr.node).await.unwrap(), name("../target"));
    assert_eq!(m.rmdir(ROOT, name("d")).await, Err(Error::NotEmpty));
    assert_eq!(m.unlink(ROOT, name("d")).await, Err(Error::IsDir));
    assert_eq!(m.names(d).await, [".", "..", "fifo", "sock", "chr", "reg", "link"]);
    for n in ["fifo", "sock", "chr", "reg", "link"] {
        m.unlink(d, name(n)).await.unwrap();
    }
    m.rmdir(ROOT, name("d")).await.unwrap();
    assert_eq!(m.names(ROOT).await, [".", ".."]);
    assert_eq!(m.getattr(ROOT, None).await.unwrap().attr.node, ROOT);
}

#[tokio::test]
async fn names_that_cannot_be_are_refused() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let make = async |n: &str| {
        m.mknod(WHO, MknodArgs { parent: ROOT, name: name(n), kind: Kind::File, mode: 0o600, rdev: 0 }).await.map(|e| e.attr.kind)
    };
    assert_eq!(make(&"x".repeat(256)).await, Err(Error::NameTooLong));
    assert_eq!(make(&"x".repeat(255)).await, Ok(Kind::File));
    assert_eq!(make("..").await, Err(Error::Invalid));
    assert_eq!(make("a/b").await, Err(Error::Invalid));
    let f = m.file("f").await;
    assert_eq!(m.lookup(WHO, f.0, name("x")).await, Err(Error::NotDir));
    let open = OpenFlags { flags: libc::O_RDWR | libc::O_EXCL | libc::O_CREAT, kill_suidgid: false };
    let again = CreateArgs { parent: ROOT, name: name("f"), mode: 0o600, open };
    assert_eq!(m.create(WHO, again.clone()).await, Err(Error::Exists));
    let open = OpenFlags { flags: libc::O_RDWR | libc::O_CREAT, kill_suidgid: false };
    assert_eq!(m.create(WHO, CreateArgs { open, ..again }).await.unwrap().entry.attr.node, f.0);
}

#[tokio::test]
async fn rename_flags_are_obeyed_and_unknown_ones_refused() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let (a, b) = (m.file("a").await, m.file("b").await);
    let rename = |flags| RenameArgs { parent: ROOT, name: name("a"), new_parent: ROOT, new_name: name("b"), flags };
    assert_eq!(m.rename(rename(libc::RENAME_NOREPLACE)).await, Err(Error::Exists));
    assert_eq!(m.rename(rename(libc::RENAME_WHITEOUT)).await, Err(Error::Invalid));
    assert_eq!(m.rename(rename(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE)).await, Err(Error::Invalid));
    m.rename(rename(libc::RENAME_EXCHANGE)).await.unwrap();
    assert_eq!(m.find(ROOT, "a").await.unwrap().attr.node, b.0);
    assert_eq!(m.find(ROOT, "b").await.unwrap().attr.node, a.0);
    m.rename(rename(0)).await.unwrap();
    assert!(m.find(ROOT, "a").await.is_none());
    assert_eq!(m.find(ROOT, "b").await.unwrap().attr.node, b.0);
}

#[tokio::test]
async fn hard_links_share_one_inode_and_its_count() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    m.put(f, 0, vec![1; 10]).await;
    let linked = m.link(f.0, ROOT, name("g")).await.unwrap();
    assert_eq!((linked.attr.node, linked.attr.nlink, linked.attr.size), (f.0, 2, 10));
    m.unlink(ROOT, name("f")).await.unwrap();
    assert_eq!(m.getattr(f.0, None).await.unwrap().attr.nlink, 1);
    let d = m.mkdir(ROOT, "d").await;
    assert_eq!(m.link(d, ROOT, name("e")).await, Err(Error::NotPermitted));
}

#[tokio::test]
async fn a_directory_reader_sees_each_lasting_name_once_while_others_come_and_go() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let d = m.mkdir(ROOT, "d").await;
    let lasting: BTreeSet<String> = (0..300).map(|i| format!("stay{i}")).collect();
    for n in &lasting {
        m.mknod(WHO, MknodArgs { parent: d, name: name(n), kind: Kind::File, mode: 0o600, rdev: 0 }).await.unwrap();
    }
    let h = m.opendir(d).await.unwrap().handle;
    let (mut seen, mut after, mut turn) = (Vec::new(), 0, 0);
    loop {
        let mut got = 0;
        let (mut batch, mut next) = (Vec::new(), after);
        let mut fill = |item: &DirItem| {
            if got == 7 {
                return false;
            }
            got += 1;
            next = item.next;
            batch.push(String::from_utf8(item.name.to_vec()).unwrap());
            true
        };
        m.readdir(h, after, &mut fill).await.unwrap();
        if batch.is_empty() {
            break;
        }
        after = next;
        seen.extend(batch);
        let n = name(&format!("go{turn}"));
        m.mknod(WHO, MknodArgs { parent: d, name: n.clone(), kind: Kind::File, mode: 0o600, rdev: 0 }).await.unwrap();
        if turn % 2 == 0 {
            m.unlink(d, n).await.unwrap();
        }
        turn += 1;
        assert!(turn < 1000, "the listing ends");
        if turn > 60 {
            continue;
        }
    }
    for n in &lasting {
        assert_eq!(seen.iter().filter(|s| *s == n).count(), 1, "{n}");
    }
    assert_eq!(seen[..2], [".", ".."]);
}

#[tokio::test]
async fn readdirplus_counts_lookups_only_of_what_it_handed_out() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    for i in 0..5 {
        let f = m.file(&format!("f{i}")).await;
        m.put(f, 0, vec![0; i + 1]).await;
        m.release(f.1);
    }
    let h = m.opendir(ROOT).await.unwrap().handle;
    let mut got = Vec::new();
    let mut fill = |item: &DirItem| {
        if got.len() == 4 {
            return false;
        }
        got.push(item.clone());
        true
    };
    m.readdirplus(h, 0, &mut fill).await.unwrap();
    assert!(got[0].entry.is_none() && got[1].entry.is_none());
    assert_eq!(got[2].entry.as_ref().unwrap().attr.size, 1, "own unpublished sizes are shown");
    assert_eq!(got[3].entry.as_ref().unwrap().attr.size, 2);
    // f0: created and listed.
    m.forget(&[(got[2].node, 1)]);
    assert!(m.getattr(got[2].node, None).await.is_ok());
    m.forget(&[(got[2].node, 1)]);
    soon(m.sync_all()).await.unwrap();
    soon(async {
        while m.getattr(got[2].node, None).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn dot_and_dotdot_are_looked_up() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let d = m.mkdir(ROOT, "d").await;
    let e = m.mkdir(d, "e").await;
    assert_eq!(m.find(e, "..").await.unwrap().attr.node, d);
    assert_eq!(m.find(d, "..").await.unwrap().attr.node, ROOT);
    assert_eq!(m.find(ROOT, "..").await.unwrap().attr.node, ROOT);
    assert_eq!(m.find(e, ".").await.unwrap().attr.node, e);
}

#[tokio::test]
async fn names_and_attributes_may_be_kept_under_a_grant_and_absent_names_too() {
    let rig = Rig::new().await;
    let m = rig.mount().await;
    let f = m.file("f").await;
    let found = m.find(ROOT, "f").await.unwrap();
    assert!(!found.entry_valid.is_zero() && !found.attr_valid.is_zero());
    let LookupReply::Absent { entry_valid } = m.lookup(WHO, ROOT, name("no")).await.unwrap() else { panic!("absent") };
    assert!(!entry_valid.is_zero());
    assert!(!m.getattr(f.0, None).await.unwrap().attr_valid.is_zero());
    assert_eq!(m.statfs().namelen, 255);
}
