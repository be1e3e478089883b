//! Inline bytes that no pack has yet: in memory, beside the state that lists them, and in the log.
//!
//! What always holds: what is here is what the state lists as staged, once a start has shown the log's entries again; bytes of a stripe that
//! is overwritten, deleted or packed go at once.
//! What it leaves out: the bound (writers ask for room first), and packing (the service's background work).

use bytes::Bytes;
use holdfast_meta_core::Effects;
use holdfast_objstore_proto::StripeId;
use holdfast_objstore_proto::meta::{Command, Inline};
use std::collections::{BTreeMap, BTreeSet};

/// The log stores whole blocks, and its record of a command has a head. Commands that share a record take less than is counted here.
const LOG_BLOCK: u64 = 4096;
const RECORD_HEAD: u64 = 128;

/// What each staged stripe takes in memory beside its bytes, about.
pub(super) const STRIPE_BYTES: usize = 256;

/// Bytes a command takes in the log, at most.
fn log_bytes_of(command_bytes: usize) -> u64 {
    (command_bytes as u64 + RECORD_HEAD).next_multiple_of(LOG_BLOCK)
}

#[derive(Default)]
pub(crate) struct Staging {
    stripes: BTreeMap<StripeId, Kept>,
    order: BTreeSet<(u64, StripeId)>,
    /// Listed, and their bytes are nowhere: they are not counted, nor waited for.
    lost: BTreeSet<StripeId>,
    bytes: usize,
    /// Bytes in the log of all commands applied since the start, behind those that the log showed again.
    log_bytes: u64,
}

struct Kept {
    index: u64,
    /// `Staging::log_bytes` before it.
    at: u64,
    /// `None`: the log has not shown it yet.
    data: Option<Bytes>,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Staged {
    pub stripes: usize,
    pub bytes: usize,
    /// About how much of the log is kept for them.
    pub held_bytes: u64,
    /// Index of the command that staged last, of those still here.
    pub newest: u64,
}

/// The inline stripes of a command.
pub(crate) fn inline_of(command: &Command) -> &[Inline] {
    match command {
        Command::Publish(p) => &p.inline,
        Command::PutObject(p) => &p.inline,
        Command::PutPart { inline, .. } | Command::Restage { inline } => inline,
        _ => &[],
    }
}

impl Staged {
    /// What it takes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.stripes * STRIPE_BYTES
    }
}

impl Staging {
    /// What the state lists; the bytes are to come.
    pub(crate) fn listed(list: Vec<(u64, StripeId)>) -> Self {
        let mut this = Self::default();
        list.into_iter().for_each(|(index, id)| this.put(id, index, None));
        this
    }

    fn put(&mut self, id: StripeId, index: u64, data: Option<Bytes>) {
        self.remove(id);
        self.bytes += data.as_ref().map_or(0, Bytes::len);
        self.order.insert((index, id));
        self.stripes.insert(id, Kept { index, at: self.log_bytes, data });
    }

    fn remove(&mut self, id: StripeId) {
        self.lost.remove(&id);
        if let Some(old) = self.stripes.remove(&id) {
            self.order.remove(&(old.index, id));
            self.bytes -= old.data.map_or(0, |d| d.len());
        }
    }

    /// A command was applied.
    pub(crate) fn applied(&mut self, index: u64, command_bytes: usize, effects: Effects) {
        for (id, data) in effects.staged {
            self.put(id, index, Some(data));
        }
        effects.freed.into_iter().for_each(|id| self.remove(id));
        self.log_bytes += log_bytes_of(command_bytes);
    }

    /// Whether bytes of this entry are waited for.
    pub(crate) fn wants(&self, index: u64) -> bool {
        let first = (index, StripeId::default());
        self.order.range(first..).next().is_some_and(|(i, _)| *i == index)
    }

    /// The log shows an applied entry again: it keeps it, wanted or not.
    pub(crate) fn shown(&mut self, command_bytes: usize) {
        self.log_bytes += log_bytes_of(command_bytes);
    }

