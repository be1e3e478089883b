//! The decoders of what the kernel and the user say, for fuzzing.

use crate::decode::{Body, decode};
use crate::dev::init;
use crate::dirbuf::{self, DirBuffer, Dirent};
use crate::parse_options;
use crate::reply::Reply;
use crate::wire::*;
use bytes::Bytes;
use holdfast_objstore_base::fuzzing::Target;
use zerocopy::IntoBytes;

pub const TARGETS: &[Target] = &[
    Target { name: "fuse_request", samples: requests, body: request },
    Target { name: "fuse_init", samples: inits, body: init },
    Target { name: "fuse_dirents", samples: dirents, body: dirent },
    Target { name: "mount_options", samples: options, body: option },
];

fn framed(code: u32, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = size_of::<InHeader>() + parts.iter().map(|p| p.len()).sum::<usize>();
    let head = InHeader { len: len as u32, opcode: code, unique: 77, nodeid: 9, uid: 1, gid: 2, pid: 3, total_extlen: 0, padding: 0 };
    let mut v = head.as_bytes().to_vec();
    parts.iter().for_each(|p| v.extend_from_slice(p));
    v
}

/// One of each operation, over a body of numbers and names.
fn requests() -> Vec<Vec<u8>> {
    let write = WriteIn { fh: 5, offset: 4096, size: 6, write_flags: flags::WRITE_CACHE, lock_owner: 8, flags: 2, padding: 0 };
    let forgotten = [ForgetOne { nodeid: 1, nlookup: 2 }, ForgetOne { nodeid: 3, nlookup: 4 }];
    let mut all: Vec<Vec<u8>> = (0..60).map(|code| framed(code, &[&[0; 72], b"old\0new\0"])).collect();
    all.push(framed(opcode::LOOKUP, &[b"file\0"]));
    all.push(framed(opcode::SYMLINK, &[b"name\0target/x\0"]));
    all.push(framed(opcode::RENAME2, &[Rename2In { newdir: 4, flags: 2, padding: 0 }.as_bytes(), b"old\0new\0"]));
    all.push(framed(opcode::SETXATTR, &[SetxattrIn { size: 3, flags: 0 }.as_bytes(), b"user.x\0abc"]));
    all.push(framed(opcode::MKDIR, &[MkdirIn { mode: 0o755, umask: 0 }.as_bytes(), b"d\0"]));
    all.push(framed(opcode::WRITE, &[write.as_bytes(), b"abcdef"]));
    all.push(framed(opcode::BATCH_FORGET, &[BatchForgetIn { count: 2, dummy: 0 }.as_bytes(), forgotten.as_bytes()]));
    all
}

fn request(bytes: &[u8]) {
    // As the kernel frames it: so that what lies behind the length is reached.
    let mut framed = bytes.to_vec();
    if framed.len() >= 4 {
        let len = framed.len() as u32;
        framed[..4].copy_from_slice(&len.to_ne_bytes());
    }
    for b in [bytes, &framed] {
        if let Ok(r) = decode(b)
            && let Body::Op(_, Some(at)) = r.body
        {
            assert!(at.start <= at.end && at.end <= b.len(), "a payload lies in its request");
        }
    }
}

fn inits() -> Vec<Vec<u8>> {
    let init = InitIn { major: 7, minor: 41, max_readahead: 1 << 17, flags: u32::MAX };
    let ext = InitInExt { flags2: 3, unused: [0; 11] };
    vec![framed(opcode::INIT, &[init.as_bytes()]), framed(opcode::INIT, &[init.as_bytes(), ext.as_bytes()])]
}

fn init(bytes: &[u8]) {
    init::fuzz(bytes);
}

fn dirents() -> Vec<Vec<u8>> {
    let mut b = DirBuffer::new(4096);
    for (n, name) in [&b"one"[..], b"exactly8", b"x"].into_iter().enumerate() {
        assert!(b.push(&Dirent { ino: 7, cookie: n as u64, mode: libc::S_IFREG, name }));
    }
    let Reply::Dir(body) = b.finish() else { return Vec::new() };
    vec![body.to_vec(), [&[0; 128][..], &body].concat()]
}

fn dirent(bytes: &[u8]) {
    for plus in [false, true] {
        let entries = dirbuf::parse(Bytes::copy_from_slice(bytes), plus);
        assert!(entries.iter().map(|e| e.name.len()).sum::<usize>() <= bytes.len());
    }
}

fn options() -> Vec<Vec<u8>> {
    ["ro,noexec,nodev,binding=fuser", "max_write=1M,allow_other,x-y", "threads=3,, rw"].map(|t| t.as_bytes().to_vec()).to_vec()
}

fn option(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = parse_options(text);
    }
}
