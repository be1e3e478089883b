//! Bodies on their way out: the budget, slow clients, files that change while they are read.

use super::*;
use crate::deliver::deliver;

#[tokio::test(start_paused = true)]
async fn a_file_cut_short_while_it_is_sent_ends_with_an_error() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["s3.body_failed"]);
    let rig = Rig::new(64 * MIB).await;
    let ino = rig.put("key", pieces(16 * MIB)).await;
    let mut body = deliver(&rig.door, &rig.session, ino, 0..16 * MIB, Charging::Here).await.unwrap();
    let first = body.next().await.unwrap().unwrap();
    assert!(!first.is_empty() && first[0] == 1);

    let attr = rig.session.meta.getattr(ino).await.unwrap().0;
    let cut = Command::Truncate { ino, number: attr.number + 1, size: MIB, mtime: attr.mtime };
    rig.other().await.submit(cut).await.unwrap();
    let rest = timeout(SOON, collect(body)).await.unwrap();
    assert!(rest.is_err(), "zeroes that were never in the file: {}", rest.unwrap().len());

    // A hole that the file has is zeroes.
    let attr = rig.session.meta.getattr(ino).await.unwrap().0;
    let grown = Command::Truncate { ino, number: attr.number + 1, size: 3 * MIB, mtime: attr.mtime };
    rig.other().await.submit(grown).await.unwrap();
    let content = rig.content(ino, 3 * MIB).await.unwrap();
    assert!(content[..MIB as usize].iter().all(|b| *b != 0) && content[MIB as usize..].iter().all(|b| *b == 0));
}

#[tokio::test(start_paused = true)]
async fn small_replies_are_charged_until_they_are_gone() {
    let rig = Rig::new(4 * MIB).await;
    let ino = rig.put("key", pieces(200 << 10)).await;
    let body = deliver(&rig.door, &rig.session, ino, 0..200 << 10, Charging::Here).await.unwrap();
    assert_eq!(rig.door.budget.bytes_used(), 200 << 10);
    assert_eq!(collect(body).await.unwrap().len(), 200 << 10);
    assert_eq!(rig.door.budget.bytes_used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_gives_its_charge_back() {
    let _reached = holdfast_objstore_base::failpoint::must_reach(&["s3.client_gone"]);
    let rig = Rig::new(4 * MIB).await;
    let ino = rig.put("key", pieces(16 * MIB)).await;
    let idle = deliver(&rig.door, &rig.session, ino, 0..16 * MIB, Charging::Here).await.unwrap();
    let content = timeout(SOON, rig.content(ino, 16 * MIB)).await.expect("it has its turn").unwrap();
    assert!(content == pieces(16 * MIB).concat());
    assert!(collect(idle).await.map_or(true, |got| got.len() < 16 << 20), "the idle one ended short");
}
