//! The text forms of this crate, for fuzzing.

use crate::{Code, Codec, StripeId};
use holdfast_objstore_base::fuzzing::Target;

pub const TARGETS: &[Target] = &[Target { name: "codes", samples, body }];

fn samples() -> Vec<Vec<u8>> {
    ["4+2", "1+0", "16+4"].map(|t| t.as_bytes().to_vec()).to_vec()
}

fn body(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(code) = text.parse::<Code>()
    {
        assert_eq!(code.to_string().parse(), Ok(code));
        let _ = (0..=30).map(|up| code.narrowed(up)).filter(|c| c.is_some_and(|c| c.n() > 30)).count();
    }
    if let Some(first) = bytes.first()
        && let Some(codec) = Codec::from_u8(*first)
    {
        assert_eq!(codec as u8, *first);
    }
    if let Some(id) = bytes.first_chunk::<16>() {
        assert_eq!(StripeId::from_bytes(*id).to_bytes(), *id);
    }
}
