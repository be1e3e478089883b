//! `holdfast admin scrub`: begins one and shows how far it is.

use super::status::{human, scrub_line};
use crate::admin::client::Client;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub async fn run(deep: bool, detach: bool, data: &Path) -> anyhow::Result<()> {
    let mut client = Client::by_data(data).await?;
    let before = client.status().await?["scrub"].clone();
    client.scrub(deep).await?;
    if detach {
        return Ok(());
    }
    let kind = if deep { "deep" } else { "light" };
    let mut shown = String::new();
    loop {
        let now = client.status().await?["scrub"].clone();
        let ended = &now[kind]["ended_ns"];
        if now["asked"] == Value::Bool(false) && now["running"].is_null() && ended.is_u64() && *ended != before[kind]["ended_ns"] {
            let n = |k: &str| now[kind][k].as_u64().unwrap_or(0);
            println!("{kind} scrub: {} stripes, {} read, {} faults", n("stripes"), human(n("bytes")), n("faults"));
            return Ok(());
        }
        let line = scrub_line(&now);
        if line != shown && std::io::stderr().is_terminal() {
            eprint!("\r{line}   ");
            // Nobody may be looking.
            let _ = std::io::stderr().flush();
            shown = line;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
