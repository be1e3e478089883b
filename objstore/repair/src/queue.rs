//! What waits for repair: by how few survivors a stripe has to spare, each stripe once.
//!
//! What always holds: bounded; a stripe that is in hand is in nobody else's; what is asked for a stripe in hand is done after it. A stripe that
//! could not be repaired *waits* (nothing for it to go to, or metadata did not answer) or is *lost* (more is gone than its code can replace),
//! until everything is tried again.

use holdfast_objstore_proto::{OsdId, StripeId, StripeMeta};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// A stripe to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub id: StripeId,
    /// Shards someone could not use, as bits: they are verified whole.
    pub suspect: u32,
    /// Data bytes.
    pub bytes: u64,
    /// Shards that are known to lack, as bits, and how many the code can replace.
    gone: u32,
    parity: u8,
    /// Homes of the suspects.
    osds: Vec<OsdId>,
}

/// Why a stripe stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    Waiting,
    Lost,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<StripeId, Job>,
    order: BTreeSet<(u8, StripeId)>,
    bytes: u64,
    /// Stripes in hand, with the job that is being done (none: someone only holds it) and what was asked meanwhile.
    held: BTreeMap<StripeId, (Option<Job>, Option<Job>)>,
    stuck: BTreeMap<StripeId, (Stuck, Job)>,
    /// Something did not fit: a walk must find it again.
    overflowed: bool,
    /// How often that was.
    passed_over: u64,
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    max: usize,
    /// Told when there is something to take.
    pub wake: Notify,
    /// Told when there is room.
    pub room: Notify,
}

/// Counts for `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub queued: usize,
    pub queued_bytes: u64,
    pub in_hand: usize,
    pub waiting: usize,
    pub lost: usize,
}

/// A stripe in hand; it is let go of when this is dropped.
pub(crate) struct Held {
    queue: Arc<Queue>,
    id: StripeId,
}

impl Job {
    pub fn of(stripe: &StripeMeta, suspect: u32) -> Job {
        let osds = stripe.osds.iter().enumerate().filter(|(i, _)| suspect >> i & 1 == 1).map(|(_, osd)| *osd).collect();
        Job { id: stripe.id, suspect, bytes: stripe.len as u64, gone: stripe.missing | suspect, parity: stripe.code.m, osds }
    }

    /// These shards, as bits, were looked at and are good: they are suspects no more.
    pub fn found(&mut self, stripe: &StripeMeta, good: u32) {
        self.suspect &= !good;
        *self = Job { bytes: self.bytes, ..Job::of(stripe, self.suspect) };
    }

    /// Shards that may be lost before the stripe is.
    fn spare(&self) -> u8 {
        self.parity.saturating_sub(self.gone.count_ones() as u8)
    }

    fn join(&mut self, other: Job) {
        self.suspect |= other.suspect;
        self.gone |= other.gone;
        for osd in other.osds {
            if !self.osds.contains(&osd) {
                self.osds.push(osd);
            }
        }
    }
}

impl Inner {
    fn insert(&mut self, job: Job, max: usize) -> bool {
        if let Some((_, again)) = self.held.get_mut(&job.id) {
            match again {
                Some(again) => again.join(job),
                None => *again = Some(job),
            }
            return true;
        }
        // What was stuck is tried with what is known now.
        self.stuck.remove(&job.id);
        if let Some(known) = self.jobs.get_mut(&job.id) {
            self.order.remove(&(known.spare(), known.id));
            known.join(job);
            self.order.insert((known.spare(), known.id));
            return true;
        }
        if self.jobs.len() >= max {
            self.overflowed = true;
            return false;
        }
        self.order.insert((job.spare(), job.id));
        self.bytes += job.bytes;
        self.jobs.insert(job.id, job);
        true
    }
}

impl Queue {
    pub fn new(max: usize) -> Arc<Queue> {
        Arc::new(Queue { inner: Mutex::default(), max, wake: Notify::new(), room: Notify::new() })
    }

    /// Takes a stripe in, if there is room.
    pub fn push(&self, job: Job) -> bool {
        let taken = self.insert(job);
        self.inner.lock().passed_over += !taken as u64;
        taken
    }

    fn insert(&self, job: Job) -> bool {
        let taken = self.inner.lock().insert(job, self.max);
        if taken {
            self.wake.notify_one();
        }
        taken
    }

    /// Takes a stripe in, when there is room.
    pub async fn push_in_time(&self, job: Job) {
        loop {
            let room = self.room.notified();
            if self.insert(job.clone()) {
                return;
            }
            room.await;
        }
    }

    /// The stripe with the fewest survivors, into the caller's hand.
    pub fn take(self: &Arc<Self>) -> Option<(Job, Held)> {
        let mut q = self.inner.lock();
        let (_, id) = q.order.pop_first()?;
        let job = q.jobs.remove(&id).expect("jobs and order name the same");
        q.bytes -= job.bytes;
        q.held.insert(id, (Some(job.clone()), None));
        drop(q);
        self.room.notify_waiters();
        Some((job, Held { queue: self.clone(), id }))
    }

