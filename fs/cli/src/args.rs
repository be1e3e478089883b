//! The command line: what can be said, with an example for each command.

use clap::{Args, Parser, Subcommand};
use holdfast_objstore_base::units::parse_size;
use holdfast_objstore_proto::Code;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An erasure-coded object cluster that serves S3 and mounts as a POSIX filesystem.
#[derive(Parser)]
#[command(name = "holdfast", version, about, after_help = "Start here:\n  holdfast up ./data --osds 6 --mount ./mnt --s3 127.0.0.1:9000")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a whole cluster in the foreground: metadata, OSDs, and with --s3 and --mount both doors
    Up(Up),
    /// Show health, OSDs, space and sessions of a running cluster
    Status(Status),
    /// Make, list and delete filesystems: buckets, each with a code of its own
    #[command(subcommand)]
    Fs(Fs),
    /// Ask something of a running cluster
    #[command(subcommand)]
    Admin(Admin),
    /// Measure, and write reports
    #[command(subcommand)]
    Bench(Bench),
    /// Print every record stored in the folders of a stopped cluster
    Dump(Dump),
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  holdfast up ./data --osds 6 --code 4+2 --mount ./mnt --s3 127.0.0.1:9000\n  holdfast up /disk1 /disk2 /disk3 --mount /srv/files\n  holdfast up /dev/sdb /dev/sdc /dev/sdd --meta /var/lib/holdfast --mount /srv/files"
)]
pub struct Up {
    /// Data folders, created when missing. One folder with --osds N holds N OSDs; of several folders each is one OSD, and the first also keeps the metadata and the credentials
    /// With --meta: block devices, each one OSD; once they are a cluster they need not be named
    #[arg(required_unless_present = "meta", value_name = "DIR|DEVICE")]
    pub dirs: Vec<PathBuf>,
    /// The OSDs are block devices; this folder keeps the metadata and the credentials
    #[arg(long, value_name = "DIR", conflicts_with = "osds")]
    pub meta: Option<PathBuf>,
    /// Format the devices of a new cluster without asking; what holds anything known is refused all the same
    #[arg(long, visible_alias = "yes", requires = "meta")]
    pub format_devices: bool,
    /// How many OSDs one DIR holds [default on the first start: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub osds: Option<u16>,
    /// Data and parity shards of a stripe [default on the first start: what the number of OSDs carries well]
    #[arg(long, value_name = "K+M")]
    pub code: Option<Code>,
    /// Mount a bucket here: `home`, or the one that --bucket names
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// The bucket to mount; it must be a filesystem (see `holdfast fs create`)
    #[arg(long, value_name = "NAME", requires = "mount", default_value = "home")]
    pub bucket: String,
    /// Mount options, as for mount(8): ro, noexec, nodev, nosuid, binding=dev|fuser, …
    #[arg(short = 'o', long = "options", value_name = "OPTIONS", requires = "mount")]
    pub options: Vec<String>,
    /// Serve S3 on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub s3: Option<SocketAddr>,
    /// Byte budget for dirty data, read-ahead, caches and tables
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory)]
    pub memory: u64,
    /// Start although too few devices are there to tell which copy of the metadata log is the newest: what was acknowledged after the copy at hand was left out is lost
    #[arg(long)]
    pub accept_stale: bool,
}

/// Below this the daemon could not hold one stripe in each direction.
const MEMORY_MIN: u64 = 64 << 20;

fn memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < MEMORY_MIN {
        return Err(format!("{text} is too little: at least 64M"));
    }
    Ok(bytes)
}

