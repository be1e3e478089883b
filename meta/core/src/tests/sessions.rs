//! Sessions, exactly-once, id ranges.

use super::world::{World, name};
use crate::limits::{BLOCK_AGE_NS, BLOCKS_MAX, GRANT_MAX, REPLIES_MAX};
use crate::{SERVICE_EPOCH, SERVICE_SESSION, initialise, kv::MemKv, read};
use bytes::Bytes;
use holdfast_objstore_proto::meta::*;
use holdfast_objstore_proto::*;

fn invalid(r: Reply) -> bool {
    matches!(r, Reply::Error(MetaError::Invalid(_)))
}

#[test]
fn a_repeated_request_is_answered_and_not_applied_again() {
    let mut w = World::new();
    let create = w.create(w.tree.root, "f", Kind::File);
    let reply = w.run(create.clone());
    let before = w.kv.clone();
    let seq = w.seq;
    assert_eq!(w.request(w.session, w.epoch, seq, 0, create.clone()), reply);
    // Errors are remembered like anything else.
    let again = w.create(w.tree.root, "f", Kind::File);
    assert_eq!(w.kv, before);
    let refused = w.run(again.clone());
    assert_eq!(refused, Reply::Error(MetaError::Exists));
    w.run(Command::Unlink { dir: w.tree.root, name: name("f") });
    assert_eq!(w.request(w.session, w.epoch, seq + 1, seq, again), refused);
}

#[test]
fn replies_are_forgotten_when_acknowledged_and_bounded_when_not() {
    let mut w = World::new();
    w.checked = false;
    for _ in 0..1000 {
        w.run(Command::GrantInodes { count: 1 });
    }
    let replies = w.kv.0.keys().filter(|k| k[0] == crate::keys::REPLY).count();
    assert!(replies <= 65, "{replies}");
    let (s, e) = (w.session, w.epoch);
    assert!(invalid(w.request(s, e, 1, 0, Command::GrantInodes { count: 1 })));
    assert!(invalid(w.request(s, e, 0, 0, Command::GrantInodes { count: 1 })));
    assert!(invalid(w.request(s, e, 2000, 2000, Command::GrantInodes { count: 1 })));
    let acked = w.seq;
    assert!(invalid(w.request(s, e, acked + REPLIES_MAX + 1, acked, Command::GrantInodes { count: 1 })));
    // Out of order within the window is fine.
    assert!(matches!(w.request(s, e, acked + REPLIES_MAX, acked, Command::GrantInodes { count: 1 }), Reply::Inodes(_)));
    assert!(matches!(w.request(s, e, acked + 5, acked, Command::GrantInodes { count: 1 }), Reply::Inodes(_)));
    assert!(crate::check(&w.kv).is_empty());
}

#[test]
fn an_ended_session_can_do_nothing() {
    let mut w = World::new();
    let (s, e, seq) = (w.session, w.epoch, w.seq);
    let f = w.file(w.tree.root, "f");
    let p = w.publish(f, &[(0, 10)]);
    assert_eq!(w.serve(Command::Evict { session: s }), Reply::Done);
    assert_eq!(w.serve(Command::Evict { session: s }), Reply::Done);
    assert_eq!(w.request(s, e, seq + 2, seq, Command::Publish(p.clone())), Reply::Error(MetaError::Evicted));
    assert_eq!(w.request(s, SessionEpoch(2), seq + 3, seq, Command::GrantInodes { count: 1 }), Reply::Error(MetaError::Evicted));
    w.open();
    assert_ne!(w.session, s);
    assert_eq!(w.request(w.session, SessionEpoch(7), 9, 0, Command::CloseSession), Reply::Error(MetaError::Evicted));
    w.fails_like(Command::Publish(p), MetaError::PublishRefused(String::new()));
    let all = read::sessions(&w.kv).unwrap().unwrap();
    assert_eq!(all.iter().map(|s| (s.0, s.2.as_str())).collect::<Vec<_>>(), [(w.session, "test")]);
    assert_eq!(w.run(Command::CloseSession), Reply::Done);
    assert_eq!(w.run(Command::GrantInodes { count: 1 }), Reply::Error(MetaError::Evicted));
    assert!(read::sessions(&w.kv).unwrap().unwrap().is_empty());
    let left = w.kv.0.keys().filter(|k| [crate::keys::REPLY, crate::keys::BLOCK, crate::keys::OWNED].contains(&k[0])).count();
    assert_eq!(left, 0);
}

#[test]
fn only_the_service_does_its_work_and_only_nobody_opens_sessions() {
    let mut w = World::new();
    let swap = {
        let s = w.stripe(1);
        Command::SwapStripe { old: s.clone(), new: s }
    };
    for c in [
        Command::Evict { session: w.session },
        Command::ReapOrphan { ino: InodeId(1), chunks_max: 1 },
        Command::ForgetStripes { stripes: vec![] },
        Command::RaiseIncarnation { at_least: 7 },
        swap,
    ] {
        w.fails(c, MetaError::NotPermitted);
    }
    w.fails(Command::OpenSession { client: "x".into() }, MetaError::NotPermitted);
    assert_eq!(w.request(SessionId(0), SessionEpoch(0), 0, 0, Command::GrantInodes { count: 1 }), Reply::Error(MetaError::Evicted));
    assert_eq!(w.serve(Command::Evict { session: SERVICE_SESSION }), Reply::Error(MetaError::NotPermitted));
    assert_eq!(w.request(SERVICE_SESSION, SessionEpoch(9), 0, 0, Command::GrantInodes { count: 1 }), Reply::Error(MetaError::Evicted));
    assert!(matches!(w.request(SERVICE_SESSION, SERVICE_EPOCH, 0, 0, Command::GrantInodes { count: 1 }), Reply::Inodes(_)));
    assert!(invalid(w.request(SessionId(0), SessionEpoch(0), 0, 0, Command::OpenSession { client: "x".repeat(300) })));
}

