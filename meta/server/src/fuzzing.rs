//! The service's decoders, for fuzzing: commands and replies in the log, the superblock.

use crate::state::{decode, encode_reply, encode_request};
use crate::{image, superblock};
use bytes::Bytes;
use holdfast_objstore_base::fuzzing::Target;
use holdfast_objstore_proto::meta::{Command, MetaError, ObjectInfo, Reply, Request};
use holdfast_objstore_proto::{BucketId, InodeId, SessionEpoch, SessionId};

pub const TARGETS: &[Target] = &[
    Target { name: "meta_request", samples: requests, body: request },
    Target { name: "meta_reply", samples: replies, body: reply },
    Target { name: "meta_image", samples: image::samples, body: image::fuzz },
    Target { name: "meta_snapshot_root", samples: image::root_samples, body: image::fuzz_root },
    Target { name: "meta_superblock", samples: superblock::samples, body: superblock::fuzz },
];

fn requests() -> Vec<Vec<u8>> {
    let info = ObjectInfo { headers: vec![("content-type".into(), "text/plain".into())], ..ObjectInfo::default() };
    let commands = [
        Command::CreateUpload { bucket: BucketId(3), key: Bytes::from_static(b"key"), info },
        Command::Unlink { dir: InodeId(1), name: Bytes::from_static(b"f") },
        Command::Truncate { ino: InodeId(9), number: 3, size: 1 << 40, mtime: -1 },
    ];
    let of = |command| encode_request(&Request { session: SessionId(7), epoch: SessionEpoch(1), seq: 9, acked: 8, command });
    commands.into_iter().map(|c| of(c).expect("encodes").to_vec()).collect()
}

fn request(bytes: &[u8]) {
    if let Ok(request) = decode::<Request>(bytes) {
        let again = encode_request(&request).expect("what was decoded encodes");
        assert_eq!(decode::<Request>(&again), Ok(request));
    }
}

fn replies() -> Vec<Vec<u8>> {
    let all = [Reply::Done, Reply::Unlinked { ino: InodeId(5), nlink: 2 }, Reply::Error(MetaError::KeyConflict("why".into()))];
    all.iter().map(|r| encode_reply(r).expect("encodes").to_vec()).collect()
}

fn reply(bytes: &[u8]) {
    if let Ok(reply) = decode::<Reply>(bytes) {
        let again = encode_reply(&reply).expect("what was decoded encodes");
        assert_eq!(decode::<Reply>(&again), Ok(reply));
    }
}
