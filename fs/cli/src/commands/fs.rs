//! `holdfast fs …`: buckets that are filesystems, each with a code of its own.

use crate::admin::client::Client;
use crate::args::Fs;
use serde_json::Value;

pub async fn run(command: Fs) -> anyhow::Result<()> {
    match command {
        Fs::Create { name, code, data } => {
            let code = code.map(|c| c.to_string()).unwrap_or_default();
            Client::by_data(&data).await?.create_bucket(name, code).await
        }
        Fs::Delete { name, data } => Client::by_data(&data).await?.delete_bucket(name).await,
        Fs::List { data, json } => {
            let status = Client::by_data(&data).await?.status().await?;
            if json {
                println!("{}", serde_json::to_string_pretty(&status["buckets"])?);
            } else {
                print!("{}", table(&status["buckets"]));
            }
            Ok(())
        }
    }
}

/// One line for each bucket.
pub fn table(buckets: &Value) -> String {
    let text = |v: &Value| v.as_str().unwrap_or("-").to_string();
    let mut out = format!("{:<32} {:<6} {:<6} {}\n", "BUCKET", "CODE", "SHAPE", "MOUNT");
    for b in buckets.as_array().into_iter().flatten() {
        out.push_str(&format!("{:<32} {:<6} {:<6} {}\n", text(&b["name"]), text(&b["code"]), text(&b["shape"]), text(&b["mount"])));
    }
    out
}
