//! `holdfast admin osd …`: the running process does it; here it is asked, and its answer shown.

use super::status;
use crate::admin::client::Client;
use crate::args::{AdminOsd, Of};
use crate::devices;
use anyhow::Context;
use holdfast_objstore_base::real::device::is_block_device;
use std::path::Path;

pub async fn run(command: AdminOsd) -> anyhow::Result<()> {
    let (of, action, osd, dir, format) = match command {
        AdminOsd::Replace { osd, dir, format_devices, of } => (of, "replace", osd, dir, format_devices),
        AdminOsd::Add { dir, format_devices, of } => (of, "add", 0, Some(dir), format_devices),
        AdminOsd::Drain { osd, cancel, of } => (of, if cancel { "undrain" } else { "drain" }, osd, None, false),
        AdminOsd::Remove { osd, of } => (of, "remove", osd, None, false),
        AdminOsd::List { of, json } => return list(of, json).await,
    };
    let device = dir.as_deref().filter(|d| is_block_device(d));
    let format = format || device.map_or(Ok(false), |d| devices::said_yes(&[d]))?;
    let dir = dir.as_deref().map(absolute).transpose()?.unwrap_or_default();
    let said = Client::by_data(&of.data).await?.osd(action, osd, dir, format).await?;
    println!("{said}");
    Ok(())
}

/// The process may run in another folder than this command.
fn absolute(dir: &Path) -> anyhow::Result<String> {
    let whole = std::path::absolute(dir).with_context(|| format!("{} is not a path", dir.display()))?;
    Ok(whole.to_str().with_context(|| format!("{} is not UTF-8", dir.display()))?.to_string())
}

async fn list(of: Of, json: bool) -> anyhow::Result<()> {
    let status = Client::by_data(&of.data).await?.status().await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&status["osds"])?);
    } else {
        print!("{}", status::osd_table(&status));
    }
    Ok(())
}
