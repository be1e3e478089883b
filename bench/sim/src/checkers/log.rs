//! What the metadata log has acknowledged is never taken back: no start goes on from a copy that missed something. And while
//! devices are there for them, there are as many copies as wanted.

use crate::cluster::Running;
use crate::history::Life;

/// `last`: the newest command the last start found.
pub fn check(lives: &[Life], last: u64) -> Result<(), String> {
    let begins = lives.iter().skip(1).map(|l| l.log.0).chain([last]);
    for (n, (life, begin)) in lives.iter().zip(begins).enumerate() {
        if begin < life.log.1 {
            return Err(format!(
                "life {n} had applied commands up to {}, and after {:?} the start knew them up to {begin}",
                life.log.1, life.end
            ));
        }
    }
    Ok(())
}

/// What is missing of the copies that should be in force, with so many devices to keep them on.
pub fn lacking(running: &Running, copies: usize, devices: usize) -> Option<String> {
    let status = running.service.status();
    let have = status.mirrors.iter().filter(|m| m.role == "copy").count();
    (have < copies.min(devices)).then(|| format!("the log has {have} copies of {copies} on {devices} devices: {:?}", status.mirrors))
}
