//! The two signatures of the API: version 1.0 in the parameters, and `ACS3-HMAC-SHA256` in the headers.
//!
//! A server calculates the signature of a request again and compares both in constant time. The functions are pure: clock and nonces
//! belong to the caller.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac};
use subtle::ConstantTimeEq;

/// The name of the signature in headers, the first word of `Authorization`.
pub const ACS3: &str = "ACS3-HMAC-SHA256";

/// The parameter that version 1.0 leaves out of what it signs: the signature itself.
const SIGNATURE: &str = "Signature";

/// The hash of a signature of version 1.0, named by the parameter `SignatureMethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `HMAC-SHA1`, the default of the older SDKs.
    HmacSha1,
    /// `HMAC-SHA256`.
    HmacSha256,
}

/// A request as `ACS3-HMAC-SHA256` signs it.
#[derive(Clone, Debug)]
pub struct Canonical<'a> {
    /// The method, upper case.
    pub method: &'a str,
    /// The path, as sent.
    pub path: &'a str,
    /// The parameters of the query, decoded.
    pub query: &'a BTreeMap<String, String>,
    /// The signed headers: lower-case names, and values without blanks around them.
    pub headers: &'a BTreeMap<String, String>,
    /// SHA-256 of the body, in hexadecimal digits.
    pub payload: &'a str,
}

/// The parts of an `Authorization` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization<'a> {
    /// The id of the access key.
    pub credential: &'a str,
    /// The names of the signed headers, in their order.
    pub signed_headers: Vec<&'a str>,
    /// The signature, in hexadecimal digits.
    pub signature: &'a str,
}

/// `text` with every byte but letters, digits and `-_.~` as `%XX` (RFC 3986).
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// The parameters as one query, sorted by name and encoded.
#[must_use]
pub fn canonical_query(parameters: &BTreeMap<String, String>) -> String {
    join(parameters.iter())
}

fn join<'a>(parameters: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let mut query = String::new();
    for (name, value) in parameters {
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(&percent_encode(name));
        query.push('=');
        query.push_str(&percent_encode(value));
    }
    query
}

/// SHA-256 in hexadecimal digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The text that version 1.0 signs: method, path and the parameters of query and body, without the signature.
#[must_use]
pub fn string_to_sign(method: &str, parameters: &BTreeMap<String, String>) -> String {
    let query = join(parameters.iter().filter(|(name, _)| *name != SIGNATURE));
    format!("{method}&%2F&{}", percent_encode(&query))
}

/// The signature of version 1.0, in base64.
#[must_use]
pub fn sign(
    hash: Method,
    method: &str,
    parameters: &BTreeMap<String, String>,
    secret: &str,
) -> String {
    let algorithm = match hash {
        Method::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Method::HmacSha256 => hmac::HMAC_SHA256,
    };
    let key = hmac::Key::new(algorithm, format!("{secret}&").as_bytes());
    STANDARD.encode(hmac::sign(
        &key,
        string_to_sign(method, parameters).as_bytes(),
    ))
}

/// Compares two signatures in constant time.
#[must_use]
pub fn equal(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

// === impl Method ===

impl Method {
    /// The method of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "HMAC-SHA1" => Some(Self::HmacSha1),
            "HMAC-SHA256" => Some(Self::HmacSha256),
            _ => None,
        }
    }
}

// === impl Canonical ===

