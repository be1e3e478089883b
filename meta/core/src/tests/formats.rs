//! What is stored: the bytes are these and no others, and decoders take any bytes.

use super::rng::Rng;
use super::world::{World, name};
use crate::record::*;
use crate::{KvRead, check, keys, read};
use bytes::Bytes;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;

#[test]
fn records_are_the_bytes_the_format_page_draws() {
    let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
    let id = StripeId { incarnation: 1, group: 0, counter: 700 };
    let piece = Piece { start: 4096, len: 300, stripe: id, at: 7 };
    assert_eq!(hex(&encode(&Chunk::Whole { born: 2, pieces: vec![piece] })), "01 00 02 01 80 20 ac 02 01 00 bc 05 07");
    assert_eq!(hex(&encode(&Chunk::Split { born: 2, fragments: 70 })), "01 01 02 46");
    assert_eq!(hex(&encode(&Pieces(vec![piece]))), "01 01 80 20 ac 02 01 00 bc 05 07");
    assert_eq!(hex(&encode(&Dentry { ino: InodeId(513), cookie: 3, kind: Kind::Dir })), "01 81 04 03 01");
    assert_eq!(hex(&encode(&CookieRecord { ino: InodeId(513), kind: Kind::File, name: name("ab") })), "01 81 04 00 02 61 62");
    let stripe = super::world::stripe_meta(id, 300);
    let record = StripeRecord { meta: stripe.into(), live: 5, bucket: BucketId(2), home: Home::Shards };
    assert_eq!(hex(&encode(&record)), "01 01 00 bc 05 00 01 00 ac 02 07 01 03 00 05 02 00");
    let bare = StripeRecord { meta: StripeMeta::bare(id, 300).into(), home: Home::Staged { index: 9 }, ..record };
    assert_eq!(hex(&encode(&bare)), "01 01 00 bc 05 00 01 00 ac 02 00 00 00 05 02 01 09");
    assert_eq!(hex(&encode(&StripeRecord { home: Home::Packed { pack: id, at: 7 }, ..bare })).split_at(45).1, "02 01 00 bc 05 07");
    assert_eq!(hex(&encode(&Packed { stripe: id, len: 300 })), "01 01 00 bc 05 ac 02");
    assert_eq!(hex(&encode(&Small { since: 10 })), "01 14");
    let inode = Inode {
        bucket: BucketId(1),
        mode: 0o644,
        uid: 1,
        gid: 2,
        rdev: 0,
        nlink: 1,
        size: 3,
        mapped: 3,
        atime: -1,
        mtime: 1,
        ctime: 2,
        btime: 0,
        change: 4,
        number: 1,
        body: Body::file(),
    };
    assert_eq!(hex(&encode(&inode)), "01 01 a4 03 01 02 00 01 03 03 01 02 04 00 04 01 00 00 00 00");
    let dir = Body::dir(InodeId(1), true, false);
    assert_eq!(hex(&encode(&Inode { body: dir, ..inode })).split_at(48).1, "01 01 03 01 00");
    assert_eq!(hex(&encode(&Block { session: SessionId(2), count: 512, used: Bytes::from_static(&[5]) })), "01 02 80 04 01 05");
    assert_eq!(hex(&encode(&Owned { granted: 10 })), "01 14");
    assert_eq!(hex(&encode(&Orphan::Tail { of: InodeId(9) })), "01 01 09");
    let info = ObjectInfo { etag: Some("e".into()), headers: vec![("a".into(), "b".into())], checksums: vec![], parts: vec![5] };
    assert_eq!(hex(&encode(&info)), "01 01 01 65 01 01 61 01 62 00 01 05");
    assert_eq!(hex(&encode(&Reply::Unlinked { ino: InodeId(1), nlink: 2 })), "01 05 01 02");
    assert_eq!(hex(&encode(&Reply::Error(MetaError::NotFound))), "01 0d 00");
}

