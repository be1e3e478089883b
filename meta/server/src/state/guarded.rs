//! redb behind a guard: it panics on a file whose bytes are not what it wrote, and a damaged file must be an error here.
//!
//! What always holds: a panic inside a call, or in dropping what redb gave, ends there.
//! What it leaves out: going on after it; the caller makes every such error final.

use holdfast_meta_core::StateError;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `call`; a panic becomes an error that says the state is damaged.
pub(super) fn guard<T>(call: impl FnOnce() -> Result<T, StateError>) -> Result<T, StateError> {
    // Nothing the call left half done is looked at again: the state has failed.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<&str>().map(|s| s.to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
        Err(StateError(format!("the state's file is damaged ({})", why.unwrap_or_else(|| "no reason given".into()))))
    })
}

/// Something of redb's that is dropped under the guard.
pub(super) struct Guarded<T>(ManuallyDrop<T>);

impl<T> Guarded<T> {
    pub(super) fn new(inner: T) -> Self {
        Self(ManuallyDrop::new(inner))
    }

    /// Out of the guard again, for a call that consumes it.
    pub(super) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so nothing takes the value again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Guarded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes the value, and it runs once.
        let inner = unsafe { ManuallyDrop::take(&mut self.0) };
        if catch_unwind(AssertUnwindSafe(|| drop(inner))).is_err() {
            tracing::error!("the state's file could not be closed in order");
        }
    }
}