impl Canonical<'_> {
    /// The canonical request, whose hash is signed.
    #[must_use]
    pub fn text(&self) -> String {
        let mut headers = String::new();
        let mut names = String::new();
        for (name, value) in self.headers {
            let _ = writeln!(headers, "{name}:{value}");
            if !names.is_empty() {
                names.push(';');
            }
            names.push_str(name);
        }
        let query = canonical_query(self.query);
        let Self {
            method,
            path,
            payload,
            ..
        } = self;
        format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{payload}")
    }

    /// The signature, in hexadecimal digits.
    #[must_use]
    pub fn sign(&self, secret: &str) -> String {
        let text = format!("{ACS3}\n{}", sha256_hex(self.text().as_bytes()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        hex(hmac::sign(&key, text.as_bytes()).as_ref())
    }

    /// The value of `Authorization`.
    #[must_use]
    pub fn authorization(&self, access_key: &str, secret: &str) -> String {
        let names: Vec<&str> = self.headers.keys().map(String::as_str).collect();
        format!(
            "{ACS3} Credential={access_key},SignedHeaders={},Signature={}",
            names.join(";"),
            self.sign(secret)
        )
    }
}

// === impl Authorization ===

impl<'a> Authorization<'a> {
    /// Parses the value of an `Authorization` header. `None` if it is not of the kind [`ACS3`].
    #[must_use]
    pub fn parse(value: &'a str) -> Option<Self> {
        let fields = value.trim().strip_prefix(ACS3)?.trim_start();
        let mut parsed = Self {
            credential: "",
            signed_headers: Vec::new(),
            signature: "",
        };
        for field in fields.split(',') {
            let (name, value) = field.trim().split_once('=')?;
            match name {
                "Credential" => parsed.credential = value,
                "SignedHeaders" => parsed.signed_headers = value.split(';').collect(),
                "Signature" => parsed.signature = value,
                _ => return None,
            }
        }
        let complete = !parsed.credential.is_empty() && !parsed.signature.is_empty();
        complete.then_some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs.map(|&(n, v)| (n.to_owned(), v.to_owned())).collect()
    }

    #[test]
    fn encoding_leaves_only_unreserved_characters() {
        assert_eq!(percent_encode("aZ09-_.~"), "aZ09-_.~");
        assert_eq!(percent_encode("a b*c/é"), "a%20b%2Ac%2F%C3%A9");
    }

    #[test]
    fn the_text_of_version_1_is_sorted_and_encoded_twice() {
        let parameters = parameters(&[
            ("Timestamp", "2016-02-23T12:46:24Z"),
            ("Action", "DescribeRegions"),
            ("Signature", "left out"),
        ]);
        assert_eq!(
            string_to_sign("GET", &parameters),
            "GET&%2F&Action%3DDescribeRegions%26Timestamp%3D2016-02-23T12%253A46%253A24Z"
        );
    }

    /// The worked example of the vendor's documentation of version 1.0 (product ECS).
    #[test]
    fn version_1_gives_the_documented_signature() {
        let parameters = parameters(&[
            ("Timestamp", "2016-02-23T12:46:24Z"),
            ("Format", "XML"),
            ("AccessKeyId", "testid"),
            ("Action", "DescribeRegions"),
            ("SignatureMethod", "HMAC-SHA1"),
            ("SignatureNonce", "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf"),
            ("Version", "2014-05-26"),
            ("SignatureVersion", "1.0"),
        ]);
        assert_eq!(
            sign(Method::HmacSha1, "GET", &parameters, "testsecret"),
            "OLeaidS1JvxuMvnyHOwuJ+uX5qY="
        );
    }

    #[test]
    fn the_hash_methods_of_version_1_differ() {
        let parameters = parameters(&[("Action", "DescribeRegions")]);
        let sign = |hash| sign(hash, "GET", &parameters, "testsecret");
        assert_ne!(sign(Method::HmacSha1), sign(Method::HmacSha256));
        assert_eq!(Method::named("HMAC-SHA256"), Some(Method::HmacSha256));
        assert_eq!(Method::named("MD5"), None);
    }

    #[test]
    fn a_canonical_request_has_a_line_a_part() {
        let request = Canonical {
            method: "POST",
            path: "/",
            query: &parameters(&[("B", "2 3"), ("A", "1")]),
            headers: &parameters(&[("x-acs-action", "X"), ("host", "h:1")]),
            payload: "cafe",
        };
        assert_eq!(
            request.text(),
            "POST\n/\nA=1&B=2%203\nhost:h:1\nx-acs-action:X\n\nhost;x-acs-action\ncafe"
        );
    }

    #[test]
    fn an_authorization_parses_to_what_was_written() {
        let request = Canonical {
            method: "GET",
            path: "/",
            query: &BTreeMap::new(),
            headers: &parameters(&[("host", "h"), ("x-acs-date", "d")]),
            payload: &sha256_hex(b""),
        };
        let header = request.authorization("id", "secret");
        let parsed = Authorization::parse(&header).unwrap();
        assert_eq!(parsed.credential, "id");
        assert_eq!(parsed.signed_headers, ["host", "x-acs-date"]);
        assert_eq!(parsed.signature, request.sign("secret"));
        assert_ne!(parsed.signature, request.sign("other"));
        assert_eq!(Authorization::parse("Bearer x"), None);
        assert_eq!(Authorization::parse("ACS3-HMAC-SHA256 Credential=x"), None);
    }

    #[test]
    fn equal_compares_all_of_both() {
        assert!(equal("abc", "abc"));
        assert!(!equal("abc", "abx"));
        assert!(!equal("abc", "ab"));
    }
}
