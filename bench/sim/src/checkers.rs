//! One file per promise: each judges what the clients of a run were told against what they may be told.
//!
//! What always holds: a checker looks at the history alone, knows nothing of how the cluster works, and says what it expected.
//! What a client was not certainly told counts in the cluster's favour.

pub mod atomicity;
pub mod coherence;
pub mod durability;
pub mod fences;
mod files;
pub mod liveness;
pub mod log;
pub mod namespace;
pub mod right_bytes;
pub mod space;

use crate::history::{Audit, Life};

/// The verdict: the promise that is broken, and how.
pub type Verdict = Result<(), (&'static str, String)>;

/// Judges all lives of a run, the audit after the last, and the newest command that was known then.
pub fn judge(lives: &[Life], last: &Audit, applied: u64) -> Verdict {
    log::check(lives, applied).map_err(|why| ("log", why))?;
    let after = |n: usize| lives.get(n + 1).map_or(last, |l| &l.begin);
    namespace::check(lives, last).map_err(|why| ("namespace", why))?;
    for (n, life) in lives.iter().enumerate() {
        let told = |why: String| format!("life {n}: {why}");
        right_bytes::check(life, after(n)).map_err(|why| ("right bytes", told(why)))?;
        coherence::check(life).map_err(|why| ("coherence", told(why)))?;
        durability::check(life, after(n)).map_err(|why| ("durability", told(why)))?;
        atomicity::check(life, after(n)).map_err(|why| ("atomicity", told(why)))?;
    }
    Ok(())
}
