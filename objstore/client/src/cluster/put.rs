//! One round of a write: sends every shard to its home and says which are there.
//!
//! What always holds: a shard that a home refused for want of room or service is offered to a spare before it counts as missing.
//! In one flush domain the round waits for every answer. Over several, once the hedge has passed, the quorum is enough; the
//! rest goes on in the background, bounded per OSD.

use super::encoded::Encoded;
use super::plan::Plan;
use super::slot::{Owed, Slot};
use super::{Cluster, write_quorum};
use crate::StripeWrite;
use futures::stream::{FuturesUnordered, StreamExt};
use holdfast_objstore_base::exec;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_proto::shard::{self, ShardHead, ShardKey, ShardPut};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What became of a round.
pub(crate) struct Round {
    /// Bit i: shard i is acknowledged by `homes[i]`.
    pub acked: u32,
    pub homes: SmallVec<[Arc<Slot>; 6]>,
    pub refused: SmallVec<[(Arc<Slot>, u8, shard::Error); 2]>,
    spares: SmallVec<[Arc<Slot>; 6]>,
}

impl Round {
    /// Takes an answer; the slot to try next for the same shard, if any.
    fn answer(&mut self, shard: u8, result: shard::Result<()>) -> Option<Arc<Slot>> {
        let at = shard as usize;
        let Err(error) = result else {
            self.acked |= 1 << at;
            return None;
        };
        let elsewhere = matches!(error, shard::Error::Full { .. } | shard::Error::Down { .. });
        self.refused.push((self.homes[at].clone(), shard, error));
        let spare = elsewhere.then(|| self.spares.pop()).flatten()?;
        self.homes[at] = spare.clone();
        Some(spare)
    }

    pub fn fenced(&self) -> bool {
        self.refused.iter().any(|(_, _, e)| matches!(e, shard::Error::Fenced { .. }))
    }
}

type Answer = (u8, shard::Result<()>);

async fn put_on(slot: Arc<Slot>, put: ShardPut) -> Answer {
    let (ShardKey { stripe, shard }, digest) = (put.head.key, put.head.digest);
    let result = slot.service.put(put).await;
    if result.is_ok() {
        slot.acknowledged(stripe, digest);
    }
    (shard, result)
}

impl Cluster {
    /// Puts all shards of `encoded` as planned.
    pub(crate) async fn put_all(&self, write: &StripeWrite, encoded: &Encoded, plan: Plan) -> Round {
        let mut round = Round { acked: 0, homes: plan.homes, refused: SmallVec::new(), spares: plan.spares };
        let one_domain = self.one_domain() || round.homes.iter().all(|s| s.domain == round.homes[0].domain);
        if one_domain && (encoded.code.n() == 1 || exec::in_hand() <= 1) {
            // The disk door serves a lone request in place: a set of futures would only cost.
            for shard in 0..encoded.code.n() as u8 {
                let mut slot = Some(round.homes[shard as usize].clone());
                while let Some(to) = slot {
                    let (_, result) = put_on(to, self.shard_put(write, encoded, shard)).await;
                    slot = self.answer(&mut round, shard, result);
                }
                if round.fenced() {
                    break;
                }
            }
            return round;
        }
        let puts: FuturesUnordered<_> = (0..encoded.code.n() as u8)
            .map(|shard| put_on(round.homes[shard as usize].clone(), self.shard_put(write, encoded, shard)))
            .collect();
        if one_domain {
            Box::pin(self.all_answers(write, encoded, &mut round, puts)).await;
        } else {
            Box::pin(self.quorum_of_answers(write, encoded, &mut round, puts)).await;
        }
        round
    }

    async fn all_answers(
        &self,
        write: &StripeWrite,
        encoded: &Encoded,
        round: &mut Round,
        mut puts: FuturesUnordered<impl Future<Output = Answer> + Send + 'static>,
    ) {
        let mut again = FuturesUnordered::new();
        while let Some((shard, result)) = next_of(&mut puts, &mut again).await {
            if let Some(spare) = self.answer(round, shard, result) {
                again.push(put_on(spare, self.shard_put(write, encoded, shard)));
            }
        }
    }

