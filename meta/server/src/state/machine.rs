//! The state as the log drives it, and how commands and replies look on their way through the log.
//!
//! ```text
//! request  = version u8 (1) · postcard(Request)
//! reply    = version u8 (1) · postcard(Reply)
//! ```
//! What always holds: a committed command that cannot be decoded stops the service rather than being skipped: members must not differ.
//! What it leaves out: what commands do (`meta/core`).

use super::State;
use bytes::Bytes;
use holdfast_meta_core::StateError;
use holdfast_meta_log::{Entry, Error, Fill, Result, StateMachine};
use holdfast_objstore_base::BoxFuture;
use holdfast_objstore_proto::meta::{Reply, Request};

/// Version of both encodings.
const VERSION: u8 = 1;

pub(crate) fn encode_request(request: &Request) -> std::result::Result<Bytes, String> {
    encode(request)
}

#[cfg(feature = "fuzzing")]
pub(crate) fn encode_reply(reply: &Reply) -> std::result::Result<Bytes, String> {
    encode(reply)
}

pub(crate) fn decode_reply(bytes: &[u8]) -> std::result::Result<Reply, String> {
    decode(bytes)
}

fn encode<T: serde::Serialize>(value: &T) -> std::result::Result<Bytes, String> {
    postcard::to_extend(value, vec![VERSION]).map(Bytes::from).map_err(|e| e.to_string())
}

pub(crate) fn decode<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> std::result::Result<T, String> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|e| e.to_string()),
        Some((version, _)) => Err(format!("version {version}, this program knows {VERSION}")),
        None => Err("empty".into()),
    }
}

fn failed(e: StateError) -> Error {
    Error::Failed(e.0)
}

impl StateMachine for State {
    fn apply(&self, entries: &[Entry], tail: Bytes) -> Result<Vec<Bytes>> {
        self.update(|layers| {
            let mut replies = Vec::with_capacity(entries.len());
            let (was_empty, mut sparse) = (layers.staging.hold().is_none(), false);
            for e in entries {
                let request: Request =
                    decode(&e.command).map_err(|why| StateError(format!("command {} cannot be decoded: {why}", e.index)))?;
                self.watches.look(layers, &request)?;
                let (reply, effects) = holdfast_meta_core::apply_with(layers, e.index, e.now_ns, &request)?;
                sparse |= effects.sparse;
                layers.staging.applied(e.index, e.command.len(), effects);
                replies.push(encode(&reply).map_err(|why| StateError(format!("reply {} cannot be encoded: {why}", e.index)))?);
                layers.mark.applied = e.index;
            }
            layers.mark.tail = tail;
            self.staged_changed(layers, was_empty, sparse);
            Ok(replies)
        })
        .map_err(failed)
    }

    fn restore(&self) -> Result<(u64, Option<Bytes>)> {
        // An empty tail: the log has not applied anything yet (or the rows are only those of a fresh state).
        self.view(|layers| Ok((layers.mark.applied, (!layers.mark.tail.is_empty()).then(|| layers.mark.tail.clone())))).map_err(failed)
    }

    fn hold(&self) -> Option<u64> {
        self.layers.read().staging.hold()
    }

    fn keep(&self) -> Option<u64> {
        self.cover.keep()
    }

    fn restage(&self, e: &Entry) -> Result<()> {
        if !self.layers.read().staging.wants(e.index) {
            self.layers.write().staging.shown(e.command.len());
            return Ok(());
        }
        let request: Request =
            decode(&e.command).map_err(|why| failed(StateError(format!("command {} cannot be decoded: {why}", e.index))))?;
        let mut layers = self.layers.write();
        layers.staging.show(e.index, super::inline_of(&request.command));
        layers.staging.shown(e.command.len());
        self.staged_changed(&layers, true, false);
        Ok(())
    }

    fn pace_by(&self, fill: Fill) {
        State::pace_by(self, fill);
    }

    fn checkpoint(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async { State::checkpoint(self).await.map_err(failed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_objstore_base::sim::Rng;
    use holdfast_objstore_proto::meta::{Command, ObjectInfo};
    use holdfast_objstore_proto::{BucketId, SessionEpoch, SessionId};

    #[test]
    fn any_bytes_decode_to_a_value_or_an_error() {
        let info = ObjectInfo { headers: vec![("content-type".into(), "text/plain".into())], ..ObjectInfo::default() };
        let command = Command::CreateUpload { bucket: BucketId(3), key: Bytes::from_static(b"key"), info };
        let request = Request { session: SessionId(7), epoch: SessionEpoch(1), seq: 9, acked: 8, command };
        let whole = encode_request(&request).expect("encodes");
        assert_eq!(decode::<Request>(&whole), Ok(request));
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            let _ = decode::<Request>(&bytes);
            let _ = decode_reply(&bytes);
        }
        assert!(decode::<Request>(&[]).is_err());
        assert!(decode::<Request>(&[2, 0, 0]).is_err_and(|e| e.contains("version 2")));
    }
}
