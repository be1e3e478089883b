//! `holdfast dump`: every record of a stopped OSD's log, for people.

use crate::args::Dump;
use anyhow::{Context, ensure};
use holdfast_objstore_base::real::{self, RealDisk};
use std::io::Write;

pub fn run(args: Dump) -> anyhow::Result<()> {
    let in_use = args.osd.parent().is_some_and(crate::lock::is_held);
    ensure!(!in_use, "{} is in use by a running holdfast process; stop that one first", args.osd.display());
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let disk = RealDisk::new();
    if real::device::is_block_device(&args.osd) {
        disk.attach_device(&args.osd)?;
    }
    real::runtime::block_on(holdfast_objstore_osd::dump(&disk, &args.osd, &mut out))?
        .with_context(|| format!("cannot read {}", args.osd.display()))?;
    out.flush()?;
    Ok(())
}
