//! Lines of a dump: one for each stored record, as text for people or as JSON for programs.
//!
//! What always holds: a line names the file and, where there is one, the offset of what it tells of; bytes that are no structure give
//! a line with an error, never a missing one. A line is one line: text in it is quoted where it could be taken for something else.
//! What it leaves out: what records mean. Each crate tells of its own.

use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use std::fmt::{self, Display, Write as _};
use std::io;
use std::path::Path;

/// Takes the lines of a dump one after the other. An error (the reader went away) ends the dump.
pub type Sink<'a> = dyn FnMut(Line) -> io::Result<()> + Send + 'a;

/// What a dump tells of one record.
#[derive(Debug, Clone)]
pub struct Line {
    kind: &'static str,
    file: String,
    offset: Option<u64>,
    /// Name and value, the value as JSON.
    fields: Vec<(&'static str, String)>,
    bad: Option<String>,
}

impl Line {
    /// `kind` says what the record is, in one word.
    pub fn new(kind: &'static str, file: &Path) -> Self {
        Self { kind, file: printable(&file.to_string_lossy()), offset: None, fields: Vec::new(), bad: None }
    }
    /// Another line of the same file: for one of the things that this record holds.
    pub fn part(&self, kind: &'static str) -> Self {
        Self { kind, file: self.file.clone(), offset: self.offset, fields: Vec::new(), bad: None }
    }
    /// Byte in the file at which the record begins.
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }
    pub fn kind(&self) -> &'static str {
        self.kind
    }
    /// Names the kind once it is known.
    pub fn named(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }
    pub fn with(mut self, name: &'static str, value: impl Serialize) -> Self {
        self.fields.push((name, json(&value)));
        self
    }
    /// A value as it is printed.
    pub fn show(self, name: &'static str, value: impl Display) -> Self {
        self.with(name, value.to_string())
    }
    /// Says that the bytes are not what they should be. The first reason is kept.
    pub fn bad(mut self, why: impl Display) -> Self {
        self.bad.get_or_insert_with(|| printable(&why.to_string()));
        self
    }
    pub fn is_bad(&self) -> bool {
        self.bad.is_some()
    }
    /// The JSON of a field, for tests and for those who look for one.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|f| f.0 == name).map(|f| f.1.as_str())
    }

    /// One JSON object.
    pub fn to_json(&self) -> String {
        let mut out = format!("{{\"record\":{},\"file\":{}", json(&self.kind), json(&self.file));
        if let Some(offset) = self.offset {
            let _ = write!(out, ",\"offset\":{offset}");
        }
        for (name, value) in &self.fields {
            let _ = write!(out, ",{}:{value}", json(name));
        }
        if let Some(why) = &self.bad {
            let _ = write!(out, ",\"error\":{}", json(why));
        }
        out.push('}');
        out
    }
}

/// As text: `FILE@OFFSET record name=value … ERROR: why`.
impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(offset) = self.offset {
            write!(f, "@{offset}")?;
        }
        write!(f, " {}", self.kind)?;
        for (name, value) in &self.fields {
            write!(f, " {name}={}", unquoted(value))?;
        }
        match &self.bad {
            Some(why) => write!(f, " ERROR: {why}"),
            None => Ok(()),
        }
    }
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A JSON text without its quotes, where nobody needs them.
fn unquoted(value: &str) -> &str {
    let plain = |s: &&str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'='));
    value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).filter(plain).unwrap_or(value)
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for b in bytes {
        let _ = write!(out, "{b:02x}");
    }
    out
}

/// The reverse of [`hex`]; `None` for anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|p| Some(digit(p[0])? << 4 | digit(p[1])?)).collect()
}

/// Any stored value as JSON. Byte strings (names, keys) become text where they are UTF-8 without control characters, else `0x…`.
pub fn json<T: Serialize + ?Sized>(value: &T) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, BytesAsText);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        // Only types without a JSON form get here, and they are still told of.
        Err(e) => format!("\"({e})\""),
    }
}

struct BytesAsText;

impl Formatter for BytesAsText {
    fn write_byte_array<W: ?Sized + io::Write>(&mut self, out: &mut W, value: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(value).ok().filter(|t| !t.chars().any(char::is_control) && !t.starts_with("0x"));
        let text = text.map_or_else(|| format!("0x{}", hex(value)), str::to_owned);
        let mut plain = CompactFormatter;
        plain.begin_string(out)?;
        let mut from = 0;
        for (at, b) in text.bytes().enumerate().filter(|(_, b)| matches!(b, b'"' | b'\\')) {
            plain.write_string_fragment(out, &text[from..at])?;
            plain.write_char_escape(out, if b == b'"' { CharEscape::Quote } else { CharEscape::ReverseSolidus })?;
            from = at + 1;
        }
        plain.write_string_fragment(out, &text[from..])?;
        plain.end_string(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_line_is_one_line_in_both_forms() {
        let line =
            Line::new("row", Path::new("a\nb")).at(4096).with("name", Bytes::from_static(b"x \"y\"\n")).with("n", 3).show("id", "stripe.1");
        let line = line.with("plain", Bytes::from_static(b"a\\\"b")).bad("the checksum differs").bad("later");
        let text = line.to_json();
        assert!(!text.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!((value["name"].as_str(), value["n"].as_u64()), (Some("0x7820227922 0a".replace(' ', "").as_str()), Some(3)));
        assert_eq!((value["plain"].as_str(), value["offset"].as_u64()), (Some("a\\\"b"), Some(4096)));
        assert_eq!(value["error"].as_str(), Some("the checksum differs"));
        let text = line.to_string();
        assert!(!text.contains('\n') && text.ends_with(" n=3 id=stripe.1 plain=\"a\\\\\\\"b\" ERROR: the checksum differs"), "{text}");
        assert_eq!(unhex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!((unhex("0"), unhex("zz"), unhex("é")), (None, None, None));
    }
}
