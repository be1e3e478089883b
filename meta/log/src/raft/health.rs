//! Whether this member leads, follows or has failed: one atomic, and the reason.
//!
//! What always holds: a failure is final and its first reason stays; whoever waits for anything is woken by it.

use crate::{Error, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;

const FOLLOWS: u8 = 0;
const LEADS: u8 = 1;
const FAILED: u8 = 2;

#[derive(Default)]
pub struct Health {
    role: AtomicU8,
    why: OnceLock<String>,
    leader: parking_lot::Mutex<Option<String>>,
    /// Told when room was made, or all is over.
    pub changed: Notify,
}

impl Health {
    /// Ends the service; only the first reason is kept.
    pub fn fail(&self, why: impl std::fmt::Display) {
        if self.why.set(why.to_string()).is_ok() {
            tracing::error!(why = %why, "the metadata log failed");
        }
        self.close();
    }

    /// Ends the service by request.
    pub fn stop(&self) {
        let _ = self.why.set("the metadata log is shut down".into());
        self.close();
    }

    fn close(&self) {
        self.role.store(FAILED, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Why the service ended, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    /// Takes note of who leads.
    pub fn set_leader(&self, here: bool, address: Option<String>) {
        *self.leader.lock() = address;
        let role = if here { LEADS } else { FOLLOWS };
        let _ = self.role.try_update(Ordering::AcqRel, Ordering::Acquire, |now| (now != FAILED).then_some(role));
    }

    /// Ok while this member leads: one atomic load.
    pub fn leads(&self) -> Result<()> {
        match self.role.load(Ordering::Acquire) {
            LEADS => Ok(()),
            FOLLOWS => Err(self.not_leader()),
            _ => Err(self.failed()),
        }
    }

    pub fn not_leader(&self) -> Error {
        Error::NotLeader { leader: self.leader.lock().clone() }
    }

    pub fn failed(&self) -> Error {
        Error::Failed(self.failure().unwrap_or("it ended").to_string())
    }
}
