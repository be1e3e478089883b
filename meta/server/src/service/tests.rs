//! Sessions against each other, over the in-memory log.

mod coherence;
mod conformance;
mod doubt;
mod dumps;
mod images;
mod life;
mod machine;
mod packs;
mod restart;
mod rig;
mod snapshots;
mod stress;
mod work;
