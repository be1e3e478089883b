//! `apply`: one request in, one reply out.

use crate::fail::{Done, Fail};
use crate::session::{self, NOBODY, SERVICE_SESSION, Seen};
use crate::tx::{Effects, Tx};
use crate::{Kv, StateError, bucket, ids, incarnation, namespace, object, orphan, packs, publish, relocate, stripes, truncate, upload};
use holdfast_objstore_proto::SessionId;
use holdfast_objstore_proto::meta::{Command, MetaError, Reply, Request, TimeNs};

/// What an operation knows of the request beside its command.
#[derive(Clone, Copy)]
pub(crate) struct Ctx {
    pub index: u64,
    pub now: TimeNs,
    pub session: SessionId,
}

/// Applies one request at log `index`, which grows from call to call; `now` is the leader's stamp and never goes back.
/// Answers a request that was applied before from the session's table. An error is fatal: the state cannot be trusted.
pub fn apply(kv: &mut dyn Kv, index: u64, now: TimeNs, request: &Request) -> Result<Reply, StateError> {
    apply_with(kv, index, now, request).map(|(reply, _)| reply)
}

/// The same, and what it means for the inline bytes that a service keeps beside the state.
pub fn apply_with(kv: &mut dyn Kv, index: u64, now: TimeNs, request: &Request) -> Result<(Reply, Effects), StateError> {
    let ctx = Ctx { index, now, session: request.session };
    if request.session != NOBODY {
        match session::admit(kv, request) {
            Ok(Seen::New) => {}
            Ok(Seen::Before(reply)) => return Ok((reply, Effects::default())),
            Err(Fail::Meta(e)) => return Ok((Reply::Error(e), Effects::default())),
            Err(Fail::State(e)) => return Err(e),
        }
    }
    let mut tx = Tx::new(kv);
    let reply = match run(&mut tx, ctx, &request.command) {
        Ok(reply) => reply,
        Err(Fail::State(e)) => return Err(e),
        Err(Fail::Meta(e)) => {
            tx.reset();
            publish::consume_number(&mut tx, &request.command, &e)?;
            Reply::Error(e)
        }
    };
    if request.session != NOBODY {
        session::remember(&mut tx, request, &reply)?;
    }
    let effects = tx.commit()?;
    Ok((reply, effects))
}

fn run(tx: &mut Tx, ctx: Ctx, command: &Command) -> Done<Reply> {
    use Command as C;
    let service = ctx.session == SERVICE_SESSION;
    match command {
        C::OpenSession { client } if ctx.session == NOBODY => return session::open(tx, ctx.now, client),
        C::OpenSession { .. } => return Err(MetaError::NotPermitted.into()),
        _ if ctx.session == NOBODY => return Err(MetaError::Evicted.into()),
        C::Evict { .. }
        | C::ReapOrphan { .. }
        | C::ForgetStripes { .. }
        | C::SwapStripe { .. }
        | C::Restage { .. }
        | C::RaiseIncarnation { .. }
            if !service =>
        {
            return Err(MetaError::NotPermitted.into());
        }
        _ => {}
    }
    match command {
        C::OpenSession { .. } => Err(MetaError::NotPermitted.into()),
        C::CloseSession => session::end(tx, ctx.session),
        C::Evict { session } => session::end(tx, *session),
        C::GrantStripes { count } => Ok(Reply::Stripes(ids::grant_stripes(tx, ctx.session, ctx.now, *count)?)),
        C::GrantInodes { count } => Ok(Reply::Inodes(ids::grant_inodes(tx, ctx.session, ctx.now, *count)?)),

        C::Create { dir, name, ino, kind, mode, owner, rdev, target } => {
            let new = namespace::New { ino: *ino, kind: *kind, mode: *mode, owner: *owner, rdev: *rdev, target };
            namespace::create(tx, ctx, *dir, name, new)
        }
        C::Link { dir, name, ino } => namespace::link(tx, ctx, *dir, name, *ino),
        C::Unlink { dir, name } => namespace::unlink(tx, ctx, *dir, name),
        C::Rmdir { dir, name } => namespace::rmdir(tx, ctx, *dir, name),
        C::Rename { from_dir, from, to_dir, to, mode } => namespace::rename(tx, ctx, (*from_dir, from), (*to_dir, to), *mode),
        C::SetAttr { ino, change } => namespace::set_attr(tx, ctx, *ino, change),
        C::Truncate { ino, number, size, mtime } => truncate::truncate(tx, ctx, *ino, *number, *size, *mtime),
        C::Publish(p) => publish::publish(tx, ctx, p),

        C::CreateBucket { name, shape, code, owner, mode } => bucket::create(tx, ctx, name, *shape, *code, *owner, *mode),
        C::DeleteBucket { name } => bucket::delete(tx, ctx, name),

        C::PutObject(p) => object::put(tx, ctx, p),
        C::DeleteObject { bucket, key, condition } => object::delete(tx, ctx, *bucket, key, condition),
        C::CreateUpload { bucket, key, info } => upload::create(tx, ctx, *bucket, key, info),
        C::PutPart { bucket, upload, number, size, etag, checksums, extents, stripes, inline } => {
            let part = upload::NewPart { number: *number, size: *size, etag, checksums, extents, stripes, inline };
            upload::put_part(tx, ctx, *bucket, *upload, part)
        }
        C::CompleteUpload { bucket, upload, ino, parts, info, owner, part_bytes_min, condition } => {
            let join = upload::Join { ino: *ino, parts, info, owner: *owner, part_bytes_min: *part_bytes_min, condition };
            upload::complete(tx, ctx, *bucket, *upload, join)
        }
        C::AbortUpload { bucket, upload } => upload::abort(tx, *bucket, *upload),

        C::ReapOrphan { ino, chunks_max } => orphan::reap(tx, ctx, *ino, *chunks_max),
        C::ForgetStripes { stripes } => stripes::forget(tx, stripes),
        C::SwapStripe { old, new } => stripes::swap(tx, old, new),
        C::Pack(p) => packs::pack(tx, ctx, p),
        C::Relocate(r) => relocate::relocate(tx, ctx, r),
        C::Restage { inline } => packs::restage(tx, ctx, inline),
        C::RaiseIncarnation { at_least } => incarnation::raise(tx, *at_least),
    }
}
