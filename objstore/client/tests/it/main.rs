//! The cluster over OSDs in memory, and the conformance suite over every provider.

mod cache;
mod devices;
mod flush;
mod loss;
mod mem_osd;
mod model;
mod providers;
mod read;
mod rebuild;
mod rig;
mod watched;
mod write;