    /// The bytes of an entry that is wanted; before it counts as shown.
    pub(crate) fn show(&mut self, index: u64, inline: &[Inline]) {
        for i in inline {
            if self.stripes.get(&i.stripe).is_some_and(|k| k.index == index) {
                self.put(i.stripe, index, Some(i.data.clone()));
            }
        }
    }

    /// Stripes whose bytes the log has not shown.
    pub(crate) fn lacking(&self) -> usize {
        self.stripes.values().filter(|k| k.data.is_none()).count()
    }

    /// Gives up those whose bytes the log has not shown; how many.
    pub(crate) fn give_up(&mut self) -> usize {
        let lacking: Vec<StripeId> = self.stripes.iter().filter(|(_, k)| k.data.is_none()).map(|(id, _)| *id).collect();
        lacking.iter().for_each(|id| self.remove(*id));
        self.lost.extend(&lacking);
        lacking.len()
    }

    pub(crate) fn is_lost(&self, id: StripeId) -> bool {
        self.lost.contains(&id)
    }

    pub(crate) fn get(&self, id: StripeId) -> Option<Bytes> {
        self.stripes.get(&id)?.data.clone()
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = Inline> {
        self.order.iter().filter_map(|(_, id)| Some(Inline { stripe: *id, data: self.get(*id)? }))
    }

    /// The oldest entry that is still needed.
    pub(crate) fn hold(&self) -> Option<u64> {
        self.order.first().map(|(index, _)| *index)
    }

    pub(crate) fn now(&self) -> Staged {
        let oldest = self.order.first().and_then(|(_, id)| self.stripes.get(id));
        Staged {
            stripes: self.stripes.len(),
            bytes: self.bytes,
            held_bytes: oldest.map_or(0, |k| self.log_bytes - k.at),
            newest: self.order.last().map_or(0, |(index, _)| *index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(counter: u64) -> StripeId {
        StripeId { incarnation: 1, group: 0, counter }
    }
    fn inline(counter: u64, text: &'static [u8]) -> Inline {
        Inline { stripe: id(counter), data: Bytes::from_static(text) }
    }

    #[test]
    fn the_oldest_needed_entry_moves_on_as_stripes_go() {
        let mut s = Staging::default();
        let staged = |i: Inline| Effects { staged: vec![(i.stripe, i.data)], ..Effects::default() };
        s.applied(5, 100, staged(inline(1, b"one")));
        s.applied(6, 9000, staged(inline(2, b"three")));
        assert_eq!(s.now(), Staged { stripes: 2, bytes: 8, held_bytes: 4096 + 12288, newest: 6 });
        // Staged again by a later entry.
        s.applied(7, 100, staged(inline(1, b"one")));
        assert_eq!(s.hold(), Some(6));
        s.applied(8, 100, Effects { freed: vec![id(2), id(1)], ..Effects::default() });
        assert_eq!((s.hold(), s.now().bytes, s.now().held_bytes), (None, 0, 0));
    }

    #[test]
    fn a_start_waits_for_just_the_bytes_that_are_listed() {
        let mut s = Staging::listed(vec![(3, id(1)), (4, id(2))]);
        assert_eq!((s.lacking(), s.hold()), (2, Some(3)));
        assert!(s.wants(3) && !s.wants(2) && !s.wants(5));
        s.show(3, &[inline(1, b"x"), inline(9, b"dead since")]);
        // An entry that was overwritten in the log names the stripe too.
        s.show(2, &[inline(2, b"other")]);
        assert_eq!((s.lacking(), s.get(id(1)).as_deref(), s.get(id(2))), (1, Some(&b"x"[..]), None));
        s.shown(4096);
        s.show(4, &[inline(2, b"y")]);
        s.shown(10);
        // A command of a block and its head take two.
        assert_eq!((s.lacking(), s.now().bytes, s.now().held_bytes), (0, 2, 8192 + 4096));
    }
}
