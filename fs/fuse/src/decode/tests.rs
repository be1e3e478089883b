//! Requests built by hand, cut short, and random bytes.

use super::*;
use crate::op::{Handle, SetTime, Time};
use crate::wire::*;
use zerocopy::IntoBytes;

/// A request with a right header.
fn request(code: u32, node: u64, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = 40 + parts.iter().map(|p| p.len()).sum::<usize>();
    let head = InHeader { len: len as u32, opcode: code, unique: 77, nodeid: node, uid: 1, gid: 2, pid: 3, total_extlen: 0, padding: 0 };
    let mut v = head.as_bytes().to_vec();
    for p in parts {
        v.extend_from_slice(p);
    }
    v
}

fn op(bytes: &[u8]) -> Op {
    match decode(bytes).expect("decodes").body {
        Body::Op(op, _) => op,
        other => panic!("not an operation: {other:?}"),
    }
}

/// xorshift64*, so that a failing case is one seed.
struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[test]
fn a_lookup_carries_its_caller_and_its_name() {
    let r = decode(&request(opcode::LOOKUP, 9, &[b"file\0"])).expect("decodes");
    assert_eq!(r.context, Context { uid: 1, gid: 2, pid: 3, unique: 77 });
    let Body::Op(Op::Lookup(l), None) = r.body else { panic!("not a lookup") };
    assert_eq!((l.parent, &l.name[..]), (NodeId(9), &b"file"[..]));
}

#[test]
fn a_write_names_the_place_of_its_payload() {
    let a = WriteIn {
        fh: 5,
        offset: 4096,
        size: 6,
        write_flags: flags::WRITE_CACHE | flags::WRITE_KILL_SUIDGID,
        lock_owner: 8,
        flags: libc::O_RDWR as u32,
        padding: 0,
    };
    let bytes = request(opcode::WRITE, 9, &[a.as_bytes(), b"abcdef"]);
    let r = decode(&bytes).expect("decodes");
    let Body::Op(Op::Write(w), Some(at)) = r.body else { panic!("not a write") };
    assert_eq!(at.start, WRITE_PAYLOAD_AT);
    assert_eq!(&bytes[at], b"abcdef");
    assert!(w.cached && w.kill_suidgid && w.lock_owner.is_none());
    assert_eq!((w.handle, w.offset), (Handle(5), 4096));
}

#[test]
fn renames_with_flags_keep_them_and_both_names() {
    let a = Rename2In { newdir: 4, flags: 2, padding: 0 };
    let Op::Rename(r) = op(&request(opcode::RENAME2, 3, &[a.as_bytes(), b"old\0new\0"])) else { panic!("not a rename") };
    assert_eq!((r.parent, r.new_parent, r.flags), (NodeId(3), NodeId(4), 2));
    assert_eq!((&r.name[..], &r.new_name[..]), (&b"old"[..], &b"new"[..]));
}

#[test]
fn setattr_tells_set_times_from_now_and_from_nothing() {
    let mut a = SetattrIn {
        valid: flags::FATTR_ATIME | flags::FATTR_ATIME_NOW | flags::FATTR_MTIME | flags::FATTR_SIZE | flags::FATTR_KILL_SUIDGID,
        padding: 0,
        fh: 0,
        size: 10,
        lock_owner: 0,
        atime: 1,
        mtime: (-5i64) as u64,
        ctime: 0,
        atimensec: 0,
        mtimensec: 7,
        ctimensec: 0,
        mode: 0,
        unused4: 0,
        uid: 0,
        gid: 0,
        unused5: 0,
    };
    let Op::Setattr(s) = op(&request(opcode::SETATTR, 3, &[a.as_bytes()])) else { panic!("not a setattr") };
    assert_eq!((s.atime, s.mtime), (Some(SetTime::Now), Some(SetTime::At(Time { secs: -5, nanos: 7 }))));
    assert_eq!((s.size, s.mode, s.handle, s.kill_suidgid), (Some(10), None, None, true));
    a.mtimensec = 1_000_000_000;
    assert!(decode(&request(opcode::SETATTR, 3, &[a.as_bytes()])).is_err());
}

#[test]
fn forgets_come_one_by_one_or_in_batches_and_never_past_the_end() {
    let Body::Forget(one) = decode(&request(opcode::FORGET, 6, &[&3u64.to_ne_bytes()])).expect("decodes").body else { panic!() };
    assert_eq!(one[..], [Forget { node: NodeId(6), lookups: 3 }]);
    let items = [ForgetOne { nodeid: 1, nlookup: 2 }, ForgetOne { nodeid: 3, nlookup: 4 }];
    let head = BatchForgetIn { count: 2, dummy: 0 };
    let Body::Forget(two) = decode(&request(opcode::BATCH_FORGET, 0, &[head.as_bytes(), items.as_bytes()])).expect("decodes").body else {
        panic!()
    };
    assert_eq!(two.len(), 2);
    let lie = BatchForgetIn { count: u32::MAX, dummy: 0 };
    assert!(decode(&request(opcode::BATCH_FORGET, 0, &[lie.as_bytes(), items.as_bytes()])).is_err());
}

#[test]
fn extensions_are_passed_over() {
    let mut bytes = request(opcode::MKDIR, 1, &[MkdirIn { mode: 0o755, umask: 0 }.as_bytes(), b"d\0", &[0xff; 16]]);
    bytes[36..38].copy_from_slice(&2u16.to_ne_bytes());
    let Op::Mkdir(m) = op(&bytes) else { panic!("not a mkdir") };
    assert_eq!(&m.name[..], b"d");
    bytes[36..38].copy_from_slice(&60_000u16.to_ne_bytes());
    assert!(decode(&bytes).is_err());
}

#[test]
fn unknown_operations_are_named_and_malformed_ones_can_be_answered() {
    assert!(matches!(decode(&request(4095, 1, &[])).expect("decodes").body, Body::Unknown(4095)));
    for bad in [&b""[..], b"no end", b"\0", b"a/b\0"] {
        let e = decode(&request(opcode::LOOKUP, 1, &[bad])).expect_err("malformed");
        assert!(matches!(e, DecodeError::Malformed { unique: 77, opcode: opcode::LOOKUP, .. }));
    }
    assert_eq!(decode(&[0; 39]).expect_err("short"), DecodeError::NoHeader { len: 39 });
}

#[test]
fn every_operation_cut_short_is_an_error_or_a_request_never_a_panic() {
    let body: Vec<u8> = (0..200u32).map(|i| if i % 7 == 6 { 0 } else { 1 }).collect();
    for code in 0..64 {
        for len in 0..body.len() {
            let _ = decode(&request(code, 1, &[&body[..len]]));
        }
    }
}

#[test]
fn random_bytes_never_panic_the_decoder() {
    let mut rng = Rng(0x5eed);
    for _ in 0..200_000 {
        let len = (rng.next() % 160) as usize;
        let mut v: Vec<u8> = (0..len).map(|_| if rng.next().is_multiple_of(3) { 0 } else { rng.next() as u8 }).collect();
        if len >= 40 && !rng.next().is_multiple_of(4) {
            let code = (rng.next() % 56) as u32;
            v[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            v[4..8].copy_from_slice(&code.to_ne_bytes());
            v[36..38].copy_from_slice(&((rng.next() % 3) as u16).to_ne_bytes());
        }
        let _ = decode(&v);
    }
}
