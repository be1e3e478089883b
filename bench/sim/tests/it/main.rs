//! The simulator's runs in CI, and the tests of the simulator itself.

mod planted;
mod replay;
mod seeds;
