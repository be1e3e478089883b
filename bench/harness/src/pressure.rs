//! Who else used the machine during a run: load, CPU pressure, CPU time that was not ours.
//!
//! What always holds: two snapshots around a run are compared; nothing is sampled in between, so measuring costs nothing.
//! What it leaves out: a verdict on old numbers; a round is flagged, and kept.

use std::fs;
use std::time::Instant;

/// A round is flagged when others took more than this part of all cores. Kernel threads working for us are among the
/// others; they take a few percent.
const OTHERS_MAX: f64 = 0.15;
/// Without knowing the daemon, its time cannot be told from others'; then the part of time tasks waited for a CPU decides.
const WAITING_MAX: f64 = 0.30;

/// Counters at one moment.
pub struct Snapshot {
    at: Instant,
    /// All cores: time not idle, without interrupts (which serve our I/O), µs.
    busy_us: Option<f64>,
    /// Time some task waited for a CPU, µs.
    waited_us: Option<f64>,
    /// This process and its ended children: fio, and the passthrough.
    ours_us: f64,
    daemon_us: Option<f64>,
    load: f64,
}

/// What happened between two snapshots.
#[derive(Debug, Clone, PartialEq)]
pub struct Pressure {
    /// Load average (1 minute) at the first.
    pub load: f64,
    /// Percent of the time some task waited for a CPU.
    pub waiting_percent: Option<f64>,
    /// CPU time of the daemon, µs.
    pub daemon_us: Option<f64>,
    pub flagged: bool,
}

impl Snapshot {
    pub fn take(daemon: Option<u32>) -> Snapshot {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Snapshot {
            at: Instant::now(),
            busy_us: busy_us(&text("/proc/stat")),
            waited_us: waited_us(&text("/proc/pressure/cpu")),
            ours_us: usage_us(libc::RUSAGE_SELF) + usage_us(libc::RUSAGE_CHILDREN),
            daemon_us: daemon.and_then(|pid| process_us(&text(&format!("/proc/{pid}/stat")))),
            load: text("/proc/loadavg").split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
        }
    }

    /// From this snapshot to `end`, on `cores`.
    pub fn until(&self, end: &Snapshot, cores: u32) -> Pressure {
        let elapsed_us = (end.at - self.at).as_secs_f64() * 1e6;
        let between = |a: Option<f64>, b: Option<f64>| Some((b? - a?).max(0.0));
        let waiting = between(self.waited_us, end.waited_us).map(|us| (us / elapsed_us).min(1.0));
        let daemon_us = between(self.daemon_us, end.daemon_us);
        let others = between(self.busy_us, end.busy_us).zip(daemon_us).map(|(busy, daemon)| {
            let ours = end.ours_us - self.ours_us + daemon;
            (busy - ours).max(0.0) / (elapsed_us * cores as f64)
        });
        let flagged = match others {
            Some(part) => part > OTHERS_MAX,
            None => waiting.is_some_and(|part| part > WAITING_MAX),
        };
        Pressure { load: self.load, waiting_percent: waiting.map(|p| p * 100.0), daemon_us, flagged }
    }
}

/// `cpu  user nice system idle iowait irq softirq steal …` in ticks; stolen time is time others had.
fn busy_us(stat: &str) -> Option<f64> {
    let ticks: Vec<f64> = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|f| f.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, _irq, _softirq, steal] = ticks.get(..8)?.try_into().ok()?;
    Some((user + nice + system + steal) * tick_us())
}

/// `some avg10=… avg60=… avg300=… total=µs`
fn waited_us(psi: &str) -> Option<f64> {
    psi.lines().find(|l| l.starts_with("some "))?.split("total=").nth(1)?.trim().parse().ok()
}

/// Fields 14 and 15 (user and system ticks), counted after the name, which may hold anything.
fn process_us(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (user, system): (f64, f64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
    Some((user + system) * tick_us())
}

fn tick_us() -> f64 {
    // SAFETY: a plain query.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1e6 / ticks.max(1) as f64
}

fn usage_us(who: libc::c_int) -> f64 {
    // SAFETY: all zeroes is a valid rusage, which the call then fills in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    if unsafe { libc::getrusage(who, &mut usage) } != 0 {
        return 0.0;
    }
    let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_kernels_tables_are_read() {
        let tick = tick_us();
        assert_eq!(busy_us("cpu  10 1 20 900 5 3 4 7 0 0\ncpu0 1\n"), Some(38.0 * tick));
        assert_eq!(busy_us(""), None);
        assert_eq!(waited_us("some avg10=0.00 avg60=1.00 avg300=0.10 total=12345\nfull avg10=0 total=1\n"), Some(12345.0));
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 70 30 0 0 20 0 9 0";
        assert_eq!(process_us(stat), Some(100.0 * tick));
        assert!(process_us(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }

    fn snapshot(at: Instant, busy: f64, waited: f64, ours: f64, daemon: Option<f64>) -> Snapshot {
        Snapshot { at, busy_us: Some(busy), waited_us: Some(waited), ours_us: ours, daemon_us: daemon, load: 2.5 }
    }

    #[test]
    fn a_run_is_flagged_for_what_others_used_not_for_our_own_work() {
        let (start, end) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let from = |daemon| snapshot(start, 0.0, 0.0, 0.0, daemon);
        // Both cores full, all of it ours.
        let busy = from(Some(0.0)).until(&snapshot(end, 2e6, 9e5, 1.2e6, Some(0.8e6)), 2);
        assert!(!busy.flagged && busy.daemon_us == Some(0.8e6) && (busy.waiting_percent.unwrap() - 90.0).abs() < 0.1);
        // Others had half a core.
        assert!(from(Some(0.0)).until(&snapshot(end, 1.5e6, 0.0, 0.5e6, Some(0.5e6)), 2).flagged);
        // The daemon is not known.
        assert!(from(None).until(&snapshot(end, 2e6, 9e5, 1.0, None), 2).flagged);
        assert!(!from(None).until(&snapshot(end, 2e6, 1e5, 1.0, None), 2).flagged);
    }
}
