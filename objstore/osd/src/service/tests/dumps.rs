//! What a dump tells of whole, torn and damaged folders.

use super::*;
use crate::service::superblock;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::sim::Rng;

fn kinds(lines: &[Line]) -> std::collections::BTreeSet<&'static str> {
    lines.iter().map(Line::kind).collect()
}

fn bad(lines: &[Line]) -> Vec<String> {
    lines.iter().filter(|l| l.is_bad()).map(Line::to_string).collect()
}

/// Shards in several segments, a delete, a fence, a checkpoint.
async fn filled() -> SimDisk {
    let disk = rig();
    let osd = open(&disk).await;
    for n in 0..40 {
        put(&osd, n, 2).await;
    }
    osd.delete(vec![stripe(3)]).await.unwrap();
    osd.raise_fence(holdfast_objstore_proto::StripeRange { first: stripe(900), count: 5 }, &[]).await.unwrap();
    osd.flush().await.unwrap();
    osd.close().await.unwrap();
    disk.kill()
}

#[tokio::test]
async fn a_dump_tells_of_every_record_and_changes_nothing() {
    let disk = filled().await;
    let steps = disk.steps();
    let lines = told(&disk).await;
    assert_eq!(disk.steps(), steps, "it wrote");
    assert_eq!(bad(&lines), Vec::<String>::new());
    let want = ["osd-superblock", "log-root", "checkpoint", "index-shard", "segment", "shard", "delete", "fence", "seal", "log-end"];
    for kind in want {
        assert!(kinds(&lines).contains(kind), "no {kind} among {:?}", kinds(&lines));
    }
    let shards: Vec<_> = lines.iter().filter(|l| l.kind() == "shard").collect();
    assert_eq!(shards.len(), 40);
    assert!(shards.iter().all(|l| l.field("inode") == Some("8") && l.field("session") == Some("5") && l.field("digest").is_some()));
}

#[tokio::test]
async fn a_dump_tells_a_torn_tail_from_damage() {
    let mut torn = 0;
    for seed in 0..30 {
        let disk = rig();
        let osd = open(&disk).await;
        for n in 0..9 {
            put(&osd, n, 2).await;
        }
        osd.flush().await.unwrap();
        for n in 9..14 {
            put(&osd, n, 2).await;
        }
        let lines = told(&disk.crash(seed)).await;
        assert_eq!(bad(&lines), Vec::<String>::new(), "seed {seed}");
        torn += lines.iter().any(|l| l.field("torn").is_some_and(|t| t != "null")) as u64;
        let whole = lines.iter().filter(|l| l.kind() == "shard" && l.field("dropped").is_none()).count();
        assert!(whole >= 9, "seed {seed}: {whole}");
    }
    assert!(torn > 5, "{torn}");
}

#[tokio::test]
async fn a_dump_names_what_is_damaged_by_its_offset() {
    let disk = filled().await;
    disk.corrupt(&segment_path(0), 4 * 4096 + 100..4 * 4096 + 101, 1); // payload of the first record
    disk.corrupt(&segment_path(1), 2 * 4096 + 70..2 * 4096 + 71, 1); // a head
    disk.corrupt(&dir().join(superblock::FILE), 40..41, 1);
    let lines = bad(&told(&disk).await);
    let all = lines.join("\n");
    assert!(all.contains("00000000.segment@8192 shard") && all.contains("bad_block_offset=16384"), "{all}");
    assert!(all.contains("00000001.segment@8192 gap"), "{all}");
    assert!(all.contains("superblock@0"), "{all}");
    assert_eq!(lines.len(), 3, "{all}");
}

#[tokio::test]
async fn a_dump_survives_any_bytes() {
    let whole = filled().await;
    let log = dir().join("log");
    let mut files: Vec<_> = whole.list(&log).unwrap().into_iter().map(|n| log.join(n)).collect();
    files.push(dir().join(superblock::FILE));
    let mut rng = Rng::new(5);
    for round in 0..60 {
        let disk = whole.kill();
        for _ in 0..1 + rng.below(4) {
            let file = &files[rng.below(files.len() as u64) as usize];
            let at = rng.below(SEGMENT);
            disk.corrupt(file, at..at + 1 + rng.below(9000), round);
        }
        if rng.below(4) == 0 {
            let gone = &files[rng.below(files.len() as u64) as usize];
            disk.remove(gone).unwrap();
        }
        told(&disk).await;
    }
    // Without its root the log is still told of, by what the segments say.
    let disk = whole.kill();
    disk.remove(&log.join("log")).unwrap();
    let lines = told(&disk).await;
    assert_eq!(lines.iter().filter(|l| l.kind() == "shard").count(), 40);
    assert!(bad(&lines)[0].contains("log-root"));
}
