//! Many takers of one pool.

use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

const PER_GRANT: u64 = 100;

/// A service that takes its time and grants one range after another.
async fn grant(asked: &AtomicU64) -> MetaResult<Option<InodeRange>> {
    let nth = asked.fetch_add(1, Ordering::Relaxed);
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    Ok(Some(InodeRange { first: InodeId(nth * PER_GRANT), count: PER_GRANT }))
}

#[test]
fn many_who_find_the_pool_empty_share_one_grant_and_no_id_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (pool, asked) = (Pool::<Option<InodeRange>>::default(), AtomicU64::new(0));
    let takers = 4 * PER_GRANT;
    let all = futures::future::join_all((0..takers).map(|_| pool.take(grant(&asked))));
    let ids: BTreeSet<u64> = runtime.block_on(all).into_iter().map(|id| id.expect("granted").0).collect();
    assert_eq!(ids, (0..takers).collect());
    assert_eq!(asked.load(Ordering::Relaxed), takers / PER_GRANT);
}

#[test]
fn a_refused_grant_is_the_answer_of_who_asked_and_the_next_asks_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (pool, asked) = (Pool::<Option<InodeRange>>::default(), AtomicU64::new(0));
    let refused = || async { Err(MetaError::Retry("not now".into())) };
    assert!(matches!(runtime.block_on(pool.take(refused())), Err(MetaError::Retry(_))));
    assert_eq!(runtime.block_on(pool.take(grant(&asked))), Ok(InodeId(0)));
    assert_eq!(runtime.block_on(pool.take(refused())), Ok(InodeId(1)));
}