#[derive(Args)]
#[command(after_help = "Example:\n  holdfast status --data ./data --json")]
pub struct Status {
    /// Any data folder of the cluster
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Fs {
    /// Make a filesystem: a bucket that can be mounted (`up --mount DIR --bucket NAME`) and is served over S3
    #[command(after_help = "Examples:\n  holdfast fs create scratch --code 2+1 --data ./data\n  holdfast fs create logs --data ./data")]
    Create {
        /// Its name, as S3 allows it: 3 to 63 lower-case letters, digits, dots and hyphens
        name: String,
        /// Data and parity shards of its stripes [default: the cluster's code]
        #[arg(long, value_name = "K+M")]
        code: Option<Code>,
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// List all buckets with their codes
    #[command(after_help = "Example:\n  holdfast fs list --data ./data")]
    List {
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete an empty bucket
    #[command(after_help = "Example:\n  holdfast fs delete scratch --data ./data")]
    Delete {
        name: String,
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

#[derive(Subcommand)]
pub enum Admin {
    /// Drain a mount whole: returns when everything written to it is durable (syncfs never reaches a FUSE daemon)
    #[command(after_help = "Example:\n  holdfast admin sync ./mnt")]
    Sync {
        /// The mount point
        mount: PathBuf,
    },
    /// Drop every clean cached byte of the daemon, so that the next reads come from the devices (the kernel keeps its own: /proc/sys/vm/drop_caches)
    #[command(after_help = "Example:\n  holdfast admin drop-caches --data ./data")]
    DropCaches {
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Replace, add, drain, remove and list OSDs, while the cluster serves
    #[command(subcommand)]
    Osd(AdminOsd),
    /// Look at everything that is stored, and have repaired what is wrong; shows how far it is until it is done
    #[command(
        after_help = "Example:\n  holdfast admin scrub --deep --data ./data\n\nA light scrub reads the head of every shard, a deep one every block. Interrupting the command leaves the scrub running."
    )]
    Scrub {
        /// Read every block and verify its checksum
        #[arg(long)]
        deep: bool,
        /// Return at once
        #[arg(long)]
        detach: bool,
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Back up, restore and check the metadata
    #[command(subcommand)]
    Meta(AdminMeta),
    /// Print all metrics in the Prometheus text format
    #[command(after_help = "Example:\n  holdfast admin metrics --data ./data | grep flush")]
    Metrics {
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

#[derive(Subcommand)]
pub enum AdminOsd {
    /// Make an OSD anew, empty, and fill it from the others: in its place, or in NEWDIR
    #[command(
        after_help = "Examples:\n  holdfast admin osd replace 2 --data ./data\n  holdfast admin osd replace 2 /mnt/newdisk --data ./data"
    )]
    Replace {
        /// Its number
        #[arg(value_name = "N")]
        osd: u16,
        /// An empty or missing folder, or a block device where OSDs lie on devices; without it the same place is formatted anew
        #[arg(value_name = "NEWDIR|DEVICE")]
        dir: Option<PathBuf>,
        /// Format a device without asking; what holds anything known is refused all the same
        #[arg(long, visible_alias = "yes")]
        format_devices: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Add an OSD in a folder
    #[command(after_help = "Example:\n  holdfast admin osd add /mnt/disk7 --data ./data")]
    Add {
        /// An empty or missing folder, or a data folder of the cluster; or a block device where OSDs lie on devices
        #[arg(value_name = "NEWDIR|DEVICE")]
        dir: PathBuf,
        /// Format a device without asking; what holds anything known is refused all the same
        #[arg(long, visible_alias = "yes")]
        format_devices: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Move everything off an OSD, so that it can be removed
    #[command(after_help = "Example:\n  holdfast admin osd drain 2 --data ./data")]
    Drain {
        /// Its number
        #[arg(value_name = "N")]
        osd: u16,
        /// Let it take part again instead
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Take an OSD that holds nothing any more out of the cluster
    #[command(after_help = "Example:\n  holdfast admin osd remove 2 --data ./data")]
    Remove {
        /// Its number
        #[arg(value_name = "N")]
        osd: u16,
        #[command(flatten)]
        of: Of,
    },
    /// List OSDs with their states
    #[command(after_help = "Example:\n  holdfast admin osd list --data ./data")]
    List {
        #[command(flatten)]
        of: Of,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Which cluster is asked.
#[derive(Args)]
pub struct Of {
    /// Any data folder of the cluster
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

#[derive(Subcommand)]
pub enum AdminMeta {
    /// Write the metadata of a running cluster, as it is now, to a file; the data stays where it is
    #[command(after_help = "Example:\n  holdfast admin meta backup /backup/holdfast.meta --data ./data")]
    Backup {
        /// Where to; an older file of that name is replaced when the new one is whole
        file: PathBuf,
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Make a snapshot of the metadata in the pool now, from which a start rebuilds the state when its device is lost
    #[command(
        after_help = "Example:\n  holdfast admin meta snapshot --data ./data\n\nThe cluster makes them by itself as its metadata changes."
    )]
    Snapshot {
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Put a backup in the place of metadata that is lost or damaged; the cluster must be stopped
    #[command(
        after_help = "Example:\n  holdfast admin meta restore /backup/holdfast.meta --data ./data\n\nIt says what is lost by it and asks. The state that was there is kept as meta/state.redb.before."
    )]
    Restore {
        /// The backup
        file: PathBuf,
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Read every record of the metadata and follow every reference; exits with 1 when something is wrong
    #[command(after_help = "Example:\n  holdfast admin meta check --data ./data")]
    Check {
        /// Any data folder of the cluster, running or stopped
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// After a restore: agree that what the metadata does not know is deleted
    #[command(after_help = "Example:\n  holdfast admin meta confirm --data ./data")]
    Confirm {
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

#[derive(Subcommand)]
pub enum Bench {
    /// Run each fio job on the raw device, a FUSE passthrough and the mount, interleaved, and write results.json, report.md and report.html
    #[command(after_help = "Example:\n  holdfast bench ceiling --data ./data --mount ./mnt --out report/ --quick")]
    Ceiling {
        /// Any data folder of the cluster
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The mount point
        #[arg(long, value_name = "DIR")]
        mount: PathBuf,
        /// Where the report goes; created when missing
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Three short rounds on a small file, instead of five long ones
        #[arg(long)]
        quick: bool,
    },
    /// Draw report.md and report.html again from a results.json
    #[command(after_help = "Example:\n  holdfast bench render report/results.json")]
    Render {
        /// results.json
        results: PathBuf,
    },
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  holdfast dump ./data/osd.0\n  holdfast dump ./backup    (what `holdfast admin meta backup` wrote)\n  holdfast dump ./data --json | jq 'select(.error)'\n  holdfast dump ./data --prefix 20    (all inodes; docs/formats/metadata.md draws the keys)"
)]
pub struct Dump {
    /// A data folder, an OSD's folder or block device, the metadata's folder, or a backup of the metadata
    #[arg(value_name = "DIR|FILE")]
    pub path: PathBuf,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Only the row of the metadata with this key, in hexadecimal
    #[arg(long, value_name = "HEX", conflicts_with = "prefix")]
    pub key: Option<String>,
    /// Only the rows of the metadata whose keys begin so, in hexadecimal
    #[arg(long, value_name = "HEX")]
    pub prefix: Option<String>,
}
