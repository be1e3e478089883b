//! Every provider passes the conformance suite.

use crate::rig::{Domains, Rig};
use holdfast_objstore_client::conformance::Lose;
use holdfast_objstore_client::{Config, Fake, Objects, Upkeep, conformance};
use std::sync::Arc;

#[tokio::test]
async fn the_fake_conforms() {
    conformance::check_all(|| async { Fake::new() as Arc<dyn Objects> }).await;
}

#[tokio::test]
async fn a_cluster_of_one_domain_conforms() {
    conformance::check_all(|| async { Rig::new(6, Domains::One).cluster as Arc<dyn Objects> }).await;
}

#[tokio::test]
async fn a_cluster_of_many_domains_conforms() {
    conformance::check_all(|| async { Rig::new(9, Domains::Each).cluster as Arc<dyn Objects> }).await;
}

#[tokio::test]
async fn a_cluster_without_a_cache_conforms() {
    let config = Config { cache_bytes: 0, ..Config::default() };
    conformance::check_all(|| async { Rig::with(7, Domains::Each, config.clone()).cluster as Arc<dyn Objects> }).await;
}

#[tokio::test]
async fn the_fake_conforms_to_upkeep() {
    conformance::check_upkeep(|| async {
        let fake = Fake::new();
        let same = fake.clone();
        let lose: Lose = Box::new(move |meta, shard| same.lose_shard(meta.id, shard));
        (fake as Arc<dyn Upkeep>, lose)
    })
    .await;
}

#[tokio::test]
async fn a_cluster_conforms_to_upkeep() {
    for domains in [|| Domains::One, || Domains::Each] {
        conformance::check_upkeep(|| async {
            let rig = Rig::new(6, domains());
            let cluster = rig.cluster.clone();
            let lose: Lose = Box::new(move |meta, shard| rig.lose(meta, shard));
            (cluster as Arc<dyn Upkeep>, lose)
        })
        .await;
    }
}
