//! `holdfast admin …`

use crate::admin::client::Client;
use crate::args::Admin;
use std::io::Write;

pub async fn run(command: Admin) -> anyhow::Result<()> {
    match command {
        Admin::Sync { mount } => {
            let (mut client, point) = Client::by_mount(&mount).await?;
            let inodes = client.sync(point).await?;
            println!("{}: drained, {inodes} inodes written out", mount.display());
        }
        Admin::DropCaches { data } => Client::by_data(&data).await?.drop_caches().await?,
        Admin::Metrics { data } => {
            let text = Client::by_data(&data).await?.metrics().await?;
            std::io::stdout().write_all(text.as_bytes())?;
        }
    }
    Ok(())
}
