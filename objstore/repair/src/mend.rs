//! Putting one stripe right: look at every shard, make what lacks, commit, give back what is no longer named.
//!
//! What always holds: the caller has the stripe in hand. What is written is committed by compare-and-swap against the record that was looked
//! at; when that fails, what was written is given back and the stripe is looked at anew. What the old record named is given back only
//! after the new one is durable, and after a grace for readers of the old one.

use crate::queue::{Job, Stuck};
use crate::repair::Shared;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_client::{Error, Rebuild};
use holdfast_objstore_proto::shard::ShardKey;
use holdfast_objstore_proto::stripe::COPIES_BYTES_MAX;
use holdfast_objstore_proto::{Code, OsdId, StripeMeta};
use std::sync::Arc;

/// Stripes that cannot be repaired are logged so many times; `status` counts them.
const LOST_LOGGED: u64 = 100;

/// What became of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It lacked nothing, or nothing refers to it any more.
    Clean,
    Mended,
    Widened,
    /// Its record changed meanwhile: look again.
    Again,
    Stuck(Stuck),
}

/// Shards of a record that another record does not name where they are. (A place that both name is left alone whatever lies there.)
pub(crate) fn unnamed(of: &StripeMeta, by: Option<&StripeMeta>) -> Vec<(OsdId, ShardKey)> {
    let named = |shard: usize, osd: OsdId| by.is_some_and(|b| b.osds.get(shard) == Some(&osd));
    let shards = of.osds.iter().enumerate().filter(|(shard, osd)| !named(*shard, **osd));
    shards.map(|(shard, osd)| (*osd, ShardKey { stripe: of.id, shard: shard as u8 })).collect()
}

/// The code a stripe of `len` bytes has in a bucket of `code`.
pub(crate) fn code_of(code: Code, len: u32) -> Code {
    if len <= COPIES_BYTES_MAX { code.copies() } else { code }
}

/// Whether `to` keeps more than `from` does, or the same in less space.
pub(crate) fn improves(to: Code, from: Code) -> bool {
    to.m >= from.m && (to.m > from.m || to.k > from.k)
}

impl Shared {
    pub(crate) async fn mend(&self, job: &mut Job) -> Outcome {
        let stripe = match self.records.stripe(job.id) {
            Ok(Some(stripe)) if !stripe.osds.is_empty() => stripe,
            Ok(_) => return Outcome::Clean,
            Err(why) => return self.failed(job, &why),
        };
        let seen = self.objects.examine(&stripe, job.suspect).await;
        job.found(&stripe, seen.good);
        let mut narrow = false;
        if let Some(code) = self.wider(&stripe, seen.bucket) {
            match self.widen(&stripe, code).await {
                Outcome::Stuck(Stuck::Waiting) => narrow = true,
                outcome => return outcome,
            }
        }
        let standing = self.objects.standing();
        // One that is not there any more was removed between the writing of the stripe and its publishing.
        let leaving = |osd: &OsdId| standing.iter().find(|s| s.osd == *osd).is_none_or(|s| s.leaving);
        let leaving = stripe.osds.iter().enumerate().filter(|(_, osd)| leaving(osd)).fold(0, |bits, (i, _)| bits | 1 << i);
        // A shard whose OSD is out of service for now comes back with it; one that will not is made elsewhere.
        let shards = seen.absent | seen.corrupt | (seen.down | seen.good) & leaving;
        let arrived = stripe.missing & seen.good;
        if shards == 0 && arrived == 0 {
            return if seen.down == 0 && !narrow { Outcome::Clean } else { Outcome::Stuck(Stuck::Waiting) };
        }
        let mut made = stripe.clone();
        if shards != 0 {
            let rebuild = Rebuild { stripe: stripe.clone(), shards, readable: seen.good & leaving, task: self.task() };
            made = match self.objects.rebuild(rebuild).await {
                Ok(made) => made,
                Err(Error::Lost { why, .. }) => return self.lost(job, &why),
                Err(e) => return self.failed(job, &e.to_string()),
            };
        }
        let mut new = (*made).clone();
        new.missing &= !seen.good;
        let kept = (0..new.osds.len()).filter(|i| shards >> i & 1 == 1 && new.osds[*i] == stripe.osds[*i]).fold(0, |bits, i| bits | 1 << i);
        match self.commit(&stripe, &Arc::new(new)).await {
            // One that found no home is tried again when there is one.
            Outcome::Mended if narrow || kept & (leaving | seen.down) != 0 => Outcome::Stuck(Stuck::Waiting),
            outcome => outcome,
        }
    }

