//! Dirty bytes of one inode: runs in aligned buffers that never cross a chunk.
//!
//! What always holds: runs never overlap; each carries the charge of its capacity; a write changes everything or nothing, because what it
//! needs is known ([`Pages::plan`]) before it is charged and applied.
//! What it leaves out: when to write back (writeback), and the order against writes in flight (pending).

use crate::budget::DirtyCharge;
use bytes::Bytes;
use holdfast_objstore_base::buf::AlignedBuf;
use holdfast_objstore_base::units::block_up;
use holdfast_objstore_proto::meta::CHUNK_BYTES;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Runs that reach this grow to their whole chunk at once: by then the file is being streamed, and every doubling is a copy.
const STREAM_BYTES: u64 = 1 << 20;

struct Run {
    buf: AlignedBuf,
    /// `None` only when the budget was smaller than one request.
    charge: Option<DirtyCharge>,
}

/// A run on its way out.
pub struct Frozen {
    pub offset: u64,
    pub data: Bytes,
    pub charge: Option<DirtyCharge>,
}

#[derive(Clone, Copy)]
enum Step {
    /// Over `n` bytes of the run at `run`.
    Over { run: u64, at: u64, n: usize },
    /// Extends the run at `run` by `n` bytes, in a buffer of `capacity`.
    Grow { run: u64, n: usize, capacity: u64 },
    /// A new run.
    New { at: u64, n: usize, capacity: u64 },
}

/// How a write will be laid down, and the bytes it must charge before that.
pub struct Plan {
    steps: SmallVec<[Step; 4]>,
    pub charge_bytes: u64,
}

#[derive(Default)]
pub struct Pages {
    runs: BTreeMap<u64, Run>,
    /// Capacity of all runs.
    bytes: u64,
    /// Where the last run that filled its chunk ended: a write that goes on there is a stream.
    filled_to: u64,
}

fn chunk_end(offset: u64) -> u64 {
    (offset / CHUNK_BYTES + 1) * CHUNK_BYTES
}

impl Pages {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn plan(&self, offset: u64, len: usize) -> Plan {
        let mut plan = Plan { steps: SmallVec::new(), charge_bytes: 0 };
        let (mut at, end) = (offset, offset + len as u64);
        while at < end {
            let stop = end.min(chunk_end(at));
            let before = self.runs.range(..=at).next_back();
            if let Some((&run, r)) = before {
                let run_end = run + r.buf.len() as u64;
                if run_end > at {
                    let n = stop.min(run_end) - at;
                    plan.steps.push(Step::Over { run, at, n: n as usize });
                    at += n;
                    continue;
                }
            }
            let stop = self.runs.range(at..).next().map_or(stop, |(next, _)| stop.min(*next));
            let n = stop - at;
            match before {
                Some((&run, r)) if run + r.buf.len() as u64 == at && chunk_end(run) == chunk_end(at) => {
                    let (have, need) = (r.buf.capacity() as u64, r.buf.len() as u64 + n);
                    let room = block_up(chunk_end(run) - run);
                    let capacity = match need {
                        _ if need <= have => have,
                        _ if need > STREAM_BYTES => room,
                        _ => block_up(need).max(have * 2).min(room),
                    };
                    plan.charge_bytes += capacity - have;
                    plan.steps.push(Step::Grow { run, n: n as usize, capacity });
                }
                _ => {
                    let stream = at == self.filled_to && at > 0 && n >= STREAM_BYTES / 16;
                    let capacity = if stream { block_up(chunk_end(at) - at) } else { block_up(n) };
                    plan.charge_bytes += capacity;
                    plan.steps.push(Step::New { at, n: n as usize, capacity });
                }
            }
            at = stop;
        }
        plan
    }

    /// Lays `data` down as `plan`, made under the same lock, says; answers the bytes copied.
    pub fn apply(&mut self, plan: Plan, data: &[u8], mut charge: Option<DirtyCharge>) -> u64 {
        let (mut from, mut copied) = (0, 0);
        for step in plan.steps {
            match step {
                Step::Over { run, at, n } => {
                    let r = self.runs.get_mut(&run).expect("planned under this lock");
                    let skip = (at - run) as usize;
                    r.buf[skip..skip + n].copy_from_slice(&data[from..from + n]);
                    from += n;
                }
                Step::Grow { run, n, capacity } => {
                    let r = self.runs.get_mut(&run).expect("planned under this lock");
                    let (have, len) = (r.buf.capacity() as u64, r.buf.len());
                    if capacity > have {
                        let mut buf = AlignedBuf::zeroed(capacity as usize);
                        buf.padded_mut()[..len].copy_from_slice(&r.buf);
                        copied += len as u64;
                        r.buf = buf;
                        self.bytes += capacity - have;
                        let more = charge.as_mut().and_then(|c| c.split(capacity - have));
                        match (&mut r.charge, more) {
                            (Some(c), Some(more)) => c.merge(more),
                            (none, more) => *none = none.take().or(more),
                        }
                    }
                    r.buf.set_len(len + n);
                    r.buf[len..len + n].copy_from_slice(&data[from..from + n]);
                    from += n;
                }
                Step::New { at, n, capacity } => {
                    let mut buf = AlignedBuf::zeroed(capacity as usize);
                    buf.set_len(n);
                    buf.copy_from_slice(&data[from..from + n]);
                    let charge = charge.as_mut().and_then(|c| c.split(capacity));
                    self.bytes += buf.capacity() as u64;
                    self.runs.insert(at, Run { buf, charge });
                    from += n;
                }
            }
        }
        debug_assert_eq!(from, data.len());
        copied + data.len() as u64
    }

