//! Whole runs over plain folders with a stand-in for fio, which notes how it was called and answers with figures that
//! depend on the folder.

use holdfast_bench_harness::for_tests::{Fio, Job, Scratch, Setup, embedded, measure};
use holdfast_bench_harness::{Durability, Environment, Results};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// `$calls` gets one line per call. A file `fail.SECTION.FOLDER` beside it makes that call fail as fio fails.
const STAND_IN: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo fio-3.33; exit 0; }
here=$(dirname "$0")
for arg in "$@"; do case "$arg" in
    --section=*) section=${arg#--section=} ;;
    --directory=*) dir=${arg#--directory=} ;;
    *.fio) job=$arg ;;
esac; done
place=$(basename "$dir")
size=$(sed -n 's/^size=//p' "$job"); runtime=$(sed -n 's/^runtime=//p' "$job")
echo "$section $place $size $runtime" >> "$here/calls"
if [ -e "$here/fail.$section.$place" ]; then
    echo "fio: pid=1, err=28/file:filesetup.c:229, func=write, error=No space left on device" >&2
    exit 1
fi
if [ "$section" = prepare ]; then echo written > "$dir/holdfast-fio.dat"; echo '{ "jobs": [] }'; exit 0; fi
[ -e "$dir/holdfast-fio.dat" ] || [ "$place" = pass ] || { echo "fio: no file" >&2; exit 1; }
case "$place" in raw) rate=1000 ;; pass) rate=800 ;; *) rate=600 ;; esac
side=write; case "$section" in *read*) side=read ;; esac
echo "fio: this platform is only a stand-in"
cat <<END
{ "global options": { "direct": "1" },
  "jobs": [ { "jobname": "$section", "error": 0, "usr_cpu": 1.0, "sys_cpu": 2.0, "job_runtime": 1000,
    "job options": { "rw": "rand$side", "ioengine": "psync" },
    "$side": { "iops": $rate.0, "bw_bytes": 1048576, "total_ios": $rate } } ] }
END
"#;

struct Rig {
    dir: tempfile::TempDir,
    scratch: Scratch,
}

impl Rig {
    fn new() -> Rig {
        // Under the target folder: a durable filesystem, which the system's temporary folder may not be.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("fio");
        std::fs::write(&path, STAND_IN).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let scratch = Scratch::make(dir.path(), &dir.path().join("mnt")).unwrap();
        Rig { dir, scratch }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn measure(&self, names: &[&str]) -> (Results, usize) {
        let jobs: Vec<Job> = embedded().into_iter().filter(|j| names.contains(&j.name.as_str())).collect();
        let setup = Setup {
            jobs,
            raw: self.scratch.raw.clone(),
            pass: Some(self.scratch.pass.clone()),
            mount: self.scratch.mount.clone(),
            work: self.scratch.work.clone(),
            daemon_pid: Some(std::process::id()),
        };
        let environment = Environment { file_bytes: 64 << 20, rounds: 3, round_seconds: 1, cores: 2, ..Default::default() };
        let fio = Fio::find(&self.path("fio")).unwrap();
        measure(&fio, &setup, environment, &mut |_| ()).unwrap()
    }
    fn calls(&self) -> Vec<String> {
        std::fs::read_to_string(self.path("calls")).unwrap().lines().map(String::from).collect()
    }
    fn mount_name(&self) -> String {
        self.scratch.mount.file_name().unwrap().to_string_lossy().into_owned()
    }
}

#[test]
fn a_run_prepares_once_and_interleaves_rungs_round_by_round() {
    let rig = Rig::new();
    let (results, failures) = rig.measure(&["randwrite-qd1"]);
    assert_eq!(failures, 0, "{:?}", results.environment.notes);
    let mount = rig.mount_name();
    let of = |section: &str, place: &str| format!("{section} {place} 67108864 1");
    let mut want = vec![of("prepare", "raw"), of("prepare", &mount)];
    for order in [["raw", "pass", &mount], ["pass", &mount, "raw"], [&mount, "raw", "pass"]] {
        want.extend(order.map(|place| of("randwrite-qd1", place)));
    }
    assert_eq!(rig.calls(), want);
    let row = &results.rows[0];
    assert_eq!((row.percent, row.percent_of_pass), (Some(60.0), Some(75.0)));
    assert_eq!((row.depth, row.engine.as_str(), row.durability), (1, "psync", Durability::DeviceWritten));
    // 3 % of one second over 600 operations is 50 µs, and this process's own time on top.
    assert!(row.cpu_us_per_op.unwrap() >= 50.0);
    let left = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
    assert_eq!((left(&rig.scratch.raw), left(&rig.scratch.mount)), (0, 0), "files are removed after the job");
}

#[test]
fn a_rung_that_fails_is_a_hole_and_a_note_not_a_figure() {
    let rig = Rig::new();
    std::fs::write(rig.path(&format!("fail.randread-qd1.{}", rig.mount_name())), "").unwrap();
    std::fs::write(rig.path("fail.prepare.raw"), "").unwrap();
    let (results, failures) = rig.measure(&["randread-qd1"]);
    let row = &results.rows[0];
    assert_eq!((row.raw, row.pass, row.mount, row.percent), (None, None, None, None));
    assert_eq!(failures, 3);
    let notes = results.environment.notes.join("\n");
    assert!(notes.contains("randread-qd1: raw failed") && notes.contains("No space left on device"), "{notes}");
    assert!(notes.contains("randread-qd1: mount failed in round 1"), "{notes}");
}

#[test]
fn a_missing_fio_is_named_with_what_to_install() {
    let error = Fio::find(Path::new("/no/such/fio")).err().unwrap().to_string();
    assert!(error.contains("fio is not installed") && error.contains("apt-get install fio"), "{error}");
    assert!(Fio::find(Path::new("/bin/true")).err().unwrap().to_string().contains("is not fio"));
}
