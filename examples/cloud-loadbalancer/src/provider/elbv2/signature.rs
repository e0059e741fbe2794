//! Signature Version 4 of a request, with HMAC-SHA256.
//!
//! The functions are pure: time, keys and the bytes of the request come from the caller. The tests are the vectors that the
//! documentation of the signature publishes.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::keys::Keys;
use crate::identity::hex;

/// The name of the signature, the first word of `Authorization`.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The last part of every scope.
const TERMINATOR: &str = "aws4_request";

/// A request to sign.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// The method, upper case.
    pub(super) method: &'a str,
    /// The path, encoded as it is sent.
    pub(super) path: &'a str,
    /// The query, sorted and encoded as it is sent.
    pub(super) query: &'a str,
    /// The signed headers: lower-case names, and values without blanks around them, sorted by name.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub(super) payload: &'a [u8],
}

/// What the key of a signature is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    /// The time, such as `20150830T123600Z`. It is the header `x-amz-date` too.
    pub(super) time: &'a str,
    /// The region.
    pub(super) region: &'a str,
    /// The service.
    pub(super) service: &'a str,
}

// === impl Request ===

impl Request<'_> {
    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self, scope: Scope<'_>, keys: &Keys) -> String {
        let signature = hex(&mac(&scope.key(&keys.secret), &self.text_to_sign(scope)));
        format!(
            "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={signature}",
            keys.id,
            scope.text(),
            self.signed_headers(),
        )
    }

    fn signed_headers(&self) -> String {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| *name).collect();
        names.join(";")
    }

    fn canonical(&self) -> String {
        let headers: String = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let payload = hex(&Sha256::digest(self.payload));
        format!(
            "{}\n{}\n{}\n{headers}\n{}\n{payload}",
            self.method,
            self.path,
            self.query,
            self.signed_headers(),
        )
    }

    fn text_to_sign(&self, scope: Scope<'_>) -> String {
        let canonical = hex(&Sha256::digest(self.canonical()));
        let (time, scope) = (scope.time, scope.text());
        format!("{ALGORITHM}\n{time}\n{scope}\n{canonical}")
    }
}

// === impl Scope ===

impl Scope<'_> {
    fn date(&self) -> &str {
        self.time.split('T').next().unwrap_or_default()
    }

    fn text(&self) -> String {
        let (date, region, service) = (self.date(), self.region, self.service);
        format!("{date}/{region}/{service}/{TERMINATOR}")
    }

    /// The key of this scope: it is worth nothing on another day, in another region or for another service.
    fn key(&self, secret: &str) -> Vec<u8> {
        let first = format!("AWS4{secret}").into_bytes();
        let parts = [self.date(), self.region, self.service, TERMINATOR];
        parts.iter().fold(first, |key, part| mac(&key, part))
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "20150830T123600Z";

    fn keys() -> Keys {
        Keys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        }
    }

    fn scope(service: &'static str) -> Scope<'static> {
        Scope {
            time: TIME,
            region: "us-east-1",
            service,
        }
    }

    #[test]
    fn the_published_vectors_have_their_signatures() {
        let form = "application/x-www-form-urlencoded";
        let (host, date) = (("host", "example.amazonaws.com"), ("x-amz-date", TIME));
        let plain = [host, date];
        let with_form = [("content-type", form), host, date];
        // get-vanilla, post-vanilla and post-x-www-form-urlencoded of the test suite.
        for (method, headers, payload, signature) in [
            (
                "GET",
                &plain[..],
                "",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                &plain,
                "",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "POST",
                &with_form,
                "Param1=value1",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let request = Request {
                method,
                path: "/",
                query: "",
                headers,
                payload: payload.as_bytes(),
            };
            let authorization = request.authorization(scope("service"), &keys());
            let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
            let wanted = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders={}, Signature={signature}",
                names.join(";")
            );
            assert_eq!(authorization, wanted, "{method} {payload}");
        }
    }

    #[test]
    fn the_documented_example_has_its_hash_key_and_signature() {
        let headers = [
            (
                "content-type",
                "application/x-www-form-urlencoded; charset=utf-8",
            ),
            ("host", "iam.amazonaws.com"),
            ("x-amz-date", TIME),
        ];
        let request = Request {
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &headers,
            payload: b"",
        };
        assert_eq!(
            hex(&Sha256::digest(request.canonical())),
            "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59"
        );
        assert_eq!(
            hex(&scope("iam").key(&keys().secret)),
            "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"
        );
        let authorization = request.authorization(scope("iam"), &keys());
        assert!(
            authorization.ends_with(
                "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
            ),
            "{authorization}"
        );
    }
}
