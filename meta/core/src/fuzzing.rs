//! The state's decoders and commands from anyone, for fuzzing.

use crate::kv::MemKv;
use crate::record::ROUND_TRIPS;
use crate::{apply, check, dump, initialise, read};
use bytes::Bytes;
use holdfast_objstore_base::dump::Line;
use holdfast_objstore_base::fuzzing::Target;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub const TARGETS: &[Target] = &[
    Target { name: "state_record", samples: records, body: record },
    Target { name: "state_row", samples: rows, body: row },
    Target { name: "state_damaged", samples: rows, body: damaged },
    Target { name: "meta_apply", samples: commands, body: run },
];

/// A state with something of every kind in it, and the commands that made it after the session was opened.
struct World {
    kv: MemKv,
    index: u64,
    session: SessionId,
    epoch: SessionEpoch,
    seq: u64,
    ran: Vec<Command>,
}

impl World {
    fn request(&mut self, command: Command) -> Reply {
        self.index += 1;
        self.seq += 1;
        let (session, epoch) = (self.session, self.epoch);
        let request = Request { session, epoch, seq: self.seq, acked: self.seq - 1, command };
        apply(&mut self.kv, self.index, 1000 + self.index as i64, &request).expect("a sound state")
    }

    fn run(&mut self, command: Command) -> Reply {
        self.ran.push(command.clone());
        self.request(command)
    }

    fn opened() -> World {
        let mut kv = MemKv::default();
        initialise(&mut kv).expect("an empty state");
        let (session, epoch) = (SessionId(0), SessionEpoch(0));
        let open = Request { session, epoch, seq: 0, acked: 0, command: Command::OpenSession { client: "fuzz".into() } };
        let Ok(Reply::Session { session, epoch }) = apply(&mut kv, 1, 1000, &open) else { unreachable!("a session") };
        let mut w = World { kv, index: 1, session, epoch, seq: 0, ran: Vec::new() };
        w.request(Command::GrantInodes { count: 512 });
        w.request(Command::GrantStripes { count: 512 });
        w.ran.clear();
        w
    }

    fn filled() -> World {
        let mut w = World::opened();
        let name = |s: &'static str| Bytes::from_static(s.as_bytes());
        let owner = Owner { uid: 1, gid: 2 };
        let code = Code::new(1, 0);
        let make = |n, shape| Command::CreateBucket { name: n, shape, code, owner, mode: 0o755 };
        let Reply::Bucket(tree) = w.run(make(name("home"), Shape::Tree)) else { unreachable!("a bucket") };
        let Reply::Bucket(flat) = w.run(make(name("flat"), Shape::Flat)) else { unreachable!("a bucket") };
        let (dir, ino) = (tree.root, |n: u64| InodeId(512 + n));
        let create = |n: u64, of: &'static str, kind| Command::Create {
            dir,
            name: name(of),
            ino: ino(n),
            kind,
            mode: 0o644,
            owner,
            rdev: 0,
            target: if kind == Kind::Symlink { name("there") } else { Name::new() },
        };
        let stripe = |counter: u64, len: u32| {
            let id = StripeId { incarnation: 1, group: 0, counter: 512 + counter };
            Arc::new(StripeMeta {
                id,
                codec: Codec::Replica,
                code,
                len,
                digest: 7,
                osds: [OsdId(3)].into_iter().collect(),
                missing: counter as u32 & 1,
            })
        };
        let extents = |s: &StripeMeta, offset| vec![Extent { offset, len: s.len, stripe: s.id, stripe_offset: 0 }];
        w.run(create(0, "f", Kind::File));
        w.run(create(1, "d", Kind::Dir));
        w.run(create(2, "l", Kind::Symlink));
        for (n, number) in [(0u64, 1u64), (1, 2)] {
            let s = stripe(n, 5000);
            let publish = Publish {
                ino: ino(0),
                number,
                extents: extents(&s, n * 3000),
                stripes: vec![s],
                inline: vec![],
                size: 5000 + n * 3000,
                mtime: 1,
                ctime: 1,
                clear_suid: false,
            };
            w.run(Command::Publish(publish));
        }
        // A small one that travels inline.
        let id = StripeId { incarnation: 1, group: 0, counter: 600 };
        let small = Publish {
            ino: ino(0),
            number: 3,
            extents: vec![Extent { offset: 9000, len: 5, stripe: id, stripe_offset: 0 }],
            stripes: vec![],
            inline: vec![Inline { stripe: id, data: name("small") }],
            size: 9005,
            mtime: 1,
            ctime: 1,
            clear_suid: false,
        };
        w.run(Command::Publish(small));
        w.run(Command::Truncate { ino: ino(0), number: 4, size: 100, mtime: 5 });
        w.run(Command::Link { dir, name: name("g"), ino: ino(0) });
        w.run(Command::Rename { from_dir: dir, from: name("g"), to_dir: ino(1), to: name("h"), mode: RenameMode::NoReplace });
        w.run(Command::SetAttr { ino: ino(0), change: AttrChange { mode: Some(0o600), ..Default::default() } });
        w.run(create(3, "gone", Kind::File));
        w.run(Command::Unlink { dir, name: name("gone") });
        let s = stripe(2, 300);
        let info = ObjectInfo { etag: Some("e".into()), headers: vec![("a".into(), "b".into())], ..Default::default() };
        let put = |key, n, s: &Arc<StripeMeta>| PutObject {
            bucket: flat.id,
            key: name(key),
            ino: ino(n),
            size: s.len as u64,
            extents: extents(s, 0),
            stripes: vec![s.clone()],
            inline: vec![],
            info: info.clone(),
            owner,
            condition: Condition::default(),
            copy_from: None,
        };
        w.run(Command::PutObject(put("k/1", 4, &s)));
        w.run(Command::PutObject(put("k/2", 5, &stripe(3, 40))));
        w.run(Command::DeleteObject { bucket: flat.id, key: name("k/2"), condition: Condition::default() });
        for key in ["up", "done"] {
            let Reply::Upload(upload) = w.run(Command::CreateUpload { bucket: flat.id, key: name(key), info: info.clone() }) else {
                unreachable!("an upload")
            };
            let s = stripe(4 + upload.0, 60);
            w.run(Command::PutPart {
                bucket: flat.id,
                upload,
                number: 1,
                size: 60,
                etag: "p".into(),
                checksums: vec![],
                extents: extents(&s, 0),
                stripes: vec![s],
                inline: vec![],
            });
            if key == "done" {
                w.run(Command::CompleteUpload {
                    bucket: flat.id,
                    upload,
                    ino: ino(6),
                    parts: vec![(1, "p".into())],
                    info: info.clone(),
                    owner,
                    part_bytes_min: 0,
                    condition: Condition::default(),
                });
            }
        }
        w
    }
}