#[test]
fn stripes_that_are_granted_after_a_raise_are_of_a_higher_incarnation() {
    let mut w = World::new();
    let granted = |w: &mut World| match w.run(Command::GrantStripes { count: 1 }) {
        Reply::Stripes(range) => range.first,
        other => panic!("{other:?}"),
    };
    let first = granted(&mut w);
    assert_eq!(w.serve(Command::RaiseIncarnation { at_least: 50 }), Reply::Done);
    assert_eq!(granted(&mut w).incarnation, 50);
    assert_eq!(w.serve(Command::RaiseIncarnation { at_least: 50 }), Reply::Done);
    let last = granted(&mut w);
    assert!(first.incarnation < 50 && last.incarnation == 51);
}

#[test]
fn ids_are_granted_once_and_spent_once() {
    let mut w = World::new();
    let root = w.tree.root;
    let create = |ino, n: &str| Command::Create {
        dir: root,
        name: name(n),
        ino,
        kind: Kind::File,
        mode: 0,
        owner: super::world::OWNER,
        rdev: 0,
        target: name(""),
    };
    let Reply::Inodes(a) = w.run(Command::GrantInodes { count: 600 }) else { panic!() };
    let Reply::Inodes(b) = w.run(Command::GrantInodes { count: 600 }) else { panic!() };
    assert!(b.first.0 >= a.first.0 + a.count);
    let last = InodeId(a.first.0 + 599);
    w.attr_of(create(last, "last"));
    w.fails_like(create(last, "again"), MetaError::Invalid(String::new()));
    w.fails_like(create(InodeId(last.0 + 1), "beyond"), MetaError::Invalid(String::new()));
    w.run(Command::Unlink { dir: root, name: name("last") });
    w.reap_all(1);
    w.fails_like(create(last, "again"), MetaError::Invalid(String::new()));
    w.fails_like(create(root, "root"), MetaError::Invalid(String::new()));
    assert!(invalid(w.run(Command::GrantInodes { count: 0 })));
    assert!(invalid(w.run(Command::GrantStripes { count: GRANT_MAX + 1 })));
}

fn stripe_blocks(w: &World) -> usize {
    w.kv.0.keys().filter(|k| k[0] == crate::keys::BLOCK && k[1] == b's').count()
}

#[test]
fn a_block_whose_ids_are_spent_leaves() {
    let mut w = World::new();
    w.checked = false;
    let f = w.file(w.tree.root, "f");
    let before = stripe_blocks(&w);
    for _ in 0..512 {
        w.write(f, 0, 1);
    }
    assert_eq!(stripe_blocks(&w), before - 1);
    assert!(crate::check(&w.kv).is_empty());
}

#[test]
fn ids_that_may_be_in_use_stay_the_sessions_whatever_else_it_asks_for() {
    let mut w = World::new();
    w.checked = false;
    let f = w.file(w.tree.root, "f");
    let early = w.publish(f, &[(0, 1)]);
    let grant = Command::GrantStripes { count: GRANT_MAX };
    for _ in 0..BLOCKS_MAX / (GRANT_MAX / 512) - 1 {
        assert!(matches!(w.run(grant.clone()), Reply::Stripes(_)));
    }
    w.fails_like(grant.clone(), MetaError::Retry(String::new()));
    w.fails_like(grant.clone(), MetaError::Retry(String::new()));
    // What was granted before is kept.
    w.attr_of(Command::Publish(early));
    let late = w.publish(f, &[(0, 1)]);
    // Much later the oldest are surely out of use.
    w.now += BLOCK_AGE_NS;
    assert!(matches!(w.run(grant.clone()), Reply::Stripes(_)));
    assert_eq!(stripe_blocks(&w), BLOCKS_MAX as usize);
    w.fails_like(Command::Publish(late), MetaError::PublishRefused(String::new()));
    assert!(crate::check(&w.kv).is_empty());
    // The other kind has a bound of its own.
    assert!(matches!(w.run(Command::GrantInodes { count: 1 }), Reply::Inodes(_)));
}

#[test]
fn initialise_refuses_what_is_newer_or_not_ours() {
    let mut kv = MemKv::default();
    initialise(&mut kv).unwrap();
    let first = kv.clone();
    initialise(&mut kv).unwrap();
    assert_eq!(kv, first);
    kv.0.insert(vec![1], Bytes::from_static(b"HFMS\0\0\0\x09"));
    assert!(initialise(&mut kv).unwrap_err().to_string().contains("version 9"));
    for other in [&b"HFMX\0\0\0\x01"[..], b"HFM", b"HFMS\0\0\0", b""] {
        kv.0.insert(vec![1], Bytes::copy_from_slice(other));
        assert!(initialise(&mut kv).is_err());
    }
    kv.0.remove(&vec![1]);
    assert!(initialise(&mut kv).unwrap_err().to_string().contains("no header"));
}
