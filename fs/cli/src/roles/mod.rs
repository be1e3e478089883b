//! The only code that wires components together: which thread runs what, and in which order things start and end.

pub mod control;
pub mod data;
pub mod debt;
pub mod format;
pub mod gateway;
pub mod images;
mod kernel;
pub mod mirrors;
pub mod osds;
pub mod packs;
pub mod reconcile;
pub mod reports;
mod room;
pub mod snapshots;
pub mod storage;
mod upkeep;