    /// The wider code that the stripe should have and can have now, if it was written narrower.
    fn wider(&self, stripe: &StripeMeta, bucket: u32) -> Option<Code> {
        let code = self.codes.lock().iter().find(|(b, _)| *b == bucket).map(|(_, code)| *code)?;
        let fits = self.objects.fitting(code, stripe.len)?;
        improves(fits, stripe.code).then_some(fits)
    }

    async fn widen(&self, stripe: &Arc<StripeMeta>, code: Code) -> Outcome {
        match self.objects.reencode(stripe.clone(), code, self.task()).await {
            Ok(new) => match self.commit(stripe, &new).await {
                Outcome::Mended => Outcome::Widened,
                outcome => outcome,
            },
            // Its shards are looked at one by one then.
            Err(e) => {
                tracing::debug!(stripe = %stripe.id, "it stays in {}: {e}", stripe.code);
                Outcome::Stuck(Stuck::Waiting)
            }
        }
    }

    async fn commit(&self, old: &Arc<StripeMeta>, new: &Arc<StripeMeta>) -> Outcome {
        match self.records.swap(old.clone(), new.clone()).await {
            Ok(true) => {
                self.bury(unnamed(old, Some(new)));
                Outcome::Mended
            }
            // Either way what is named now is asked, not assumed: a swap that failed half way may have happened.
            answer => {
                failpoint::reached("repair.swap_lost");
                self.metrics.swaps_lost.inc();
                if let Err(why) = answer {
                    failpoint::reached("repair.swap_failed");
                    tracing::warn!(stripe = %old.id, "a repair was not committed: {why}");
                }
                match self.records.stripe(old.id) {
                    Ok(now) => {
                        self.bury(unnamed(new, now.as_deref()));
                        Outcome::Again
                    }
                    Err(_) => Outcome::Stuck(Stuck::Waiting),
                }
            }
        }
    }

    fn failed(&self, job: &Job, why: &str) -> Outcome {
        failpoint::reached("repair.failed");
        self.metrics.failures.inc();
        tracing::debug!(stripe = %job.id, "it waits for repair: {why}");
        Outcome::Stuck(Stuck::Waiting)
    }

    fn lost(&self, job: &Job, why: &str) -> Outcome {
        failpoint::reached("repair.lost");
        // It is tried again and again; the log need not hear of it each time.
        if self.metrics.failures.inc() < LOST_LOGGED {
            tracing::error!(stripe = %job.id, "it cannot be repaired: {why}");
        }
        Outcome::Stuck(Stuck::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_improves_on_one_that_keeps_less_or_takes_more() {
        let c = |s: &str| s.parse::<Code>().unwrap();
        for (to, from, want) in [
            ("4+2", "2+2", true),
            ("1+2", "1+1", true),
            ("4+2", "1+1", true),
            ("2+2", "4+2", false),
            ("4+2", "4+2", false),
            ("4+1", "2+2", false),
        ] {
            assert_eq!(improves(c(to), c(from)), want, "{from} to {to}");
        }
        assert_eq!((code_of(c("4+2"), 100), code_of(c("4+2"), 1 << 20)), (c("1+2"), c("4+2")));
    }
}
