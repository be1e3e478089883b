//! Tests of the doors: one suite that both disks pass, and what only one of them can show.

mod conformance;
mod devices;
mod real;
mod sim;
