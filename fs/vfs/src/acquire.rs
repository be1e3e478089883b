//! Getting a grant, or learning that there is none.
//!
//! What always holds: a grant is installed only when its session is in force and no newer recall was seen; an operation under recall asks nobody.

use crate::inode::{Inode, State};
use crate::lease::{Granted, Standing};
use crate::recall::Granting;
use crate::session::Session;
use crate::types::Result;
use crate::vfs::Vfs;
use holdfast_meta_client::{Grant, Use};
use holdfast_objstore_proto::meta::{Attr, Kind};

/// How an operation on an inode goes about it.
pub(crate) enum Mode {
    /// Under the grant (or its recall): from what is held.
    Held,
    /// Through to the service; with its attributes of a moment ago.
    Through(Attr),
}

impl Vfs {
    /// Around every call whose answer may carry a grant, so that recalls overtaking the answer are remembered.
    pub(crate) fn granting(&self) -> Granting<'_> {
        Granting::begin(&self.recent)
    }

    /// Takes note of a grant in an answer; true when it is held now.
    pub(crate) fn granted(&self, s: &Session, inode: &Inode, attr: &Attr, grant: Grant, using: Use) -> bool {
        let mut st = inode.state.lock();
        if !self.is_current(s) {
            return false;
        }
        if let Some(stamp) = self.recent.lock().seen(inode.ino) {
            st.lease.seen_recall(stamp);
        }
        match st.lease.grant(grant, using) {
            Granted::New => {
                self.bury(st.discard());
                self.absorb(inode, &mut st, attr);
                true
            }
            Granted::Already => {
                self.absorb(inode, &mut st, attr);
                true
            }
            Granted::No => false,
        }
    }

    /// Only files keep attributes here: those of everything else are asked for each time the kernel asks.
    fn absorb(&self, inode: &Inode, st: &mut State, attr: &Attr) {
        if inode.kind == Kind::File {
            st.absorb(attr);
        }
    }

    /// Attributes that an answer carried outside a grant's own reply.
    pub(crate) fn learned(&self, s: &Session, inode: &Inode, attr: &Attr) {
        let mut st = inode.state.lock();
        if self.is_current(s) && st.lease.is_held() {
            self.absorb(inode, &mut st, attr);
        }
    }

    /// Under the grant if it can be had.
    pub(crate) async fn hold(&self, inode: &Inode, using: Use) -> Result<Mode> {
        if inode.state.lock().lease.standing(using) != Standing::No {
            return Ok(Mode::Held);
        }
        let s = self.session().await?;
        let _granting = self.granting();
        let (attr, grant) = s.meta.acquire(inode.ino, using).await.map_err(|e| self.meta_error(&s, e))?;
        if self.granted(&s, inode, &attr, grant, using) { Ok(Mode::Held) } else { Ok(Mode::Through(attr)) }
    }
}
