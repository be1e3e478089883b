//! The S3 door on a thread and ring of its own.

use super::data::Running;
use crate::credentials::{Credentials, REGION};
use anyhow::Context;
use holdfast_meta_client::MetaService;
use holdfast_objstore_base::budget::Budget;
use holdfast_objstore_base::real;
use holdfast_objstore_proto::meta::Owner;
use holdfast_objstore_s3::{Config, Door, Keys, Metrics, bind};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Open connections, at most.
const CONNECTIONS_MAX: usize = 4096;

pub struct Gateway {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

/// Starts serving; returns when requests are answered.
pub async fn start(socket: TcpListener, keys: Credentials, running: &Arc<Running>) -> anyhow::Result<Gateway> {
    let metrics = Metrics::default();
    metrics.register(&mut running.registry.lock());
    let config = Config {
        region: REGION.into(),
        code: running.layout.code,
        // SAFETY: these calls only read the process's ids.
        owner: unsafe { Owner { uid: libc::geteuid(), gid: libc::getegid() } },
        connections_max: CONNECTIONS_MAX,
    };
    let budget = Budget::new(running.shares.bodies);
    let (service, objects) = (running.service.clone() as Arc<dyn MetaService>, running.objects.clone());
    let (stop, stopped) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    let thread = real::runtime::spawn_thread("s3", move || async move {
        let opened = async {
            let server = bind(socket)?;
            let address = server.address()?;
            let door = Door::open(service, objects, budget, config, metrics).await?;
            anyhow::Ok((server, address, door))
        };
        match opened.await {
            Err(e) => drop(tell.send(Err(e))),
            Ok((server, address, door)) => {
                let keys = Keys { access_key: keys.access_key, secret_key: keys.secret_key };
                if tell.send(Ok(address)).is_ok() {
                    server.serve(door, keys, async { drop(stopped.await) }).await;
                }
            }
        }
    })?;
    let address = told.await.context("the S3 thread ended early")??;
    Ok(Gateway { address, stop, thread })
}

impl Gateway {
    /// Refuses new requests, lets those in flight end.
    pub async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        tokio::task::spawn_blocking(move || self.thread.join()).await?.map_err(|_| anyhow::anyhow!("the S3 thread panicked"))??;
        Ok(())
    }
}
