//! Runs seeds from the command line: one with its trace, or many for as long as asked.

use holdfast_bench_sim::coverage::Coverage;
use holdfast_bench_sim::{Bug, Failure, Plan, Report, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HELP: &str = "\
Simulates the whole cluster by seed and checks every promise.

usage: holdfast-bench-sim [--seed N] [--trace] | [--from N] [--seeds COUNT] [--for SECONDS] [--bug NAME]

  --seed N        one seed; prints what it did
  --trace         with --seed: prints every line of the trace too
  --from N        the first of many seeds (default 0)
  --seeds COUNT   how many (default 500, or no end with --for)
  --for SECONDS   goes on until this much time has passed
  --bug NAME      plants a bug (ack-before-flush, …): a check of the checkers

example: cargo run -p holdfast-bench-sim -- --seed 123 --trace
";

#[derive(Default)]
struct Options {
    seed: Option<u64>,
    trace: bool,
    from: u64,
    seeds: Option<u64>,
    time: Option<Duration>,
    bug: Option<Bug>,
}

fn parse() -> Result<Options, String> {
    let mut o = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Result<u64, String> {
            let text = args.next().ok_or(format!("{arg} needs a number"))?;
            text.parse().map_err(|_| format!("{arg} {text}: not a number"))
        };
        match arg.as_str() {
            "--seed" => o.seed = Some(number()?),
            "--from" => o.from = number()?,
            "--seeds" => o.seeds = Some(number()?),
            "--for" => o.time = Some(Duration::from_secs(number()?)),
            "--trace" => o.trace = true,
            "--bug" => {
                let name = args.next().unwrap_or_default();
                let known = || Bug::ALL.iter().map(|b| b.0).collect::<Vec<_>>().join(", ");
                o.bug = Some(Bug::ALL.iter().find(|b| b.0 == name).ok_or_else(|| format!("--bug is one of {}", known()))?.1);
            }
            _ => return Err(format!("{arg} is not known\n\n{HELP}")),
        }
    }
    Ok(o)
}

fn one(seed: u64, trace: bool, bug: Option<Bug>) -> ExitCode {
    let result = run(&Plan::draw(seed), bug, true);
    let show = |lines: &[String]| lines.iter().for_each(|l| println!("{l}"));
    match result {
        Ok(report) => {
            if trace {
                show(&report.lines);
            }
            println!("{}", report.coverage.table());
            println!("{:?}", Report { lines: Vec::new(), coverage: Coverage::default(), ..report });
            ExitCode::SUCCESS
        }
        Err(failure) => {
            if trace {
                show(&failure.trace);
            }
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(o: &Options) -> ExitCode {
    let begun = Instant::now();
    let (next, failed) = (AtomicU64::new(o.from), AtomicBool::new(false));
    let end = match (o.seeds, o.time) {
        (Some(n), _) => o.from + n,
        (None, Some(_)) => u64::MAX,
        (None, None) => o.from + 500,
    };
    let coverage = Mutex::new(Coverage::default());
    let report = |f: Failure| {
        failed.store(true, Ordering::Relaxed);
        eprintln!("{f}\n");
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while o.time.is_none_or(|t| begun.elapsed() < t) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    match run(&Plan::draw(seed), o.bug, false) {
                        Ok(r) => coverage.lock().expect("nobody panics with it").join(&r.coverage),
                        Err(f) => report(f),
                    }
                }
            });
        }
    });
    println!("{}", coverage.into_inner().expect("nobody panicked").table());
    println!("{} seeds in {:.1} s", next.load(Ordering::Relaxed).min(end) - o.from, begun.elapsed().as_secs_f64());
    if failed.load(Ordering::Relaxed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--help" || a == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match parse() {
        Ok(o) => match o.seed {
            Some(seed) => one(seed, o.trace, o.bug),
            None => many(&o),
        },
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
