//! Every provider passes the conformance suite.

use crate::rig::{Domains, Rig};
use holdfast_objstore_client::{Config, Fake, Objects, conformance};
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
