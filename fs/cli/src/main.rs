//! The one binary. It parses, runs a command, and turns an error into one sentence and a non-zero exit; only here the process ends.

mod admin;
mod args;
mod commands;
mod credentials;
mod devices;
mod layout;
mod lock;
mod notify;
mod roles;

use args::{Bench, Cli, Command};
use clap::Parser;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("holdfast: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Up(a) => commands::up::run(a),
        Command::Status(a) => alone(commands::status::run(a)),
        Command::Fs(a) => alone(commands::fs::run(a)),
        Command::Admin(a) => alone(commands::admin::run(a)),
        Command::Bench(Bench::Ceiling { data, mount, out, quick }) => commands::bench::ceiling(data, mount, out, quick),
        Command::Bench(Bench::Render { results }) => commands::bench::render(results),
        Command::Dump(a) => commands::dump::run(a),
    }
}

/// Runs a client command on a runtime of its own.
fn alone<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// Logs go to stderr. HOLDFAST_LOG takes targets and levels as `debug` or `holdfast_fs_vfs=trace,warn`.
fn start_log() {
    let fallback =
        || Targets::new().with_default(LevelFilter::INFO).with_target("s3s", LevelFilter::OFF).with_target("openraft", LevelFilter::WARN);
    let targets = match std::env::var("HOLDFAST_LOG") {
        Ok(text) => text.parse().unwrap_or_else(|e| {
            eprintln!("holdfast: HOLDFAST_LOG is not usable ({e}); logging at info");
            fallback()
        }),
        Err(_) => fallback(),
    };
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false))
        .with(targets)
        .init();
}
