//! Repair of a real object cluster over OSDs on simulated disks, with the records in a map.

mod faults;
mod mending;
mod rig;
mod scrubbing;
