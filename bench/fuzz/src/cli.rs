//! The files that the binary itself keeps. A binary cannot be depended on, so two of its sources are taken in here.

#[expect(dead_code, reason = "only the decoder is wanted here")]
#[path = "../../../fs/cli/src/credentials.rs"]
mod credentials;
#[expect(dead_code, reason = "only the decoder is wanted here")]
#[path = "../../../fs/cli/src/layout.rs"]
mod layout;

use holdfast_objstore_base::fuzzing::Target;
use holdfast_objstore_repair::{Depth, ScrubState};
use std::path::Path;

pub const TARGETS: &[Target] = &[
    Target { name: "cluster_file", samples: files, body: file },
    Target { name: "credentials", samples: keys, body: key },
    Target { name: "scrub_state", samples: scrubs, body: scrub },
];

fn files() -> Vec<Vec<u8>> {
    let osd = |id: u16| layout::OsdPlace {
        id,
        dir: id as usize % 2,
        path: format!("osd.{id}"),
        device: (id > 0).then(|| "07".into()),
        life: layout::Life { opened: 7, ..Default::default() },
    };
    let file = layout::ClusterFile {
        format: layout::FORMAT,
        cluster: format!("{:032x}", 77),
        state: layout::State::Ready,
        code: "4+2".into(),
        index: 1,
        dirs: vec!["/a".into(), "/b c".into()],
        osds: vec![osd(0), osd(1)],
        epoch: 3,
        next_osd: 2,
        home: 1,
    };
    vec![serde_json::to_vec_pretty(&file).expect("a file has a JSON form")]
}

fn file(bytes: &[u8]) {
    if let Ok(file) = layout::decode(bytes, Path::new("holdfast.json")) {
        let again = serde_json::to_vec(&file).expect("a file has a JSON form");
        assert_eq!(layout::decode(&again, Path::new("holdfast.json")).expect("what was encoded decodes"), file);
    }
}

fn keys() -> Vec<Vec<u8>> {
    let text =
        "[other]\naws_access_key_id=no\n[default]\n# x\naws_access_key_id = AKIA\naws_secret_access_key = abcdefgh=\nregion = us-east-1\n";
    vec![text.as_bytes().to_vec()]
}

fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(keys) = credentials::parse(text) {
        assert!(text.contains(&keys.access_key) && text.contains(&keys.secret_key));
    }
}

fn scrubs() -> Vec<Vec<u8>> {
    let text = r#"{"running":{"depth":"deep","started_ns":5,"after":[1,2,3],"stripes":6,"bytes":7,"faults":0},"light":{"started_ns":1,"ended_ns":2,
"stripes":3,"bytes":4,"faults":5},"deep":null,"since_ns":9}"#;
    vec![text.as_bytes().to_vec()]
}

/// As `fs/cli/src/roles/upkeep.rs` reads it: whatever is in it, a scrub begins or goes on.
fn scrub(bytes: &[u8]) {
    if let Ok(state) = serde_json::from_slice::<ScrubState>(bytes) {
        let again = serde_json::to_vec(&state).expect("a state has a JSON form");
        assert_eq!(serde_json::from_slice::<ScrubState>(&again).expect("what was encoded decodes"), state);
        assert!(state.running.is_none_or(|r| matches!(r.depth, Depth::Light | Depth::Deep)));
    }
}
