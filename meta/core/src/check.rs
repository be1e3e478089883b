//! `check`: reads the whole state and says where it contradicts itself.
//!
//! What always holds: nothing is changed; whatever bytes the state holds, it answers. Reads everything, so it is for
//! tests and for `admin meta check` on a copy, not for a running service.

mod data;
mod names;
mod packs;
mod sessions;

use crate::record::{Record, decode};
use crate::{KvRead, initialise, keys};
use bytes::Bytes;
use std::ops::ControlFlow;

/// Complaints after which it stops: the state is broken, how often does not matter.
const COMPLAINTS_MAX: usize = 1000;

/// One sentence for each contradiction, at most 1,000 of them; empty when the state is sound.
pub fn check(kv: &dyn KvRead) -> Vec<String> {
    let mut report = Report { kv, complaints: Vec::new() };
    report.header();
    let inodes = names::check(&mut report);
    data::check(&mut report, &inodes);
    sessions::check(&mut report);
    report.complaints
}

struct Report<'a> {
    kv: &'a dyn KvRead,
    complaints: Vec<String>,
}

impl Report<'_> {
    fn say(&mut self, complaint: impl Into<String>) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(complaint.into());
        }
    }

    fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.say(otherwise());
        }
    }

    fn header(&mut self) {
        // An initialised state is only looked at; the check must not make one.
        let mut held = Header(self.kv, false);
        let checked = initialise(&mut held);
        if let Err(e) = checked {
            self.say(e.to_string());
        } else if held.1 {
            self.say("there is no state");
        }
        let mut unknown = Vec::new();
        let known = keys::FAMILIES;
        let scanned = self.kv.scan(&[], &[0xff], &mut |k, _| {
            if !k.first().is_some_and(|f| known.contains(f)) {
                unknown.push(k.to_vec());
            }
            if unknown.len() > 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Err(e) = scanned {
            self.say(e.to_string());
        }
        for k in unknown {
            self.say(format!("key {k:02x?} is of no family"));
        }
    }

    /// All records of a family that decode, by key without its family byte.
    fn all<T: Record>(&mut self, family: u8) -> Vec<(Vec<u8>, T)> {
        let mut found = Vec::new();
        for (key, value) in self.raw(family) {
            match decode(&value) {
                Ok(v) => found.push((key, v)),
                Err(e) => self.say(format!("key {family:02x} {key:02x?}: {e}")),
            }
        }
        found
    }

    fn raw(&mut self, family: u8) -> Vec<(Vec<u8>, Bytes)> {
        let mut found = Vec::new();
        let scanned = self.kv.scan(&[family], &[family + 1], &mut |k, v| {
            found.push((k[1..].to_vec(), Bytes::copy_from_slice(v)));
            ControlFlow::Continue(())
        });
        if let Err(e) = scanned {
            self.say(e.to_string());
        }
        found
    }
}

/// Big-endian number at the start (or wherever `at` says) of a key; zero when the key is too short, which the caller complains about.
fn number(key: &[u8], at: usize) -> u64 {
    key.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// Lets `initialise` look without writing; notes whether it wanted to.
struct Header<'a>(&'a dyn KvRead, bool);

impl KvRead for Header<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, crate::StateError> {
        self.0.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), crate::StateError> {
        self.0.scan(from, to, visit)
    }
}

impl crate::Kv for Header<'_> {
    fn put(&mut self, _: &[u8], _: Bytes) {
        self.1 = true;
    }
    fn delete(&mut self, _: &[u8]) {
        self.1 = true;
    }
}