#[test]
fn keys_are_a_family_and_big_endian_ids() {
    let ino = InodeId(0x0102);
    assert_eq!(keys::inode(ino), [0x20, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(keys::dentry_dir(ino, b"n"), [0x30, 0, 0, 0, 0, 0, 0, 1, 2, b'n', b'/']);
    assert_eq!(keys::cookie(ino, 3), [0x31, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(keys::chunk_block(ino, 5, 6), [0x22, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 5, 6]);
    assert_eq!(keys::after_prefix(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
    assert_eq!(keys::after_prefix(b"\xff"), None);
    let longest = keys::dentry(ino, &[b'k'; 1024]);
    assert!(longest.len() <= 1100 && keys::upload_key(BucketId(1), &[b'k'; 1024], UploadId(1)).len() <= 1100);
}

#[test]
fn a_newer_record_is_refused_by_name() {
    let mut bytes = encode(&Orphan::Inode).to_vec();
    bytes[0] = 2;
    let e = decode::<Orphan>(&bytes).unwrap_err().to_string();
    assert!(e.contains("orphan") && e.contains("version 2"), "{e}");
    bytes[0] = 1;
    bytes.push(0);
    assert!(decode::<Orphan>(&bytes).is_err());
    assert!(decode::<Orphan>(&[]).is_err());
}

#[test]
fn decoders_take_any_bytes() {
    fn all(bytes: &[u8]) {
        let _ = decode::<Inode>(bytes);
        let _ = decode::<ObjectInfo>(bytes);
        let _ = decode::<Counters>(bytes);
        let _ = decode::<BucketRecord>(bytes);
        let _ = decode::<CookieRecord>(bytes);
        let _ = decode::<Chunk>(bytes);
        let _ = decode::<Pieces>(bytes);
        let _ = decode::<Orphan>(bytes);
        let _ = decode::<StripeRecord>(bytes);
        let _ = decode::<Packed>(bytes);
        let _ = decode::<Small>(bytes);
        let _ = decode::<Session>(bytes);
        let _ = decode::<Reply>(bytes);
        let _ = decode::<Block>(bytes);
        let _ = decode::<Owned>(bytes);
        let _ = decode::<UploadRecord>(bytes);
        let _ = decode::<Part>(bytes);
        let _ = decode::<Completed>(bytes);
    }
    let mut rng = Rng::new(7);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..rng.below(40)).map(|_| rng.next() as u8).collect();
        if let Some(first) = bytes.first_mut()
            && rng.below(4) > 0
        {
            *first = RECORD_VERSION;
        }
        all(&bytes);
    }
    // A length with nothing behind it reserves nothing.
    all(&[1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
}

#[test]
fn a_damaged_state_is_told_and_never_panics() {
    let mut w = World::new();
    let (root, b) = (w.tree.root, w.tree.id);
    let f = w.file(root, "f");
    w.write(f, 0, 5 << 10);
    w.write(f, 3 << 20, 2 << 20);
    w.put_ok(b, "d/e", 10);
    w.put_ok(b, "m/", 0);
    w.make(root, "l", Kind::Symlink);
    w.run(Command::CreateUpload { bucket: b, key: name("u"), info: Default::default() });
    w.checked = false;
    let all: Vec<(Vec<u8>, Bytes)> = w.kv.0.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut rng = Rng::new(3);
    let mut told = 0;
    for round in 0..3000 {
        let (key, value) = rng.pick(&all).clone();
        let sound = w.kv.clone();
        let mut bytes = value.to_vec();
        if bytes.is_empty() || round % 10 == 0 {
            w.kv.0.remove(&key);
        } else {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            w.kv.0.insert(key.clone(), bytes.into());
        }
        told += !check(&w.kv).is_empty() as usize;
        let kv: &dyn KvRead = &w.kv;
        let _ = read::lookup(kv, root, b"f");
        let _ = read::readdir(kv, root, 0, 100);
        let _ = read::extents(kv, f, 0..u32::MAX, &|_| None);
        let _ = read::getattr(kv, f);
        let _ = read::resolve(kv, b, &name("d/e"));
        let _ = read::list(kv, b, &ListQuery { keys_max: 100, ..Default::default() });
        let _ = read::uploads(kv, b, b"", None, 10);
        w.kv = sound;
    }
    assert!(told > 1000, "{told}");
}
