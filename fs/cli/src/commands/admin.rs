//! `holdfast admin …`

use crate::admin::client::Client;
use crate::args::Admin;
use anyhow::Context;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

pub async fn run(command: Admin) -> anyhow::Result<()> {
    match command {
        Admin::Sync { mount } => {
            let (mut client, point) = Client::by_mount(&mount).await?;
            push_kernel_pages(&mount)?;
            client.sync(point).await?;
        }
        Admin::Meta(command) => super::meta::run(command).await?,
        Admin::DropCaches { data } => Client::by_data(&data).await?.drop_caches().await?,
        Admin::Osd(command) => super::osd::run(command).await?,
        Admin::Scrub { deep, detach, data } => super::scrub::run(deep, detach, &data).await?,
        Admin::Metrics { data } => {
            let text = Client::by_data(&data).await?.metrics().await?;
            std::io::stdout().write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

/// What the kernel still holds of the mount (dirty pages of shared mappings) goes to the daemon first.
fn push_kernel_pages(mount: &Path) -> anyhow::Result<()> {
    let folder = std::fs::File::open(mount).with_context(|| format!("cannot open {}", mount.display()))?;
    // SAFETY: a plain call on a descriptor that lives for the call.
    if unsafe { libc::syncfs(folder.as_raw_fd()) } != 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("syncfs {}", mount.display()));
    }
    Ok(())
}
