//! Tests of the state machine as a whole: command by command, against a model, and of what it stores.

mod data;
mod formats;
mod listing;
mod model;
mod namespace;
mod objects;
mod packs;
pub(crate) mod rng;
mod scale;
mod sessions;
mod touch;
mod uploads;
pub(crate) mod world;
mod worn;
