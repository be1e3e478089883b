//! The loop against a kernel made of a socket pair: what no real kernel would send, and more writes than there are buffers.

use super::fd::DevFd;
use super::serve::Loop;
use crate::filesystem::{Answer, Context, Filesystem, Forget};
use crate::op::Op;
use crate::reply::Reply;
use crate::wire::{ForgetIn, InHeader, WriteIn, opcode};
use bytes::Bytes;
use parking_lot::Mutex;
use std::io::IoSlice;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use zerocopy::IntoBytes;

/// Keeps the data of every write until the gate opens.
struct Keeper {
    gate: Semaphore,
    kept: Mutex<Vec<Bytes>>,
    forgotten: Mutex<Vec<u64>>,
}

impl Filesystem for Keeper {
    fn handle(&self, _: Context, op: Op) -> Answer<'_> {
        let Op::Write(w) = op else { return Answer::Ready(Reply::Err(libc::ENOENT)) };
        let len = w.data.len() as u32;
        self.kept.lock().push(w.data);
        Answer::Later(Box::pin(async move {
            let _permit = self.gate.acquire().await;
            Reply::Written(len)
        }))
    }
    fn forget(&self, items: &[Forget]) {
        self.forgotten.lock().extend(items.iter().map(|f| f.lookups));
    }
}

fn pair() -> (DevFd, DevFd) {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    let rc = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) };
    assert_eq!(rc, 0);
    // SAFETY: the loop's end, which must not block; both are nobody else's.
    unsafe {
        libc::fcntl(fds[0], libc::F_SETFL, libc::O_NONBLOCK);
        (DevFd::from(OwnedFd::from_raw_fd(fds[0])), DevFd::from(OwnedFd::from_raw_fd(fds[1])))
    }
}

fn send(kernel: &DevFd, code: u32, unique: u64, parts: &[&[u8]]) {
    let len = 40 + parts.iter().map(|p| p.len()).sum::<usize>();
    let head = InHeader { len: len as u32, opcode: code, unique, nodeid: 9, uid: 0, gid: 0, pid: 0, total_extlen: 0, padding: 0 };
    let mut all = vec![IoSlice::new(head.as_bytes())];
    all.extend(parts.iter().map(|p| IoSlice::new(p)));
    kernel.write(&all).unwrap();
}

/// A reply's number and error.
fn answer(kernel: &DevFd) -> (u64, i32) {
    let mut buf = [0; 4096];
    let n = kernel.read(&mut buf).unwrap();
    assert!(n >= 16);
    (u64::from_ne_bytes(buf[8..16].try_into().unwrap()), i32::from_ne_bytes(buf[4..8].try_into().unwrap()))
}

/// Runs the loop on this thread against `kernel` on another, until it destroys the mount.
fn against(fs: Arc<Keeper>, kernel: impl FnOnce(&DevFd) + Send + 'static) {
    let (ours, theirs) = pair();
    let script = std::thread::spawn(move || {
        kernel(&theirs);
        send(&theirs, opcode::DESTROY, 1 << 40, &[]);
        assert_eq!(answer(&theirs), (1 << 40, 0));
    });
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = Loop { fd: Arc::new(ours), filesystem: fs, max_write: 128 << 10 };
    let ended = rt.block_on(async { tokio::time::timeout(Duration::from_secs(30), served.run()).await });
    ended.expect("the loop ends").expect("in order");
    script.join().unwrap();
}

fn keeper() -> Arc<Keeper> {
    Arc::new(Keeper { gate: Semaphore::new(0), kept: Mutex::default(), forgotten: Mutex::default() })
}

#[test]
fn malformed_and_unknown_requests_are_answered_and_the_loop_goes_on() {
    let fs = keeper();
    against(fs.clone(), |k| {
        send(k, opcode::LOOKUP, 1, &[b"no end"]);
        assert_eq!(answer(k), (1, -libc::EIO));
        send(k, 3999, 2, &[]);
        assert_eq!(answer(k), (2, -libc::ENOSYS));
        // Too short to be answered.
        k.write(&[IoSlice::new(&[0; 12])]).unwrap();
        send(k, opcode::FORGET, 3, &[ForgetIn { nlookup: 5 }.as_bytes()]);
        send(k, opcode::INTERRUPT, 4, &[&77u64.to_ne_bytes()]);
        send(k, opcode::LOOKUP, 5, &[b"name\0"]);
        assert_eq!(answer(k), (5, -libc::ENOENT));
    });
    assert_eq!(fs.forgotten.lock()[..], [5]);
}

#[test]
fn more_large_writes_than_buffers_all_arrive_aligned_and_none_waits_for_another() {
    const WRITES: u64 = 50;
    let fs = keeper();
    let seen = fs.clone();
    against(fs.clone(), move |k| {
        for i in 0..WRITES {
            let size = if i % 10 == 0 { 4096 } else { 64 << 10 };
            let w = WriteIn { fh: 0, offset: 0, size, write_flags: 0, lock_owner: 0, flags: 0, padding: 0 };
            send(k, opcode::WRITE, i, &[w.as_bytes(), &vec![i as u8; size as usize]]);
        }
        // Still served while all of them wait.
        send(k, opcode::LOOKUP, 1000, &[b"name\0"]);
        assert_eq!(answer(k), (1000, -libc::ENOENT));
        assert_eq!(seen.kept.lock().len() as u64, WRITES);
        seen.gate.add_permits(1);
        let mut done: Vec<u64> = (0..WRITES).map(|_| answer(k).0).collect();
        done.sort_unstable();
        assert_eq!(done, (0..WRITES).collect::<Vec<_>>());
    });
    for (i, data) in fs.kept.lock().iter().enumerate() {
        assert!((data.as_ptr() as usize).is_multiple_of(4096));
        assert!(data.iter().all(|b| *b == i as u8), "write {i} kept its bytes");
    }
}

#[test]
fn an_end_of_the_device_ends_the_loop_with_an_error() {
    let (ours, theirs) = pair();
    drop(theirs);
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = Loop { fd: Arc::new(ours), filesystem: keeper(), max_write: 128 << 10 };
    let ended = rt.block_on(async { tokio::time::timeout(Duration::from_secs(30), served.run()).await });
    assert!(ended.expect("the loop ends").is_err());
}
