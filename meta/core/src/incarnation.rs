//! The incarnation of the metadata: part of every stripe id, raised when a state from before takes the place of a later one.
//!
//! What always holds: stripes named after the raise never have the id of one that the replaced state named.

use crate::fail::{Done, broken};
use crate::record::{Counters, encode, load};
use crate::tx::Tx;
use crate::{Kv, KvRead, StateError, keys};
use holdfast_objstore_proto::meta::Reply;

/// The incarnation the state is in.
pub fn incarnation(kv: &dyn KvRead) -> Result<u32, StateError> {
    Ok(load::<Counters>(kv, &keys::counters())?.ok_or_else(|| broken("there are no counters"))?.incarnation)
}

/// The counters in a higher incarnation.
fn raised(kv: &dyn KvRead, at_least: u32) -> Result<Counters, StateError> {
    let mut counters = load::<Counters>(kv, &keys::counters())?.ok_or_else(|| broken("there are no counters"))?;
    let next = counters.incarnation.checked_add(1).ok_or_else(|| broken("its incarnations are used up"))?;
    counters.incarnation = next.max(at_least);
    Ok(counters)
}

/// Raises the incarnation: by one, and to `at_least`. Answers the new one. Not a command: only for a state that nobody serves.
pub fn raise_incarnation(kv: &mut dyn Kv, at_least: u32) -> Result<u32, StateError> {
    let counters = raised(kv, at_least)?;
    kv.put(&keys::counters(), encode(&counters));
    Ok(counters.incarnation)
}

/// The same as a command, for a state that goes on with a log which may lack commands.
pub(crate) fn raise(tx: &mut Tx, at_least: u32) -> Done<Reply> {
    let counters = raised(tx, at_least)?;
    tx.put(keys::counters(), encode(&counters));
    Ok(Reply::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemKv, initialise};

    #[test]
    fn a_raised_incarnation_is_above_the_one_before_and_what_was_asked() {
        let mut kv = MemKv::default();
        assert!(incarnation(&kv).is_err());
        initialise(&mut kv).expect("a fresh state");
        assert_eq!(raise_incarnation(&mut kv, 0).expect("raises"), 2);
        assert_eq!(raise_incarnation(&mut kv, 100).expect("raises"), 100);
        assert_eq!(raise_incarnation(&mut kv, 7).expect("raises"), 101);
        assert_eq!(incarnation(&kv).expect("reads"), 101);
    }
}
