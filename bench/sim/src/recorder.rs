//! Takes down the history while it happens.
//!
//! What always holds: after the power has gone nobody hears anything, whatever still runs in memory.

use crate::devices::Power;
use crate::history::{Answer, Event, Op, Ticket};
use crate::trace::Trace;
use parking_lot::Mutex;
use std::sync::Arc;

pub struct Recorder {
    trace: Arc<Trace>,
    power: Arc<Power>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ticket: Ticket,
    events: Vec<Event>,
    next_write: u32,
}

/// A call that waits for its answer.
pub struct Call(usize);

impl Recorder {
    pub fn new(trace: Arc<Trace>, power: Arc<Power>) -> Self {
        Self { trace, power, state: Mutex::default() }
    }

    /// The number of a new write.
    pub fn write_id(&self) -> u32 {
        let mut s = self.state.lock();
        s.next_write += 1;
        s.next_write
    }

    pub fn call(&self, client: usize, op: Op) -> Call {
        self.power.step();
        self.trace.note(format_args!("c{client} asks {op:?}"));
        let mut s = self.state.lock();
        s.ticket += 1;
        let called = s.ticket;
        s.events.push(Event { client, called, answered: None, op });
        Call(s.events.len() - 1)
    }

    /// The answer arrives, unless the power went before.
    pub fn answer(&self, call: Call, answer: Answer) {
        self.power.step();
        if self.power.is_off() {
            return;
        }
        let mut s = self.state.lock();
        s.ticket += 1;
        let ticket = s.ticket;
        let event = &mut s.events[call.0];
        self.trace.note(format_args!("c{} hears {answer:?} ({:?})", event.client, event.op));
        event.answered = Some((ticket, answer));
    }

    /// Hands over what was taken down.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.state.lock().events)
    }

    /// Calls that have not been answered.
    pub fn waiting(&self) -> Vec<String> {
        let s = self.state.lock();
        s.events.iter().filter(|e| e.answered.is_none()).map(|e| format!("c{} {:?}", e.client, e.op)).collect()
    }
}
