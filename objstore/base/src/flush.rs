//! Group commit of one flush domain: who leads, who waits, who is served.
//!
//! What always holds: a flush serves everyone who asked before it started, and everyone whose writes had all ended before it
//! started, also when they ask while it runs or afterwards; others who ask while it runs are served together by the next one;
//! there is no timer. Nobody depends on another waiter being polled: when a flush ends every
//! waiter it did not serve is woken, and the first of them to be polled leads. A failure is final for the domain.
//! What it leaves out: the flush itself (a call on a descriptor, or the simulator's).

use crate::disk::DomainId;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// The state of one flush domain.
pub(crate) struct FlushGroup {
    id: DomainId,
    poisoned: AtomicBool,
    /// Writes to files of the domain that have ended, plus one for those of earlier processes.
    written: AtomicU64,
    /// Counts the tickets served well.
    served: Counter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Flushes started so far; the n-th start has the number n.
    started: u64,
    /// Number of the newest flush that ended well, and the count of writes it covers.
    finished: u64,
    stable: u64,
    running: bool,
    /// The count of writes the newest start covers.
    covers: u64,
    why: Option<String>,
    /// By key: the flush that serves the waiter, and how to wake it.
    waiters: BTreeMap<u64, (u64, Waker)>,
    next_key: u64,
}

/// One wait for durability of everything written before it was taken.
pub(crate) struct Ticket {
    group: Arc<FlushGroup>,
    /// The first flush that serves this ticket.
    need: u64,
    key: Option<u64>,
}

/// What a ticket is told.
pub(crate) enum Turn {
    /// Everything is stable, or the domain is out of service for the given reason.
    Served(Result<(), String>),
    /// Run a flush now, report through [`Running`], then ask again.
    Lead(Running),
}

/// The right and duty to run the one flush of a domain. Dropping it unreported lets another ticket lead.
pub(crate) struct Running {
    group: Arc<FlushGroup>,
    number: u64,
    reported: bool,
}

impl FlushGroup {
    /// A domain with a number of its own in this process.
    pub fn new(served: Counter) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = DomainId(NEXT.fetch_add(1, Ordering::Relaxed));
        Arc::new(Self { id, poisoned: AtomicBool::new(false), written: AtomicU64::new(1), served, state: Mutex::default() })
    }

    pub fn id(&self) -> DomainId {
        self.id
    }

    /// Notes that a write to a file of the domain has ended: flushes that started before do not cover it.
    pub fn wrote(&self) {
        self.written.fetch_add(1, Ordering::Release);
    }

    /// Takes a ticket: it is served by the first flush that started after every write noted so far, be it over, under way
    /// or the next. So the logs of one device, flushed one after the other, cost it one flush.
    pub fn ticket_for_written(self: &Arc<Self>) -> Ticket {
        let need = {
            let s = self.state.lock();
            let written = self.written.load(Ordering::Acquire);
            match (written <= s.stable, s.running && written <= s.covers) {
                (true, _) => s.finished,
                (false, true) => s.started,
                (false, false) => s.started + 1,
            }
        };
        Ticket { group: self.clone(), need, key: None }
    }

    /// Takes a ticket: the next flush to start serves it.
    pub fn ticket(self: &Arc<Self>) -> Ticket {
        let need = self.state.lock().started + 1;
        Ticket { group: self.clone(), need, key: None }
    }

    /// Why the domain is out of service, if it is.
    pub fn poisoned(&self) -> Option<String> {
        if !self.poisoned.load(Ordering::Acquire) {
            return None;
        }
        Some(self.state.lock().why.clone().unwrap_or_default())
    }

    /// Takes the domain out of service for good; the first reason stays.
    pub fn poison(&self, why: String) {
        let waiters = {
            let mut s = self.state.lock();
            s.why.get_or_insert(why);
            self.poisoned.store(true, Ordering::Release);
            std::mem::take(&mut s.waiters)
        };
        wake(waiters);
    }
}

impl Ticket {
    /// Ready when served or called upon to lead.
    pub fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let mut s = self.group.state.lock();
        let over = s.finished >= self.need || s.why.is_some() || !s.running;
        if let Some(key) = self.key.take_if(|_| over) {
            s.waiters.remove(&key);
        }
        if s.finished >= self.need {
            self.group.served.inc();
            return Poll::Ready(Turn::Served(Ok(())));
        }
        if let Some(why) = &s.why {
            return Poll::Ready(Turn::Served(Err(why.clone())));
        }
        if !s.running {
            s.running = true;
            s.started += 1;
            s.covers = self.group.written.load(Ordering::Acquire);
            let number = s.started;
            drop(s);
            return Poll::Ready(Turn::Lead(Running { group: self.group.clone(), number, reported: false }));
        }
        let key = match self.key {
            Some(key) => key,
            None => {
                s.next_key += 1;
                s.next_key
            }
        };
        self.key = Some(key);
        match s.waiters.get_mut(&key) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => {
                s.waiters.insert(key, (self.need, cx.waker().clone()));
            }
        }
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.group.state.lock().waiters.remove(&key);
        }
    }
}

