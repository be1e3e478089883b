//! Tests of the metadata log: one suite for every implementation, and what only a durable one can show.

mod conformance;
mod crash;
mod failure;
mod fleet;
mod hold;
mod hung;
mod machine;
mod mirrors;
mod purge;