    /// Takes one stripe in hand, if nobody has it.
    pub fn hold(self: &Arc<Self>, id: StripeId) -> Option<Held> {
        let mut q = self.inner.lock();
        if q.held.contains_key(&id) {
            return None;
        }
        // What waits for it is done after.
        let again = q.jobs.remove(&id).inspect(|job| {
            q.order.remove(&(job.spare(), id));
            q.bytes -= job.bytes;
        });
        q.held.insert(id, (None, again));
        Some(Held { queue: self.clone(), id })
    }

    /// Leaves a stripe that is in hand as it is, until it is tried again.
    pub fn stuck(&self, job: Job, why: Stuck) {
        let mut q = self.inner.lock();
        if q.stuck.len() < self.max {
            q.stuck.insert(job.id, (why, job));
        } else {
            q.overflowed = true;
            q.passed_over += 1;
        }
    }

    /// Whether the stripe was tried and stays as it is for now.
    pub fn is_stuck(&self, id: StripeId) -> bool {
        self.inner.lock().stuck.contains_key(&id)
    }

    /// Everything that is stuck is tried again.
    pub fn retry(&self) {
        let mut q = self.inner.lock();
        let stuck = std::mem::take(&mut q.stuck);
        for (_, (_, job)) in stuck {
            q.insert(job, usize::MAX);
        }
        drop(q);
        self.wake.notify_one();
    }

    /// Whether something did not fit since this was last asked.
    pub fn overflowed(&self) -> bool {
        std::mem::take(&mut self.inner.lock().overflowed)
    }

    /// How often something did not fit. While this stays the same, what a walk found is here or was mended.
    pub fn passed_over(&self) -> u64 {
        self.inner.lock().passed_over
    }

    /// Shards of a stripe that are known to lack and not repaired yet, as bits.
    pub fn suspects_of(&self, stripe: StripeId) -> u32 {
        let q = self.inner.lock();
        let in_hand = q.held.get(&stripe).into_iter().flat_map(|(job, again)| job.iter().chain(again));
        let waiting = q.jobs.get(&stripe).into_iter().chain(q.stuck.get(&stripe).map(|(_, job)| job));
        in_hand.chain(waiting).fold(0, |bits, job| bits | job.suspect)
    }

    pub fn counts(&self) -> Counts {
        let q = self.inner.lock();
        let lost = q.stuck.values().filter(|(why, _)| *why == Stuck::Lost).count();
        let in_hand = q.held.values().filter(|(job, _)| job.is_some()).count();
        Counts { queued: q.jobs.len(), queued_bytes: q.bytes, in_hand, waiting: q.stuck.len() - lost, lost }
    }

    /// Stripes with a suspect shard on this OSD that are not repaired yet.
    pub fn suspects(&self, osd: OsdId) -> usize {
        let q = self.inner.lock();
        let in_hand = q.held.values().flat_map(|(job, again)| job.iter().chain(again));
        q.jobs.values().chain(q.stuck.values().map(|(_, job)| job)).chain(in_hand).filter(|job| job.osds.contains(&osd)).count()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut q = self.queue.inner.lock();
        if let Some((_, Some(again))) = q.held.remove(&self.id) {
            q.insert(again, usize::MAX);
            drop(q);
            self.queue.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_proto::{Code, Codec};

    fn stripe(counter: u64, missing: u32) -> StripeMeta {
        let code = Code::new(4, 2);
        let id = StripeId { incarnation: 1, group: 0, counter };
        StripeMeta { id, codec: Codec::for_code(code), code, len: 100, digest: 1, osds: (0..6).map(OsdId).collect(), missing }
    }

    #[test]
    fn the_fewest_survivors_come_first() {
        let q = Queue::new(10);
        for (counter, missing) in [(1, 0b1), (2, 0), (3, 0b11), (4, 0b11)] {
            assert!(q.push(Job::of(&stripe(counter, missing), 0)));
        }
        q.push(Job::of(&stripe(2, 0), 0b111));
        let order: Vec<u64> = std::iter::from_fn(|| q.take()).map(|(job, _)| job.id.counter).collect();
        assert_eq!(order, [2, 3, 4, 1]);
    }

    #[test]
    fn a_stripe_in_hand_is_in_one_hand_and_what_is_asked_meanwhile_comes_after() {
        let q = Queue::new(10);
        q.push(Job::of(&stripe(1, 0), 1));
        let (job, held) = q.take().unwrap();
        assert!(q.hold(job.id).is_none());
        q.push(Job::of(&stripe(1, 0), 2));
        assert!(q.take().is_none());
        assert_eq!((q.suspects(OsdId(0)), q.suspects(OsdId(1))), (1, 1));
        drop(held);
        assert_eq!(q.take().unwrap().0.suspect, 2);
        assert_eq!(q.counts(), Counts::default());
    }

    #[test]
    fn what_does_not_fit_is_said_and_what_is_stuck_is_counted_until_it_is_tried_again() {
        let q = Queue::new(2);
        for counter in 1..=3 {
            assert_eq!(q.push(Job::of(&stripe(counter, 0), 1)), counter < 3);
        }
        assert!(q.overflowed() && !q.overflowed());
        let (job, held) = q.take().unwrap();
        q.stuck(job, Stuck::Lost);
        drop(held);
        assert_eq!((q.counts().queued, q.counts().lost, q.suspects(OsdId(0))), (1, 1, 2));
        q.retry();
        assert_eq!((q.counts().queued, q.counts().lost), (2, 0));
    }
}