impl Running {
    /// Reports the flush and lets go: every waiter is woken.
    pub fn finish(self, outcome: Result<(), String>) {
        self.report(outcome, false);
    }

    /// Reports the flush; when others asked meanwhile, hands back the duty to run the next one at once for them.
    pub fn finish_and_go_on(self, outcome: Result<(), String>) -> Option<Running> {
        self.report(outcome, true)
    }

    fn report(mut self, outcome: Result<(), String>, go_on: bool) -> Option<Running> {
        self.reported = true;
        let (waiters, next) = {
            let mut s = self.group.state.lock();
            match outcome {
                Ok(()) => (s.finished, s.stable) = (self.number, s.covers),
                Err(why) => {
                    s.why.get_or_insert(why);
                    self.group.poisoned.store(true, Ordering::Release);
                }
            }
            let mut waiters = std::mem::take(&mut s.waiters);
            s.running = false;
            let mut next = None;
            if go_on && s.why.is_none() {
                let finished = s.finished;
                s.waiters = waiters.extract_if(.., |_, (need, _)| *need > finished).collect();
                if !s.waiters.is_empty() {
                    s.running = true;
                    s.started += 1;
                    s.covers = self.group.written.load(Ordering::Acquire);
                    next = Some(Running { group: self.group.clone(), number: s.started, reported: false });
                }
            }
            (waiters, next)
        };
        wake(waiters);
        next
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.reported {
            return;
        }
        let waiters = {
            let mut s = self.group.state.lock();
            s.running = false;
            std::mem::take(&mut s.waiters)
        };
        wake(waiters);
    }
}

fn wake(waiters: BTreeMap<u64, (u64, Waker)>) {
    waiters.into_values().for_each(|(_, waker)| waker.wake());
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::noop_waker;

    fn poll(t: &mut Ticket) -> Option<Turn> {
        match t.poll_turn(&mut Context::from_waker(&noop_waker())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }
    fn lead(t: &mut Ticket) -> Running {
        match poll(t) {
            Some(Turn::Lead(r)) => r,
            _ => panic!("not called upon to lead"),
        }
    }
    fn served(t: &mut Ticket) -> bool {
        matches!(poll(t), Some(Turn::Served(Ok(()))))
    }

    #[test]
    fn those_before_the_start_are_served_and_those_during_it_share_the_next() {
        let g = FlushGroup::new(Counter::default());
        let mut early: Vec<Ticket> = (0..5).map(|_| g.ticket()).collect();
        let run = lead(&mut early[0]);
        let mut late: Vec<Ticket> = (0..5).map(|_| g.ticket()).collect();
        assert!(late.iter_mut().all(|t| poll(t).is_none()));
        let next = run.finish_and_go_on(Ok(())).expect("others asked meanwhile");
        assert!(early.iter_mut().all(served));
        assert!(late.iter_mut().all(|t| poll(t).is_none()));
        assert!(next.finish_and_go_on(Ok(())).is_none());
        assert!(late.iter_mut().all(served));
        assert_eq!(g.served.get(), 10);
    }

    #[test]
    fn who_wrote_nothing_since_the_start_needs_no_flush_of_his_own() {
        let g = FlushGroup::new(Counter::default());
        let mut first = g.ticket_for_written();
        let run = lead(&mut first);
        let mut during = g.ticket_for_written();
        assert!(poll(&mut during).is_none());
        g.wrote();
        let mut wrote = g.ticket_for_written();
        run.finish(Ok(()));
        assert!(served(&mut first) && served(&mut during));
        lead(&mut wrote).finish(Ok(()));
        assert!(served(&mut wrote) && served(&mut g.ticket_for_written()));
    }

    #[test]
    fn a_dropped_leader_strands_nobody() {
        let g = FlushGroup::new(Counter::default());
        let (mut a, mut b) = (g.ticket(), g.ticket());
        let run = lead(&mut a);
        assert!(poll(&mut b).is_none());
        drop(run);
        drop(a);
        lead(&mut b).finish(Ok(()));
        assert!(served(&mut b));
    }

    #[test]
    fn a_failure_is_final_but_not_for_those_served_before() {
        let g = FlushGroup::new(Counter::default());
        let mut a = g.ticket();
        lead(&mut a).finish(Ok(()));
        let mut b = g.ticket();
        lead(&mut b).finish(Err("EIO".into()));
        assert!(served(&mut a));
        assert!(matches!(poll(&mut b), Some(Turn::Served(Err(_)))));
        assert!(matches!(poll(&mut g.ticket()), Some(Turn::Served(Err(_)))));
        assert_eq!(g.poisoned().as_deref(), Some("EIO"));
    }
}
