//! From the bytes the kernel sends to [`Op`].
//!
//! What always holds: every read is bounds-checked, any input gives a request or a [`DecodeError`], nothing is allocated from a
//! length that was not checked against the bytes at hand. The payload of a WRITE is not copied here: its place is
//! returned, and the binding decides whether to hand out its buffer or a copy.

mod attrs;
mod cursor;
mod files;
mod names;
#[cfg(test)]
mod tests;

use crate::filesystem::{Context, Forget};
use crate::op::{NodeId, Op};
use crate::wire::{BatchForgetIn, ForgetIn, ForgetOne, InHeader, InterruptIn, opcode};
use cursor::Cursor;
use smallvec::SmallVec;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not even a header: nobody can be answered.
    #[error("a request of {len} bytes has no whole header")]
    NoHeader { len: usize },
    /// The operation's own bytes are wrong: answer `unique` with EIO.
    #[error("request {unique} (operation {opcode}) is malformed: {why}")]
    Malformed { unique: u64, opcode: u32, why: &'static str },
}

/// A decoded request.
#[derive(Debug)]
pub struct Request {
    pub context: Context,
    pub body: Body,
}

#[derive(Debug)]
pub enum Body {
    /// With the place of a WRITE's payload in the request, for [`crate::op::Write::data`], which is empty so far.
    Op(Op, Option<Range<usize>>),
    Forget(SmallVec<[Forget; 4]>),
    /// Another request's number.
    Interrupt(u64),
    Destroy,
    /// An operation that is not served: ENOSYS.
    Unknown(u32),
}

/// Decodes one request, exactly as read.
pub fn decode(bytes: &[u8]) -> Result<Request, DecodeError> {
    let mut c = Cursor::new(bytes);
    let Ok(h) = c.take::<InHeader>() else { return Err(DecodeError::NoHeader { len: bytes.len() }) };
    let bad = |why| DecodeError::Malformed { unique: h.unique, opcode: h.opcode, why };
    if h.len as usize != bytes.len() {
        return Err(bad("its length is not what was read"));
    }
    // Extensions follow the operation; none that we negotiate means anything here.
    c.drop_tail(h.total_extlen as usize * 8).map_err(bad)?;
    let context = Context { uid: h.uid, gid: h.gid, pid: h.pid, unique: h.unique };
    let body = body(h.opcode, NodeId(h.nodeid), &mut c).map_err(bad)?;
    Ok(Request { context, body })
}

fn body(code: u32, node: NodeId, c: &mut Cursor<'_>) -> Result<Body, &'static str> {
    if let opcode::FORGET | opcode::BATCH_FORGET = code {
        return forget(code, node, c);
    }
    if code == opcode::INTERRUPT {
        return Ok(Body::Interrupt(c.take::<InterruptIn>()?.unique));
    }
    if code == opcode::DESTROY {
        return Ok(Body::Destroy);
    }
    if code == opcode::WRITE {
        let (w, at) = files::write(node, c)?;
        return Ok(Body::Op(Op::Write(w), Some(at)));
    }
    let op = match names::decode(code, node, c)? {
        Some(op) => Some(op),
        None => match files::decode(code, node, c)? {
            Some(op) => Some(op),
            None => attrs::decode(code, node, c)?,
        },
    };
    Ok(match op {
        Some(op) => Body::Op(op, None),
        None => Body::Unknown(code),
    })
}

fn forget(code: u32, node: NodeId, c: &mut Cursor<'_>) -> Result<Body, &'static str> {
    let mut items = SmallVec::new();
    if code == opcode::FORGET {
        items.push(Forget { node, lookups: c.take::<ForgetIn>()?.nlookup });
        return Ok(Body::Forget(items));
    }
    let count = c.take::<BatchForgetIn>()?.count as usize;
    if count > c.left() / size_of::<ForgetOne>() {
        return Err("more items than bytes");
    }
    for _ in 0..count {
        let one: ForgetOne = c.take()?;
        items.push(Forget { node: NodeId(one.nodeid), lookups: one.nlookup });
    }
    Ok(Body::Forget(items))
}
