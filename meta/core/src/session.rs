//! Sessions: who may change the state, and the replies kept so that a request is applied once.
//!
//! What always holds: a session that ended has no record, so whatever it sends later is refused; ids are never reused.
//! What it leaves out: leases and liveness, which need a clock; the service turns them into `Evict`.

use crate::fail::{Done, invalid};
use crate::limits::{CLIENT_NAME_BYTES_MAX, REPLIES_MAX, REPLIES_TRIM, SESSIONS_MAX};
use crate::record::{Session, encode, load};
use crate::tx::Tx;
use crate::{KvRead, StateError, ids, keys};
use holdfast_objstore_proto::meta::{MetaError, Reply, Request, TimeNs};
use holdfast_objstore_proto::{SessionEpoch, SessionId};
use std::ops::ControlFlow;

/// The metadata service itself. Its requests are not numbered (seq 0) and not remembered: each is idempotent.
pub const SERVICE_SESSION: SessionId = SessionId(1);
/// The service's epoch, for ever.
pub const SERVICE_EPOCH: SessionEpoch = SessionEpoch(1);
/// Who sends OpenSession.
pub(crate) const NOBODY: SessionId = SessionId(0);

pub(crate) fn open(tx: &mut Tx, now: TimeNs, client: &str) -> Done<Reply> {
    if client.len() > CLIENT_NAME_BYTES_MAX {
        return invalid(format!("a client's name has at most {CLIENT_NAME_BYTES_MAX} bytes"));
    }
    let mut c = ids::counters(tx)?;
    if c.sessions >= SESSIONS_MAX {
        return invalid(format!("there are {SESSIONS_MAX} sessions already"));
    }
    let session = SessionId(c.session);
    c.session += 1;
    c.sessions += 1;
    ids::put_counters(tx, &c);
    let epoch = SessionEpoch(1);
    let record = Session { epoch, client: client.into(), opened: now, trimmed: 0, stripe_blocks: 0, inode_blocks: 0 };
    tx.put(keys::session(session), encode(&record));
    Ok(Reply::Session { session, epoch })
}

/// Ends a session, in order or not. Idempotent.
pub(crate) fn end(tx: &mut Tx, session: SessionId) -> Done<Reply> {
    if session == SERVICE_SESSION || session == NOBODY {
        return Err(MetaError::NotPermitted.into());
    }
    if tx.get(&keys::session(session))?.is_none() {
        return Ok(Reply::Done);
    }
    tx.delete(keys::session(session));
    let from = keys::replies(session);
    let mut replies = Vec::new();
    tx.scan(&from, &keys::end_of(&from), &mut |k, _| {
        replies.push(k.to_vec());
        ControlFlow::Continue(())
    })?;
    replies.into_iter().for_each(|k| tx.delete(k));
    ids::forget_all(tx, session)?;
    let mut c = ids::counters(tx)?;
    c.sessions = c.sessions.saturating_sub(1);
    ids::put_counters(tx, &c);
    Ok(Reply::Done)
}

/// What the table of a session says about a request.
pub(crate) enum Seen {
    /// Apply it; then `remember` its reply.
    New,
    /// It was applied: its reply.
    Before(Reply),
}

pub(crate) fn admit(kv: &dyn KvRead, request: &Request) -> Done<Seen> {
    let session: Session = load(kv, &keys::session(request.session))?.ok_or(MetaError::Evicted)?;
    if session.epoch != request.epoch {
        return Err(MetaError::Evicted.into());
    }
    if request.session == SERVICE_SESSION {
        return Ok(Seen::New);
    }
    if request.seq == 0 || request.acked >= request.seq {
        return invalid("a request's number is above 0 and above what it acknowledges");
    }
    if request.seq <= session.trimmed {
        return invalid("the request was acknowledged before");
    }
    if request.seq > session.trimmed.max(request.acked).saturating_add(REPLIES_MAX) {
        return invalid(format!("more than {REPLIES_MAX} requests are not acknowledged"));
    }
    Ok(match load::<Reply>(kv, &keys::reply(request.session, request.seq))? {
        Some(reply) => Seen::Before(reply),
        None => Seen::New,
    })
}

/// Keeps a reply, and forgets acknowledged ones.
pub(crate) fn remember(tx: &mut Tx, request: &Request, reply: &Reply) -> Result<(), StateError> {
    if request.session == SERVICE_SESSION {
        return Ok(());
    }
    // CloseSession leaves no session to remember it.
    let Some(mut session) = load::<Session>(tx, &keys::session(request.session))? else { return Ok(()) };
    tx.put(keys::reply(request.session, request.seq), encode(reply));
    if request.acked >= session.trimmed + REPLIES_TRIM {
        let from = keys::reply(request.session, session.trimmed);
        let mut old = Vec::new();
        tx.scan(&from, &keys::reply(request.session, request.acked + 1), &mut |k, _| {
            old.push(k.to_vec());
            ControlFlow::Continue(())
        })?;
        old.into_iter().for_each(|k| tx.delete(k));
        session.trimmed = request.acked;
        tx.put(keys::session(request.session), encode(&session));
    }
    Ok(())
}
