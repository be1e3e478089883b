//! Sessions against each other, over the in-memory log.

mod coherence;
mod life;
mod rig;
mod work;
