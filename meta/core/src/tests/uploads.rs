//! Multipart uploads.

use super::world::{OWNER, World, name};
use crate::read;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;

fn begin(w: &mut World, bucket: BucketId, key: &str) -> UploadId {
    let info = ObjectInfo { headers: vec![("x-amz-meta-a".into(), "b".into())], ..Default::default() };
    match w.run(Command::CreateUpload { bucket, key: name(key), info }) {
        Reply::Upload(id) => id,
        other => panic!("{other:?}"),
    }
}

fn part(w: &mut World, bucket: BucketId, upload: UploadId, number: u16, len: u32) -> StripeId {
    let s = w.stripe(len);
    let extents = vec![Extent { offset: 0, len, stripe: s.id, stripe_offset: 0 }];
    let id = s.id;
    let put = Command::PutPart {
        bucket,
        upload,
        number,
        size: len as u64,
        etag: format!("e{number}"),
        checksums: vec![],
        extents,
        stripes: vec![s],
        inline: vec![],
    };
    assert!(matches!(w.run(put), Reply::Part { .. }));
    id
}

fn complete(w: &mut World, bucket: BucketId, upload: UploadId, parts: &[u16]) -> Command {
    let ino = w.ino();
    Command::CompleteUpload {
        bucket,
        upload,
        ino,
        parts: parts.iter().map(|n| (*n, format!("e{n}"))).collect(),
        info: ObjectInfo { etag: Some("joined-2".into()), ..Default::default() },
        owner: OWNER,
        part_bytes_min: 100,
        condition: Condition::default(),
    }
}

#[test]
fn parts_join_in_order_and_a_retry_answers_the_same() {
    let mut w = World::new();
    let b = w.tree.id;
    let u = begin(&mut w, b, "a/big");
    let three = part(&mut w, b, u, 3, 50);
    let one = part(&mut w, b, u, 1, 3 << 20);
    let two = part(&mut w, b, u, 2, 3 << 20);
    assert!(w.resolve(b, "a/big").is_err());
    let (upload, parts) = read::upload_parts(&w.kv, b, u, 1, 10).unwrap().unwrap();
    assert_eq!((&upload.key[..], upload.id), (&b"a/big"[..], u));
    assert_eq!(parts.iter().map(|p| (p.number, p.size)).collect::<Vec<_>>(), [(2, 3 << 20), (3, 50)]);
    let command = complete(&mut w, b, u, &[1, 2, 3]);
    let reply = w.run(command.clone());
    let Reply::Put { attr, etag, replaced } = reply.clone() else { panic!("{reply:?}") };
    assert_eq!((attr.size, attr.mapped, etag.as_str(), replaced), ((6 << 20) + 50, (6 << 20) + 50, "joined-2", None));
    let m = 1 << 20;
    let want = [(0, 3 * m as u32, one, 0), (3 * m, m as u32, two, 0), (4 * m, 2 * m as u32, two, m as u32), (6 * m, 50, three, 0)];
    assert_eq!(w.map(attr.ino), want);
    let (_, info) = w.resolve(b, "a/big").unwrap();
    assert_eq!(info.parts, [3 << 20, 3 << 20, 50]);
    assert_eq!(info.headers[0].0, "x-amz-meta-a");
    assert!(w.orphans().is_empty());
    assert_eq!(w.run(command), reply);
    w.fails(Command::AbortUpload { bucket: b, upload: u }, MetaError::NoSuchUpload);
    assert!(read::uploads(&w.kv, b, b"", None, 10).unwrap().unwrap().is_empty());
}

