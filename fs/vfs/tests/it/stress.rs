//! Many writers on two mounts and a gateway that looks, over several threads: every writer reads what it wrote, and in the end all is there.

use crate::rig::*;
use bytes::Bytes;
use holdfast_fs_vfs::{Config, HandleId, NodeId, ROOT, ReadArgs, Vfs, WriteArgs};
use holdfast_objstore_proto::InodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const REGION: u64 = 40_000;

struct Writer {
    vfs: Arc<Vfs>,
    node: NodeId,
    handle: HandleId,
    base: u64,
    x: u64,
}

impl Writer {
    fn next(&mut self) -> u64 {
        self.x ^= self.x << 13;
        self.x ^= self.x >> 7;
        self.x ^= self.x << 17;
        self.x
    }

    /// Writes and reads its own region only; answers what it must hold.
    async fn run(mut self, steps: u32) -> Vec<u8> {
        let mut model = vec![0; REGION as usize];
        for n in 0..steps {
            let from = self.next() % (REGION - 6000);
            let len = 1 + self.next() % 6000;
            let what = self.next() % 10;
            if what < 6 {
                let data = vec![(n % 255) as u8 + 1; len as usize];
                model[from as usize..(from + len) as usize].copy_from_slice(&data);
                let args = WriteArgs {
                    node: self.node,
                    handle: self.handle,
                    offset: self.base + from,
                    data: Bytes::from(data),
                    direct: what < 3,
                    sync: what == 0,
                    kill_suidgid: false,
                    from_cache: what == 5,
                };
                assert_eq!(soon(self.vfs.write(args)).await, Ok(len as u32));
            } else if what == 6 {
                soon(self.vfs.fsync(self.handle, true)).await.unwrap();
            }
            let from = self.next() % (REGION - 6000);
            let args = ReadArgs { node: self.node, handle: self.handle, offset: self.base + from, len: 6000 };
            let got = soon(self.vfs.read(args)).await.unwrap().concat();
            let want = &model[from as usize..from as usize + 6000];
            // What lies beyond the end of the file is not there yet.
            assert!(got[..] == want[..got.len()] && want[got.len()..].iter().all(|b| *b == 0), "step {n}: base {} from {from}", self.base);
        }
        model
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_on_two_mounts_read_what_they_wrote_while_others_look() {
    let rig = Rig::new().await;
    let config = || Config { inode_dirty_bytes_max: 32 << 10, pending_extents_max: 8, map_extents_max: 20, ..Config::default() };
    let (a, b) = (rig.mount_with(1 << 20, config(), true).await, rig.mount_with(1 << 20, config(), true).await);
    let fa = a.file("f").await;
    let nb = b.find(ROOT, "f").await.unwrap().attr.node;
    let hb = b.open_as(nb, libc::O_RDWR).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for i in 0..6u64 {
        let (vfs, handle) = if i % 2 == 0 { (a.vfs.clone(), fa.1) } else { (b.vfs.clone(), hb) };
        // Some regions lie across the border of a chunk.
        let base = if i < 4 { i * REGION } else { (4 << 20) - REGION / 2 + (i - 4) * REGION };
        let w = Writer { vfs, node: fa.0, handle, base, x: 77 * (i + 1) };
        tasks.push(tokio::spawn(async move { (base, w.run(150).await) }));
    }
    let looker = tokio::spawn({
        let (stop, clock, admin, local, fake) = (stop.clone(), rig.clock.clone(), rig.admin.clone(), rig.local.clone(), rig.fake.clone());
        let mounts = [a.vfs.clone(), b.vfs.clone()];
        async move {
            while !stop.load(Ordering::SeqCst) {
                soon(admin.getattr(InodeId(fa.0.0))).await.unwrap();
                clock.advance(2_000_000_000);
                for m in &mounts {
                    soon(m.tick()).await;
                }
                let retired = local.retired();
                holdfast_objstore_client::Objects::delete(&*fake, retired.clone()).await.unwrap();
                local.forget(retired.iter().map(|s| s.id).collect()).unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    let mut want = Vec::new();
    for t in tasks {
        want.push(tokio::time::timeout(DEADLINE * 3, t).await.expect("within the deadline").unwrap());
    }
    stop.store(true, Ordering::SeqCst);
    soon(looker).await.unwrap();
    for (base, region) in want {
        let got = a.get(fa, base, REGION as u32).await;
        if got[..] != region[..got.len()] {
            let i = (0..got.len()).find(|i| got[*i] != region[*i]).unwrap();
            let n = (0..got.len()).filter(|i| got[*i] != region[*i]).count();
            eprintln!("base {base} at {i}: {} want {}, {n} bytes differ", got[i], region[i]);
            let s = a.size(fa.0).await;
            let again = a.get(fa, base, REGION as u32).await;
            eprintln!("a again: {}", again[i]);
            let from_b = b.get((nb, hb), base, REGION as u32).await;
            eprintln!("b: {} size {s}", from_b[i]);
            let again = a.get(fa, base, REGION as u32).await;
            eprintln!("a again: {}", again[i]);
        }
        assert!(got[..] == region[..got.len()] && region[got.len()..].iter().all(|b| *b == 0), "region at {base}");
    }
    soon(a.shutdown()).await.unwrap();
    soon(b.shutdown()).await.unwrap();
}
