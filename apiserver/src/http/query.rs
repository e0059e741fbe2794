//! The parameters of a request's query.

use std::borrow::Cow;
use std::time::Duration;

use super::duration;
use crate::status::Status;

/// The decoded parameters in their order, without empty ones and stray separators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(String, String)>);

// === impl Parameters ===

impl Parameters {
    /// Parses `a=b&c=d`; `?&a=b` and a bare `?` are valid. A part with a malformed escape is dropped, as
    /// in Go.
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query
            .split('&')
            .filter(|part| !part.is_empty())
            .filter(|part| escapes_are_whole(part))
            .map(|part| {
                let (key, value) = part.split_once('=').unwrap_or((part, ""));
                (decode(key), decode(value))
            })
            .collect();
        Self(pairs)
    }

    /// The first value of `key`; `None` when absent or empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// The names of all parameters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// All values of `key`.
    pub(crate) fn all(&self, key: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// Whether `key` is there, even without a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    /// A boolean in Kubernetes' syntax: absent, `false` and `0` are false, anything else is true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or(false)
    }

    /// As [`Self::flag`], with `None` if absent.
    pub(crate) fn optional_flag(&self, key: &str) -> Option<bool> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// `timeout`, a duration in Go's syntax (`32s`, `1m30s`); `None` without it, and for one that is not above zero.
    /// (apiserver: `parseTimeout`.)
    ///
    /// # Errors
    /// 400 when it is not a duration.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Status> {
        let Some(text) = self.get("timeout").filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        match duration::parse(text) {
            Ok(timeout) => Ok(Some(timeout).filter(|timeout| !timeout.is_zero())),
            Err(error) => Err(Status::bad_request(format!(
                "invalid timeout specified in the request URL - {error}"
            ))),
        }
    }

    /// An integer. An empty value is invalid, too.
    ///
    /// # Errors
    /// 400 when it is invalid.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, text)| {
                text.parse().map_err(|_| {
                    Status::bad_request(format!(
                        "strconv.ParseInt: parsing {}: invalid syntax",
                        crate::field::quote(text)
                    ))
                })
            })
            .transpose()
    }
}

fn escapes_are_whole(part: &str) -> bool {
    part.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Percent-decoding of one part of a query, where `+` is a space.
fn decode(text: &str) -> String {
    percent_decode(&text.replace('+', " ")).into_owned()
}

/// Percent-decoding; malformed escapes stay as they are.
pub(crate) fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = digits {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_separators_are_skipped_and_escapes_undone() {
        let query = Parameters::parse("&labelSelector=a%3Db%2Cc%21%3Dd&watch=1&&x=1+2");
        assert_eq!(query.get("labelSelector"), Some("a=b,c!=d"));
        assert!(query.flag("watch"));
        assert_eq!(query.get("x"), Some("1 2"));
        assert_eq!(query.get("absent"), None);
        assert_eq!(Parameters::parse(""), Parameters::default());
    }

    #[test]
    fn a_number_that_is_none_is_a_bad_request() {
        let query = Parameters::parse("limit=x");
        let status = query.number("limit").unwrap_err();
        assert_eq!(status.code, 400);
    }

    #[test]
    fn a_timeout_above_zero_is_one() {
        let timeout = |query: &str| Parameters::parse(query).timeout().unwrap();
        assert_eq!(timeout("timeout=32s"), Some(Duration::from_secs(32)));
        for none in ["", "timeout=", "timeout=0s", "timeout=-5s"] {
            assert_eq!(timeout(none), None, "{none}");
        }
        let refused = Parameters::parse("timeout=5").timeout().unwrap_err();
        let why =
            r#"invalid timeout specified in the request URL - time: missing unit in duration "5""#;
        assert_eq!((refused.code, refused.message.as_str()), (400, why));
    }

    #[test]
    fn a_lone_percent_sign_stays() {
        assert_eq!(percent_decode("100%"), "100%");
        assert_eq!(percent_decode("%zz%41"), "%zzA");
    }
}