#[test]
fn completion_checks_order_etags_and_sizes() {
    let mut w = World::new();
    let b = w.tree.id;
    let u = begin(&mut w, b, "k");
    part(&mut w, b, u, 1, 100);
    part(&mut w, b, u, 2, 99);
    part(&mut w, b, u, 3, 1);
    for (parts, error) in [
        (&[2, 1][..], MetaError::InvalidPart(1)),
        (&[1, 1], MetaError::InvalidPart(1)),
        (&[1, 4], MetaError::InvalidPart(4)),
        (&[1, 2, 3], MetaError::PartTooSmall(2)),
    ] {
        let c = complete(&mut w, b, u, parts);
        w.fails(c, error);
    }
    let c = complete(&mut w, b, u, &[]);
    w.fails_like(c, MetaError::Invalid(String::new()));
    let mut c = complete(&mut w, b, u, &[1]);
    if let Command::CompleteUpload { parts, .. } = &mut c {
        parts[0].1 = "other".into();
    }
    w.fails(c, MetaError::InvalidPart(1));
    w.dir(w.tree.root, "k");
    let c = complete(&mut w, b, u, &[1]);
    w.fails_like(c, MetaError::KeyConflict(String::new()));
    w.run(Command::Rmdir { dir: w.tree.root, name: name("k") });
    let c = complete(&mut w, b, u, &[1, 3]);
    assert!(matches!(w.run(c), Reply::Put { .. }));
    // The part that was not joined goes.
    assert_eq!(w.stats().live, 101 + 99);
    w.reap_all(1);
    assert_eq!(w.stats().live, 101);
}

#[test]
fn a_part_sent_again_replaces_and_an_abort_frees_all() {
    let mut w = World::new();
    let b = w.bucket("flat", Shape::Flat).id;
    let u = begin(&mut w, b, "k");
    let old = part(&mut w, b, u, 1, 100);
    let new = part(&mut w, b, u, 1, 200);
    assert_eq!(w.retired(), [old]);
    let mut all = vec![old, new];
    for n in 2..150 {
        all.push(part(&mut w, b, u, n, 10));
    }
    assert_eq!(w.run(Command::AbortUpload { bucket: b, upload: u }), Reply::Done);
    assert!(matches!(read::upload_parts(&w.kv, b, u, 0, 10).unwrap(), Err(MetaError::NoSuchUpload)));
    assert!(w.reap_all(20) > 7);
    assert_eq!(w.retired(), all);
    assert_eq!(w.stats().live, 0);
    let gone = Command::PutPart {
        bucket: b,
        upload: u,
        number: 1,
        size: 0,
        etag: String::new(),
        checksums: vec![],
        extents: vec![],
        stripes: vec![],
        inline: vec![],
    };
    w.fails(gone, MetaError::NoSuchUpload);
}

#[test]
fn uploads_are_listed_by_key_then_id() {
    let mut w = World::new();
    let b = w.bucket("flat", Shape::Flat).id;
    let ids: Vec<UploadId> = ["b", "a", "a", "a\u{1}", "ab", "c/d"].iter().map(|k| begin(&mut w, b, k)).collect();
    let list = |prefix: &str, after: Option<(Name, UploadId)>, max| {
        let all = read::uploads(&w.kv, b, prefix.as_bytes(), after.as_ref(), max).unwrap().unwrap();
        all.iter().map(|u| u.id).collect::<Vec<_>>()
    };
    assert_eq!(list("", None, 10), [ids[1], ids[2], ids[3], ids[4], ids[0], ids[5]]);
    assert_eq!(list("a", None, 2), [ids[1], ids[2]]);
    assert_eq!(list("a", Some((name("a"), ids[1])), 10), [ids[2], ids[3], ids[4]]);
    assert_eq!(list("c", None, 10), [ids[5]]);
    w.fails_like(Command::CreateUpload { bucket: b, key: name("a\0b"), info: Default::default() }, MetaError::Invalid(String::new()));
    let tree = w.tree.id;
    w.fails_like(
        Command::CreateUpload { bucket: tree, key: name("a//b"), info: Default::default() },
        MetaError::KeyConflict(String::new()),
    );
    w.fails_like(Command::CreateUpload { bucket: tree, key: name("a/"), info: Default::default() }, MetaError::KeyConflict(String::new()));
    w.fails(Command::CreateUpload { bucket: BucketId(99), key: name("a"), info: Default::default() }, MetaError::NoSuchBucket);
}

#[test]
fn ten_thousand_parts_join_in_one_command() {
    let mut w = World::new();
    w.checked = false;
    let b = w.tree.id;
    let u = begin(&mut w, b, "big");
    for n in 1..=10_000 {
        part(&mut w, b, u, n, 5000);
    }
    let all: Vec<u16> = (1..=10_000).collect();
    let command = complete(&mut w, b, u, &all);
    let Reply::Put { attr, .. } = w.run(command) else { panic!() };
    assert_eq!((attr.size, attr.mapped), (50_000_000, 50_000_000));
    assert!(crate::check(&w.kv).is_empty());
}
