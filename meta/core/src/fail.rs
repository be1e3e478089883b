//! How an operation inside `apply` ends early: with an answer for the client, or because the state cannot be trusted.

use crate::StateError;
use holdfast_objstore_proto::meta::{MetaError, MetaResult};

#[derive(Debug)]
pub(crate) enum Fail {
    /// The command's answer; nothing it wrote is kept.
    Meta(MetaError),
    /// Fatal.
    State(StateError),
}

pub(crate) type Done<T> = Result<T, Fail>;

impl From<MetaError> for Fail {
    fn from(e: MetaError) -> Self {
        Fail::Meta(e)
    }
}

impl From<StateError> for Fail {
    fn from(e: StateError) -> Self {
        Fail::State(e)
    }
}

/// Splits the two for readers, whose callers see both.
pub(crate) fn split<T>(done: Done<T>) -> Result<MetaResult<T>, StateError> {
    match done {
        Ok(v) => Ok(Ok(v)),
        Err(Fail::Meta(e)) => Ok(Err(e)),
        Err(Fail::State(e)) => Err(e),
    }
}

pub(crate) fn invalid<T>(why: impl Into<String>) -> Done<T> {
    Err(Fail::Meta(MetaError::Invalid(why.into())))
}

pub(crate) fn refused<T>(why: impl Into<String>) -> Done<T> {
    Err(Fail::Meta(MetaError::PublishRefused(why.into())))
}

/// The state contradicts itself.
pub(crate) fn broken(why: impl Into<String>) -> StateError {
    StateError(why.into())
}
