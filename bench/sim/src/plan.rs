//! What a seed chooses: the cluster, the clients, and when what breaks.
//!
//! What always holds: no more devices are hurt in one run than the code carries, whatever kind of hurt it is, and never the one
//! that holds the metadata while it is kept only once. So everything acknowledged must be there, all the time.

use crate::devices::{Mischief, Pace};
use crate::history::End;
use crate::operator::Change;
use holdfast_objstore_base::sim::Rng;
use holdfast_objstore_proto::Code;
use holdfast_objstore_repair::Depth;

/// The names all clients use: few, so that they meet. `s` is a folder.
pub const PATHS: [&str; 6] = ["a", "b", "c", "d", "s/x", "s/y"];

/// A device that holds metadata, which is not hurt.
pub const META_DEVICE: usize = 0;

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub devices: usize,
    /// The last device has no OSD yet.
    pub spare: bool,
    pub code: Code,
    pub mounts: usize,
    pub gateway: bool,
    /// Devices are small, and a client fills them.
    pub small: bool,
    pub pace: Pace,
    /// Bytes of an OSD's segment, and of all its segments.
    pub segment_bytes: u64,
    pub capacity_bytes: u64,
    /// Bytes of log between checkpoints of the metadata state.
    pub checkpoint_bytes: u64,
    /// The byte budget of all mounts.
    pub budget_bytes: u64,
    pub lives: Vec<LifePlan>,
}

#[derive(Debug, Clone)]
pub struct LifePlan {
    /// Calls of each client.
    pub calls: u64,
    pub end: End,
    /// Steps until the end, when it does not wait for the clients.
    pub cut_after: Option<u64>,
    pub faults: Vec<Fault>,
    /// Mounts that hang for a while.
    pub hangs: Vec<Hang>,
    /// What an operator asks for, in order, and when: virtual milliseconds after the clients began.
    pub changes: Vec<(u64, Change)>,
    /// A scrub that begins with the life.
    pub scrub: Option<Depth>,
}

/// A mount gets through to no OSD for a while.
#[derive(Debug, Clone, Copy)]
pub struct Hang {
    pub mount: usize,
    /// Virtual milliseconds after the clients began, and how many.
    pub at_ms: u64,
    pub ms: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub device: usize,
    pub kind: FaultKind,
    /// Virtual milliseconds after the clients began.
    pub at_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It is gone for good.
    Loss,
    /// It is gone, is not there at the next start, and is back at the one after with what it had.
    Away,
    /// Some of its bytes change.
    Rot,
    /// It takes long.
    Slow { ms_max: u64 },
    /// It does not answer for a while.
    Hang { ms: u64 },
    /// Its flushes do nothing.
    Lie,
    /// Some of its writes are answered and not done, done in part, or land elsewhere.
    Misbehave(Mischief),
    /// What it holds at the end of the life is what it held at its start.
    Back,
    /// Nobody reaches its OSD for a while.
    NoContact { ms: u64 },
    /// Of 100 shards for its OSD, so many come late.
    Late { percent: u64, ms_max: u64 },
    /// Some of its calls fail.
    Errors,
}

impl Plan {
    /// What `seed` chooses.
    pub fn draw(seed: u64) -> Plan {
        let mut r = Rng::new(seed ^ 0x51b);
        let (osds, code) = match r.below(8) {
            0 => (1, Code::new(1, 0)),
            1 => (2, Code::new(1, 1)),
            // Not three: of those one alone does not know which copies of the metadata log are the newest.
            2 => (4, Code::new(1, 2)),
            3 => (4, Code::new(2, 2)),
            4 => (4, Code::new(2, 1)),
            _ => (6, Code::new(4, 2)),
        };
        let segment_bytes = [256 << 10, 512 << 10, 1 << 20][r.below(3) as usize];
        let small = r.below(24) == 0;
        let segment_bytes = if small { 256 << 10 } else { segment_bytes };
        let spare = r.below(4) == 0;
        let mut plan = Plan {
            seed,
            devices: osds + usize::from(spare),
            spare,
            code,
            mounts: 1 + r.below(2) as usize,
            gateway: r.below(3) > 0,
            pace: Pace { percent: [0, 10, 50][r.below(3) as usize], ms_max: 1 + r.below(5) },
            segment_bytes,
            small,
            capacity_bytes: if small { (10 + r.below(6)) * segment_bytes } else { 48 << 20 },
            checkpoint_bytes: [64 << 10, 256 << 10][r.below(2) as usize],
            budget_bytes: [512 << 10, 4 << 20][r.below(2) as usize],
            lives: Vec::new(),
        };
        let mut hurt = Vec::new();
        for _ in 0..2 + r.below(2) {
            let life = plan.life(&mut r, &mut hurt);
            plan.lives.push(life);
        }
        plan
    }

