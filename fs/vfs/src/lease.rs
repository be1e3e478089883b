//! The state of one inode's grant on the holder's side, as a small table without I/O.
//!
//! What always holds: stamps decide. A grant whose stamp is not above the newest recall seen grants nothing; a recall of an older stamp than the
//! one held takes nothing.
//! What it leaves out: what a recall has to wait for (recall), and asking for grants (acquire).

use holdfast_meta_client::{Grant, Use};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    stamp: u64,
    write: bool,
}

#[derive(Debug, Default)]
pub struct Lease {
    held: Option<Held>,
    /// The recall under way.
    recalling: Option<u64>,
    /// The newest stamp taken away.
    recalled: u64,
}

/// What an operation may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Cache, buffer.
    Held,
    /// A recall is under way: serve from what is held, without asking anyone, and let the kernel keep nothing.
    Recalling,
    /// Ask.
    No,
}

/// What came of a grant.
#[derive(Debug, PartialEq, Eq)]
pub enum Granted {
    /// It was not held before: what the reply says is the truth.
    New,
    /// It was held: what this side has is newer.
    Already,
    No,
}

impl Lease {
    pub fn standing(&self, using: Use) -> Standing {
        match (self.held, self.recalling) {
            (Some(_), Some(_)) => Standing::Recalling,
            (Some(h), None) if h.write || using == Use::Read => Standing::Held,
            _ => Standing::No,
        }
    }

    /// Whether anything is held, under recall or not.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a write may stay here unpublished: others know that a hold for writing hides something, and look past one for reading.
    pub fn may_buffer(&self) -> bool {
        self.held.is_some_and(|h| h.write)
    }

    /// A hold for reading is being taken back: what is written now is published before the reply, without asking for anything.
    pub fn writes_through(&self) -> bool {
        self.recalling.is_some() && self.held.is_some_and(|h| !h.write)
    }

    /// Whether the kernel may keep what it is told.
    pub fn may_cache(&self) -> bool {
        self.held.is_some() && self.recalling.is_none()
    }

    /// Whether the recall of this stamp is still under way.
    pub fn is_recalling(&self, stamp: u64) -> bool {
        self.recalling.is_some_and(|r| r >= stamp)
    }

    pub fn grant(&mut self, grant: Grant, using: Use) -> Granted {
        let write = using == Use::Write;
        match (grant, &mut self.held) {
            (Grant::Excl { stamp }, held) if stamp <= self.recalled => match held {
                Some(h) => {
                    // The very grant that is held, although recalls of others were noted above it.
                    h.write |= write && h.stamp == stamp;
                    Granted::Already
                }
                None => Granted::No,
            },
            (Grant::Excl { stamp }, Some(h)) => {
                h.stamp = h.stamp.max(stamp);
                h.write |= write;
                Granted::Already
            }
            (Grant::Excl { stamp }, None) => {
                self.held = Some(Held { stamp, write });
                Granted::New
            }
            // The reply is older than the grant, or the service has not heard of our release: what is held is decided by recalls alone.
            (Grant::Through, Some(_)) => Granted::Already,
            (Grant::Through, None) => Granted::No,
        }
    }

    /// Begins a recall; false when it takes nothing that is held.
    pub fn recall(&mut self, stamp: u64) -> bool {
        match self.held {
            Some(h) if h.stamp <= stamp => {
                self.recalling = Some(self.recalling.unwrap_or(0).max(stamp));
                true
            }
            _ => {
                self.recalled = self.recalled.max(stamp);
                false
            }
        }
    }

    /// The recall is done: nothing is held any more.
    pub fn yielded(&mut self) {
        if let Some(stamp) = self.recalling.take() {
            self.recalled = self.recalled.max(stamp);
            self.held = None;
        }
    }

    /// Gives the grant back of our own accord; answers its stamp if there was one.
    pub fn release(&mut self) -> Option<u64> {
        let h = self.held.take()?;
        self.recalled = self.recalled.max(h.stamp);
        Some(h.stamp)
    }

    /// A recall seen before the inode was in the table.
    pub fn seen_recall(&mut self, stamp: u64) {
        self.recalled = self.recalled.max(stamp);
    }

    /// A new session: stamps begin anew.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excl(stamp: u64) -> Grant {
        Grant::Excl { stamp }
    }

    #[test]
    fn a_grant_not_above_the_newest_recall_grants_nothing() {
        let mut l = Lease::default();
        assert!(!l.recall(5));
        assert_eq!(l.grant(excl(5), Use::Read), Granted::No);
        assert_eq!(l.grant(excl(6), Use::Read), Granted::New);
        assert_eq!(l.standing(Use::Read), Standing::Held);
        assert_eq!(l.standing(Use::Write), Standing::No);
        assert!(!l.may_buffer() && !l.writes_through());
        assert_eq!(l.grant(excl(6), Use::Write), Granted::Already);
        assert_eq!(l.standing(Use::Write), Standing::Held);
        assert!(!l.recall(4), "an older recall takes nothing");
        assert!(l.recall(6));
        assert_eq!(l.standing(Use::Write), Standing::Recalling);
        assert!(!l.may_cache());
        l.yielded();
        assert_eq!((l.standing(Use::Read), l.grant(excl(6), Use::Read)), (Standing::No, Granted::No));
    }

    #[test]
    fn under_the_recall_of_a_hold_for_reading_nothing_is_buffered() {
        let mut l = Lease::default();
        l.grant(excl(3), Use::Read);
        assert!(l.recall(3));
        assert_eq!(l.grant(Grant::Through, Use::Write), Granted::Already);
        assert!(!l.may_buffer() && l.writes_through());
        // The answer to an upgrade that the service made before it recalled.
        l.grant(excl(3), Use::Write);
        assert!(l.may_buffer() && !l.writes_through());
    }

    #[test]
    fn a_grant_that_is_held_can_be_upgraded_whatever_recalls_were_noted() {
        let mut l = Lease::default();
        l.grant(excl(3), Use::Read);
        l.seen_recall(9);
        assert_eq!(l.grant(excl(3), Use::Write), Granted::Already);
        assert!(l.may_buffer());
    }

    #[test]
    fn a_released_grant_cannot_come_back_with_a_late_reply() {
        let mut l = Lease::default();
        l.grant(excl(3), Use::Write);
        assert_eq!(l.release(), Some(3));
        assert_eq!(l.grant(excl(3), Use::Write), Granted::No);
        assert_eq!(l.grant(Grant::Through, Use::Write), Granted::No);
    }
}