    async fn quorum_of_answers(
        &self,
        write: &StripeWrite,
        encoded: &Encoded,
        round: &mut Round,
        mut puts: FuturesUnordered<impl Future<Output = Answer> + Send + 'static>,
    ) {
        let quorum = write_quorum(encoded.code);
        let begun = Instant::now();
        let hedge = tokio::time::sleep(self.hedge(&self.write_times));
        tokio::pin!(hedge);
        let mut again = FuturesUnordered::new();
        loop {
            let enough = round.acked.count_ones() as usize >= quorum;
            tokio::select! {
                biased;
                answer = next_of(&mut puts, &mut again) => match answer {
                    None => {
                        self.write_times.record(begun.elapsed());
                        return;
                    }
                    Some((shard, result)) => if let Some(spare) = self.answer(round, shard, result) {
                        again.push(put_on(spare, self.shard_put(write, encoded, shard)));
                    },
                },
                () = &mut hedge, if enough => break,
            }
            if round.fenced() {
                return;
            }
        }
        failpoint::reached("client.write_hedged");
        self.metrics.write_hedges.inc();
        // A shard that is neither acknowledged nor refused for good by its present home still runs.
        let owed: Option<SmallVec<[Owed; 2]>> = round
            .homes
            .iter()
            .enumerate()
            .filter(|(i, home)| {
                round.acked >> i & 1 == 0 && !round.refused.iter().any(|(s, shard, _)| *shard as usize == *i && s.osd == home.osd)
            })
            .map(|(_, home)| home.owe(self.config.owed_max))
            .collect();
        // Past the limit they are let go: an OSD finishes what was handed to it, nobody hears of it.
        let Some(owed) = owed else { return };
        let (late, times, id, digest) = (self.late.clone(), self.write_times.clone(), write.id, encoded.digest);
        tokio::spawn(async move {
            while let Some((shard, result)) = next_of(&mut puts, &mut again).await {
                if result.is_ok() {
                    failpoint::reached("client.late_shard");
                    late.arrived(id, digest, shard as usize);
                }
            }
            times.record(begun.elapsed());
            drop(owed);
        });
    }

    fn answer(&self, round: &mut Round, shard: u8, result: shard::Result<()>) -> Option<Arc<Slot>> {
        let spare = round.answer(shard, result)?;
        failpoint::reached("client.put_replaced");
        self.metrics.replaced_puts.inc();
        Some(spare)
    }

    pub(crate) fn shard_put(&self, write: &StripeWrite, encoded: &Encoded, shard: u8) -> ShardPut {
        self.metrics.puts.inc();
        let (data, crcs) = &encoded.shards[shard as usize];
        let head = ShardHead {
            key: ShardKey { stripe: write.id, shard },
            codec: encoded.codec,
            code: encoded.code,
            stripe_len: encoded.len,
            digest: encoded.digest,
            session: write.session,
            epoch: write.epoch,
            hint: write.hint,
        };
        ShardPut { head, data: data.clone(), crcs: crcs.clone(), background: write.background }
    }

    /// How long to wait for the slowest before the quorum is enough.
    pub(crate) fn hedge(&self, times: &super::recent::Recent) -> Duration {
        // Until enough is known, generous: a shard left out costs a repair.
        let usual = times.p99().unwrap_or(self.config.hedge_max / 4);
        usual.clamp(self.config.hedge_min, self.config.hedge_max)
    }
}

/// The next answer of either set; `None` when both are empty.
async fn next_of<A, B, T>(first: &mut FuturesUnordered<A>, second: &mut FuturesUnordered<B>) -> Option<T>
where
    A: Future<Output = T>,
    B: Future<Output = T>,
{
    match (first.is_empty(), second.is_empty()) {
        (true, true) => None,
        (false, true) => first.next().await,
        (true, false) => second.next().await,
        (false, false) => tokio::select! {
            biased;
            answer = first.next() => answer,
            answer = second.next() => answer,
        },
    }
}