    fn take(&mut self, start: u64) -> Frozen {
        let run = self.runs.remove(&start).expect("listed under this lock");
        self.bytes -= run.buf.capacity() as u64;
        Frozen { offset: start, data: run.buf.freeze(), charge: run.charge }
    }

    /// Takes the runs within `range` that have reached the end of their chunk as part of a stream.
    pub fn take_filled(&mut self, range: Range<u64>) -> Vec<Frozen> {
        let touched = self.runs.range(range.start.saturating_sub(CHUNK_BYTES)..range.end);
        let full: SmallVec<[u64; 2]> = touched
            .filter(|(o, r)| **o + r.buf.len() as u64 == chunk_end(**o) && r.buf.len() as u64 >= STREAM_BYTES)
            .map(|(o, _)| *o)
            .collect();
        full.into_iter()
            .map(|o| {
                self.filled_to = chunk_end(o);
                self.take(o)
            })
            .collect()
    }

    /// Takes the runs that overlap `range`, whole.
    pub fn take_overlapping(&mut self, range: Range<u64>) -> Vec<Frozen> {
        let starts: Vec<u64> = self
            .runs
            .range(range.start.saturating_sub(CHUNK_BYTES)..range.end)
            .filter(|(o, r)| **o + r.buf.len() as u64 > range.start)
            .map(|(o, _)| *o)
            .collect();
        starts.into_iter().map(|o| self.take(o)).collect()
    }

    pub fn take_all(&mut self) -> Vec<Frozen> {
        let starts: Vec<u64> = self.runs.keys().copied().collect();
        starts.into_iter().map(|o| self.take(o)).collect()
    }

    /// Forgets everything at and beyond `size`.
    pub fn truncate(&mut self, size: u64) {
        while let Some((&start, run)) = self.runs.last_key_value() {
            if start >= size {
                drop(self.take(start));
            } else {
                let keep = (size - start) as usize;
                if keep < run.buf.len() {
                    self.runs.get_mut(&start).expect("just seen").buf.set_len(keep);
                }
                break;
            }
        }
        self.filled_to = 0;
    }

    /// The dirty bytes of `range`, in order.
    pub fn overlaps(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.runs.range(..range.start).next_back().map_or(range.start, |(o, _)| *o);
        self.runs.range(first..range.end.max(first)).filter_map(move |(&o, r)| {
            let (start, end) = (o.max(range.start), (o + r.buf.len() as u64).min(range.end));
            (start < end).then(|| (start, &r.buf[(start - o) as usize..(end - o) as usize]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(p: &mut Pages, offset: u64, data: &[u8]) -> u64 {
        let plan = p.plan(offset, data.len());
        p.apply(plan, data, None)
    }

    #[test]
    fn tiny_files_stay_tiny_and_streams_take_whole_chunks_without_regrowing() {
        let mut p = Pages::default();
        write(&mut p, 0, &[1; 100]);
        assert_eq!(p.bytes(), 4096);
        let mut p = Pages::default();
        let mib = vec![5u8; 1 << 20];
        let mut copied = 0;
        for i in 0..16u64 {
            copied += write(&mut p, i << 20, &mib);
            p.take_filled(i << 20..(i + 1) << 20);
        }
        assert!(p.is_empty());
        assert_eq!(copied, 17 << 20, "one run of the first chunk was moved once, the others never");
    }

    #[test]
    fn pages_agree_with_an_array_of_bytes() {
        for seed in 1..100u64 {
            let mut x = seed * 0x9e37_79b9;
            let mut next = move || {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x
            };
            let base = CHUNK_BYTES - 20_000;
            let mut p = Pages::default();
            let mut model: Vec<Option<u8>> = vec![None; 40_000];
            for n in 0..40u8 {
                let from = (next() % 39_000) as usize;
                let len = 1 + (next() as usize % (40_000 - from)).min(9_000);
                match next() % 8 {
                    0 => {
                        p.truncate(base + from as u64);
                        model[from..].fill(None);
                    }
                    1 => {
                        for f in p.take_overlapping(base + from as u64..base + (from + len) as u64) {
                            let o = (f.offset - base) as usize;
                            for (i, b) in f.data.iter().enumerate() {
                                assert_eq!(model[o + i].take(), Some(*b));
                            }
                        }
                        assert!(model[from..from + len].iter().all(Option::is_none));
                    }
                    _ => {
                        write(&mut p, base + from as u64, &vec![n; len]);
                        model[from..from + len].fill(Some(n));
                    }
                }
                let mut seen: Vec<Option<u8>> = vec![None; 40_000];
                for (o, d) in p.overlaps(base..base + 40_000) {
                    let o = (o - base) as usize;
                    for (i, b) in d.iter().enumerate() {
                        assert!(seen[o + i].replace(*b).is_none());
                    }
                }
                assert_eq!(seen, model, "seed {seed}");
            }
            p.take_all();
            assert_eq!((p.bytes(), p.is_empty()), (0, true));
        }
    }
}
