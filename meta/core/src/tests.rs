
//! Tests of the state machine as a whole.

pub(crate) mod rng;
