//! Conditional requests: RFC 9110 precedence for reads, the commit's own check for writes.

use holdfast_objstore_proto::meta::Condition;
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The four conditions of a read or of a copy's source.
pub struct ReadConditions<'a> {
    pub if_match: Option<&'a ETagCondition>,
    pub if_none_match: Option<&'a ETagCondition>,
    pub if_modified_since: Option<&'a Timestamp>,
    pub if_unmodified_since: Option<&'a Timestamp>,
}

/// A condition may list several ETags, which the parser leaves in one value.
fn matches(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(e) => e.value().split(',').any(|v| v.trim().trim_start_matches("W/").trim_matches('"') == etag),
    }
}

fn seconds(t: &Timestamp) -> i64 {
    time::OffsetDateTime::from(t.clone()).unix_timestamp()
}

impl ReadConditions<'_> {
    /// Err(304) or Err(412) as RFC 9110 §13.2.2 orders the checks. `mtime_ns` counts in whole seconds, as dates do.
    pub fn check(&self, etag: &str, mtime_ns: i64) -> S3Result<()> {
        let mtime = mtime_ns.div_euclid(1_000_000_000);
        let failed = || -> S3Error { S3ErrorCode::PreconditionFailed.into() };
        match (self.if_match, self.if_unmodified_since) {
            (Some(c), _) if !matches(c, etag) => return Err(failed()),
            (None, Some(t)) if mtime > seconds(t) => return Err(failed()),
            _ => {}
        }
        match (self.if_none_match, self.if_modified_since) {
            (Some(c), _) if matches(c, etag) => Err(S3ErrorCode::NotModified.into()),
            (None, Some(t)) if mtime <= seconds(t) => Err(S3ErrorCode::NotModified.into()),
            _ => Ok(()),
        }
    }
}

/// What the commit of a PUT must check.
pub fn write_condition(if_match: Option<&ETagCondition>, if_none_match: Option<&ETagCondition>) -> S3Result<Condition> {
    let absent = match if_none_match {
        None => false,
        Some(ETagCondition::Any) => true,
        Some(ETagCondition::ETag(e)) if e.value() == "*" => true,
        Some(_) => return Err(S3Error::with_message(S3ErrorCode::NotImplemented, "If-None-Match on a write takes only *")),
    };
    let etag = if_match.map(|c| match c {
        ETagCondition::Any => "*".to_string(),
        ETagCondition::ETag(e) => e.value().to_string(),
    });
    Ok(Condition { absent, etag })
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::dto::ETag;
    use std::time::SystemTime;

    #[test]
    fn etag_conditions_win_over_dates() {
        let old: Timestamp = SystemTime::UNIX_EPOCH.into();
        let tag = ETagCondition::ETag(ETag::Strong("a".into()));
        let c = ReadConditions { if_match: Some(&tag), if_none_match: None, if_modified_since: None, if_unmodified_since: Some(&old) };
        assert!(c.check("a", 5_000_000_000).is_ok());
        assert_eq!(*c.check("b", 0).unwrap_err().code(), S3ErrorCode::PreconditionFailed);
        let c = ReadConditions { if_match: None, if_none_match: Some(&tag), if_modified_since: None, if_unmodified_since: None };
        assert_eq!(*c.check("a", 0).unwrap_err().code(), S3ErrorCode::NotModified);
        let c = ReadConditions { if_match: None, if_none_match: None, if_modified_since: Some(&old), if_unmodified_since: None };
        assert!(c.check("a", 2_000_000_000).is_ok());
        assert!(c.check("a", 500).is_err());
    }
}
