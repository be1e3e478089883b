//! What a command touched at the moment it was applied, for those who ask before.
//!
//! What always holds: a watch that is dropped leaves nothing behind; the state changes in the same way, watched or not.
//! What it leaves out: commands of other members' clients, which nobody here watches.

use super::{Layers, State};
use holdfast_meta_core::{StateError, Touch, touches};
use holdfast_objstore_proto::SessionId;
use holdfast_objstore_proto::meta::Request;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The watches of this process, by session and number.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<(SessionId, u64), Vec<Touch>>>);

/// One command that is watched.
pub(crate) struct Watch<'a> {
    watches: &'a Watches,
    request: (SessionId, u64),
}

impl Watches {
    /// Notes what a command is about to touch, if somebody watches it.
    pub(super) fn look(&self, layers: &Layers, request: &Request) -> Result<(), StateError> {
        let watched = |w: &Self| w.0.lock().contains_key(&(request.session, request.seq));
        if watched(self) {
            let touched = touches(layers, &request.command)?;
            if let Some(slot) = self.0.lock().get_mut(&(request.session, request.seq)) {
                *slot = touched;
            }
        }
        Ok(())
    }
}

impl State {
    /// Watches a request that is about to be proposed.
    pub(crate) fn watch(&self, session: SessionId, seq: u64) -> Watch<'_> {
        self.watches.0.lock().insert((session, seq), Vec::new());
        Watch { watches: &self.watches, request: (session, seq) }
    }
}

impl Watch<'_> {
    /// What it touched; nothing when it was not applied.
    pub(crate) fn touched(self) -> Vec<Touch> {
        self.watches.0.lock().get_mut(&self.request).map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.watches.0.lock().remove(&self.request);
    }
}
