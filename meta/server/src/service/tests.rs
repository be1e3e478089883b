//! Sessions against each other, over the in-memory log.

mod coherence;
mod life;
mod restart;
mod rig;
mod work;