    fn life(&self, r: &mut Rng, hurt: &mut Vec<usize>) -> LifePlan {
        let end = match r.below(6) {
            0 | 1 => End::Stopped,
            2 => End::Killed,
            _ => End::PowerCut,
        };
        let cut_after = (end != End::Stopped && r.below(5) > 0).then(|| 1 << r.below(12)).map(|top| 1 + top + r.below(top));
        let mut faults = Vec::new();
        for _ in 0..[0, 0, 1, 2][r.below(4) as usize] {
            faults.extend(self.fault(r, hurt));
        }
        let mut hangs = Vec::new();
        if r.below(4) == 0 {
            hangs.push(Hang { mount: r.below(self.mounts as u64) as usize, at_ms: r.below(300), ms: 5_000 + r.below(30_000) });
        }
        let scrub = [None, None, Some(Depth::Light), Some(Depth::Deep)][r.below(4) as usize];
        let changes = self.changes(r, hurt);
        LifePlan { calls: 6 + r.below(20), end, cut_after, faults, hangs, changes, scrub }
    }

    fn fault(&self, r: &mut Rng, hurt: &mut Vec<usize>) -> Option<Fault> {
        let device = r.below(self.devices as u64) as usize;
        let kind = match r.below(14) {
            6 | 7 => FaultKind::Away,
            8 => FaultKind::Misbehave(Mischief { lost: r.below(30), astray: r.below(10), short: r.below(10), misread: r.below(10) }),
            9 => FaultKind::Errors,
            10 => FaultKind::Back,
            11 => FaultKind::NoContact { ms: 100 + r.below(40_000) },
            12 => FaultKind::Late { percent: 20 + r.below(80), ms_max: 1 + r.below(40_000) },
            0 => FaultKind::Loss,
            1 => FaultKind::Slow { ms_max: 20 + r.below(2000) },
            2 => FaultKind::Hang { ms: 100 + r.below(40_000) },
            3 => FaultKind::Lie,
            _ => FaultKind::Rot,
        };
        let beside_the_device = matches!(kind, FaultKind::NoContact { .. } | FaultKind::Late { .. });
        let allowed = (device != META_DEVICE || beside_the_device) && (hurt.contains(&device) || hurt.len() < self.code.m as usize);
        if !allowed {
            return None;
        }
        if !hurt.contains(&device) {
            hurt.push(device);
        }
        Some(Fault { device, kind, at_ms: r.below(200) })
    }

    fn changes(&self, r: &mut Rng, hurt: &mut Vec<usize>) -> Vec<(u64, Change)> {
        let (at_ms, device) = (r.below(500), r.below(self.osds() as u64) as usize);
        let last = self.devices - 1;
        match r.below(10) {
            // What it had is gone, as if its device was lost.
            0 if hurt.contains(&device) || hurt.len() < self.code.m as usize => {
                if !hurt.contains(&device) {
                    hurt.push(device);
                }
                vec![(at_ms, Change::Replace(device))]
            }
            1 | 2 if self.spare => {
                vec![(at_ms, Change::Add(last)), (at_ms + 1000, Change::Drain(device)), (at_ms + 2000, Change::Remove(device))]
            }
            3 | 4 if self.spare => vec![(at_ms, Change::Add(last))],
            5 => vec![(at_ms, Change::Drain(device)), (at_ms + 1000, Change::Remove(device))],
            _ => Vec::new(),
        }
    }

    /// OSDs there are at the format.
    pub fn osds(&self) -> usize {
        self.devices - usize::from(self.spare)
    }

    /// Copies of the metadata log.
    pub fn log_copies(&self) -> usize {
        (self.code.m as usize + 1).min(self.devices)
    }

    /// Clients: the mounts, and the gateway if there is one.
    pub fn clients(&self) -> usize {
        self.mounts + usize::from(self.gateway)
    }
}
