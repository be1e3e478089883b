//! What a dump tells of the metadata service's folder, whole and damaged.

use super::restart::{make, open};
use super::rig::*;
use crate::{Rows, dump_log, dump_state, dump_superblock};
use holdfast_objstore_base::disk::{Disk, Open};
use holdfast_objstore_base::dump::Line;
use holdfast_objstore_base::sim::{Rng, SimDisk};
use holdfast_objstore_proto::meta::Kind;
use std::path::Path;

const DIR: &str = "meta";

async fn told(disk: &SimDisk, rows: Rows) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut sink = |line: Line| {
        lines.push(line);
        Ok(())
    };
    dump_superblock(disk, Path::new(DIR), &mut sink).expect("a sink that takes all");
    dump_log(disk, Path::new(DIR), &mut sink).await.expect("a sink that takes all");
    // As in the product: not on a runtime's thread.
    let lines_of_state = std::thread::scope(|s| {
        let read = s.spawn(|| {
            let mut lines = Vec::new();
            dump_state(disk, Path::new(DIR), &rows, &mut |line| {
                lines.push(line);
                Ok(())
            })
            .map(|()| lines)
        });
        read.join().expect("no panic").expect("a sink that takes all")
    });
    lines.extend(lines_of_state);
    lines
}

fn bad(lines: &[Line]) -> Vec<String> {
    lines.iter().filter(|l| l.is_bad()).map(Line::to_string).collect()
}

/// Names, data, a checkpoint, and commands behind it; the process was killed.
async fn filled() -> SimDisk {
    let disk = SimDisk::new(1);
    make(&disk).await.expect("formats");
    let service = open(&disk).await.expect("opens");
    let a = Client::mount(&service, "a").await;
    let root = home(&a).await;
    let f = a.file(root, "f").await;
    a.write(f, 10_000).await;
    a.create(root, "d", Kind::Dir).await.expect("creates");
    service.checkpoint().await.expect("a checkpoint");
    a.file(root, "late").await;
    disk.kill()
}

#[tokio::test]
async fn a_dump_tells_of_commands_rows_and_marks_and_writes_nothing() {
    let disk = filled().await;
    let steps = disk.steps();
    let lines = told(&disk, Rows::All).await;
    assert_eq!(disk.steps(), steps, "it wrote");
    assert_eq!(bad(&lines), Vec::<String>::new());
    let has = |kind: &str, field: &str, text: &str| {
        let found = lines.iter().any(|l| l.kind() == kind && l.field(field).is_some_and(|v| v.contains(text)));
        assert!(found, "no {kind} whose {field} has {text}");
    };
    has("meta-superblock", "state", "ready");
    has("wal-entry", "request", "\"name\":\"late\"");
    has("wal-entry", "request", "Publish");
    has("state", "tail", "applied");
    has("row", "family", "inode");
    has("row", "name", "\"f\"");
    has("row", "value", "\"len\":10000");
    has("row", "family", "counters");
    assert!(!lines.iter().any(|l| l.kind() == "row" && l.field("name") == Some("\"late\"")), "it is not in the checkpoint");
    let rows = |lines: Vec<Line>| lines.into_iter().filter(|l| l.kind() == "row").collect::<Vec<_>>();
    let inodes = rows(told(&disk, Rows::Prefix(vec![0x20])).await);
    assert!(inodes.len() >= 3 && inodes.iter().all(|l| l.field("family") == Some("\"inode\"")));
    let key = holdfast_objstore_base::dump::unhex(inodes[0].field("key").expect("a key").trim_matches('"')).expect("hexadecimal");
    assert_eq!(rows(told(&disk, Rows::Key(key)).await).len(), 1);
    // The state that was told of can still be used.
    open(&disk).await.expect("opens");
}

#[tokio::test]
async fn a_dump_of_damaged_metadata_tells_of_it_and_never_panics() {
    let whole = filled().await;
    let mut rng = Rng::new(9);
    let length = |disk: &SimDisk, path: &str| disk.open(Path::new(path), Open::Existing).and_then(|f| f.len()).expect("is there");
    let state = "meta/state.redb";
    let mut noticed = 0;
    for round in 0..40 {
        let disk = whole.kill();
        for _ in 0..1 + rng.below(5) {
            let at = rng.below(length(&disk, state) - 300);
            disk.corrupt(Path::new(state), at..at + 1 + rng.below(300), round);
        }
        noticed += !bad(&told(&disk, Rows::All).await).is_empty() as u32;
    }
    assert!(noticed > 0);
    for path in ["meta/meta.super", state, "meta/wal/log"] {
        let disk = whole.kill();
        disk.remove(Path::new(path)).expect("removes");
        assert!(!bad(&told(&disk, Rows::All).await).is_empty(), "{path}");
    }
    let disk = whole.kill();
    disk.corrupt(Path::new("meta/meta.super"), 20..21, 1);
    assert_eq!(bad(&told(&disk, Rows::All).await).len(), 1);
}
