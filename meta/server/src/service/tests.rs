//! Sessions against each other, over the in-memory log.

mod coherence;
mod conformance;
mod images;
mod life;
mod machine;
mod packs;
mod restart;
mod rig;
mod stress;
mod work;