fn filled() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::filled)
}

/// The first byte says which record, as [`ROUND_TRIPS`] numbers them.
fn records() -> Vec<Vec<u8>> {
    let values = filled().kv.0.values().filter(|v| !v.is_empty());
    let of = |v: &Bytes| (0..ROUND_TRIPS.len() as u8).map(|n| [&[n][..], v].concat()).collect::<Vec<_>>();
    // Each value under its own number and, by the way, under all others: most are refused.
    values.flat_map(of).step_by(3).collect()
}

fn record(bytes: &[u8]) {
    if let Some((n, rest)) = bytes.split_first() {
        ROUND_TRIPS[*n as usize % ROUND_TRIPS.len()](rest);
    }
}

/// A row: one byte, the key's length; key; value.
fn rows() -> Vec<Vec<u8>> {
    filled().kv.0.iter().map(|(k, v)| [&[k.len() as u8][..], k, v].concat()).collect()
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(*len as usize)
}

fn row(bytes: &[u8]) {
    if let Some((key, value)) = split(bytes) {
        let line = dump::describe(Line::new("row", Path::new("state")), key, value);
        assert!(line.to_json().lines().count() == 1 && line.to_string().lines().count() <= 1, "a line is one line");
    }
}

/// A sound state with one row replaced or added: whoever reads it gets an answer or an error.
fn damaged(bytes: &[u8]) {
    let Some((key, value)) = split(bytes) else { return };
    let mut kv = filled().kv.clone();
    kv.0.insert(key.to_vec(), Bytes::copy_from_slice(value));
    let _ = check(&kv);
    let bucket = BucketId(1);
    let root = InodeId(1);
    for ino in [root, InodeId(512)] {
        let _ = read::getattr(&kv, ino);
        let _ = read::readdir(&kv, ino, 0, 100);
        let _ = read::extents(&kv, ino, 0..u32::MAX, &|_| None);
        let _ = read::lookup(&kv, ino, b"f");
    }
    let _ = read::resolve(&kv, bucket, &Bytes::from_static(b"d/h"));
    let _ = read::list(&kv, bucket, &ListQuery { keys_max: 100, ..Default::default() });
    let _ = read::uploads(&kv, BucketId(2), b"", None, 10);
}

/// Commands one after the other: two bytes of length, then postcard.
fn commands() -> Vec<Vec<u8>> {
    let one = |c: &Command| {
        let bytes = postcard::to_stdvec(c).expect("memory takes all");
        [&(bytes.len() as u16).to_le_bytes()[..], &bytes].concat()
    };
    let ran = &filled().ran;
    let mut samples: Vec<Vec<u8>> = ran.iter().map(one).collect();
    samples.extend((1..=ran.len()).step_by(4).map(|n| ran[..n].iter().flat_map(one).collect()));
    samples
}

/// Whatever a client sends, the state stays sound.
fn run(mut bytes: &[u8]) {
    let mut w = World::opened();
    let mut ran = 0;
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let (one, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*len) as usize));
        bytes = rest;
        let Ok(command) = postcard::from_bytes::<Command>(one) else { continue };
        ran += 1;
        if ran > 64 {
            break;
        }
        let again = postcard::to_stdvec(&command).expect("memory takes all");
        assert_eq!(postcard::from_bytes::<Command>(&again).as_ref(), Ok(&command));
        w.request(command);
    }
    let complaints = check(&w.kv);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
