//! The credentials of senders.

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::mounted::MountedFile;
use crate::secret::Secret;

/// Grafana's default header for its signature.
pub const GRAFANA_HMAC_HEADER: &str = "X-Grafana-Alerting-Signature";

/// How far a signed time may be from the operator's, either way.
const TOLERANCE_SECONDS: i64 = 300;

/// Larger secret files are refused.
const LARGEST_SECRET: usize = 16 * 1024;

/// The credentials that a sender must show. A trigger without them is [`Credentials::Insecure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A signature over the body (and the time).
    Hmac {
        /// Mounted file with the secret; one more a line.
        secret_file: MountedFile,
        /// The header with the signature in hex.
        header: HeaderName,
        /// The header with the time in Unix seconds; without it the time is not checked.
        timestamp_header: Option<HeaderName>,
    },
    /// `Authorization: Bearer`.
    Bearer {
        /// Mounted file with the token; one more a line.
        token_file: MountedFile,
    },
    /// The certificate of the sender, which the handshake verified.
    Certificate,
    /// Every client may send.
    Insecure,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The sender shows no credentials, or wrong ones.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// The secret cannot be read.
    #[error("the secret of this trigger cannot be read")]
    NoSecret(String),
}

/// The state after the header, before the body is read.
#[derive(Debug)]
pub(super) enum Check {
    /// The credentials are right.
    Passed,
    /// The body has to match a signature.
    Body {
        keys: Vec<Secret>,
        signature: [u8; 32],
        /// `<timestamp>:`, signed before the body.
        prefix: String,
    },
}

// === impl Credentials ===

impl Credentials {
    /// Whether a sender is known before its body is read. A signature is one of the body.
    pub(super) fn are_checked_before_the_body(&self) -> bool {
        match self {
            Self::Bearer { .. } | Self::Certificate => true,
            Self::Hmac { .. } | Self::Insecure => false,
        }
    }

    /// Checks the header, so that the body of an unknown sender is never read.
    pub(super) async fn check_header(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Check, Refusal> {
        match self {
            Self::Certificate | Self::Insecure => Ok(Check::Passed),
            Self::Bearer { token_file } => {
                let shown = bearer(headers)?;
                let known = secrets(token_file).await?;
                if is_one_of(shown, &known) {
                    Ok(Check::Passed)
                } else {
                    Err(Refusal::Unauthorized(
                        "the bearer token is not the right one",
                    ))
                }
            }
            Self::Hmac {
                secret_file,
                header,
                timestamp_header,
            } => {
                let shown = only(headers, header).ok_or(Refusal::Unauthorized(
                    "the signature header is missing or doubled",
                ))?;
                let signature = hex(shown).ok_or(Refusal::Unauthorized(
                    "the signature is not a SHA-256 HMAC in hex",
                ))?;
                let prefix = match timestamp_header {
                    Some(header) => {
                        let time = only(headers, header).ok_or(Refusal::Unauthorized(
                            "the timestamp header is missing or doubled",
                        ))?;
                        check_time(time, now)?;
                        format!("{time}:")
                    }
                    None => String::new(),
                };
                Ok(Check::Body {
                    keys: secrets(secret_file).await?,
                    signature,
                    prefix,
                })
            }
        }
    }
}

// === impl Check ===

impl Check {
    /// Checks the body, as received.
    pub(super) fn body(&self, body: &[u8]) -> Result<(), Refusal> {
        let Self::Body {
            keys,
            signature,
            prefix,
        } = self
        else {
            return Ok(());
        };
        let signed = keys.iter().any(|key| {
            // HMAC takes keys of any length.
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.expose().as_bytes()) else {
                return false;
            };
            mac.update(prefix.as_bytes());
            mac.update(body);
            mac.verify_slice(signature).is_ok()
        });
        if signed {
            Ok(())
        } else {
            Err(Refusal::Unauthorized(
                "the signature does not match the body",
            ))
        }
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    only(headers, &http::header::AUTHORIZATION)
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or(Refusal::Unauthorized(
            "send the token as Authorization: Bearer",
        ))
}

/// Compares digests, so that the time does not depend on the secret's length either.
pub(crate) fn is_one_of(shown: &str, known: &[Secret]) -> bool {
    let shown = Sha256::digest(shown.as_bytes());
    let mut found = subtle::Choice::from(0);
    for secret in known {
        found |= shown.ct_eq(&Sha256::digest(secret.expose().as_bytes()));
    }
    found.into()
}

fn check_time(time: &str, now: Timestamp) -> Result<(), Refusal> {
    let seconds: i64 = time
        .parse()
        .map_err(|_| Refusal::Unauthorized("the timestamp header does not hold Unix seconds"))?;
    let off = i128::from(seconds) - i128::from(now.as_second());
    if off.abs() > i128::from(TOLERANCE_SECONDS) {
        return Err(Refusal::Unauthorized(
            "the request was signed more than five minutes from now",
        ));
    }
    Ok(())
}

/// The text of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

/// A digest in hex, with the name of the hash before it as some senders write it.
fn hex(text: &str) -> Option<[u8; 32]> {
    let text = text.strip_prefix("sha256=").unwrap_or(text).as_bytes();
    if text.len() != 64 {
        return None;
    }
    let mut bytes = [0_u8; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| (pair[at] as char).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

/// Reads a mounted secret again for each request: a rotated one counts at once.
pub(crate) async fn secrets(file: &MountedFile) -> Result<Vec<Secret>, Refusal> {
    let unreadable = |why: String| Refusal::NoSecret(format!("{file}: {why}"));
    let mounted = file.clone();
    let read = tokio::task::spawn_blocking(move || mounted.text()).await;
    let text = read
        .map_err(|error| unreadable(error.to_string()))?
        .map_err(|error| unreadable(error.to_string()))?;
    if text.len() > LARGEST_SECRET {
        return Err(unreadable("it is too large for a secret".into()));
    }
    let secrets: Vec<Secret> = text
        .lines()
        .map(Secret::new)
        .filter(|secret| !secret.is_empty())
        .collect();
    if secrets.is_empty() {
        return Err(unreadable("it is empty".into()));
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const BODY: &[u8] = br#"{"status":"firing","alerts":[]}"#;
    const PLAIN: &str = "aecf38b515928abd5374263edc754ad9a32c22e099dc08b3210ca68ae45cbf30";
    const TIMED: &str = "11cee29848aae61df866874242bf1677ed81f07fb4652929b9e2fb95068516b5";

    /// A file in the system's temporary folder that goes with the value.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ipblock-{}-{name}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn hmac(file: &File, timed: bool) -> Credentials {
        Credentials::Hmac {
            secret_file: MountedFile::alone(&file.0),
            header: HeaderName::try_from(GRAFANA_HMAC_HEADER).unwrap(),
            timestamp_header: timed.then(|| HeaderName::from_static("x-time")),
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    type Pairs = [(&'static str, &'static str)];

    async fn verdict(
        credentials: &Credentials,
        pairs: &[(&'static str, &str)],
        now: i64,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let now = Timestamp::from_second(now).unwrap();
        let check = credentials.check_header(&headers(pairs), now).await?;
        check.body(body)
    }

    const SIGNATURE: &str = "x-grafana-alerting-signature";

    #[tokio::test]
    async fn grafanas_signatures_are_accepted_with_and_without_time() {
        let file = File::new("vectors", "s3cr3t\n");
        let now = 1_700_000_000;
        let named = format!("sha256={PLAIN}");
        for shown in [PLAIN, &named] {
            let plain = verdict(&hmac(&file, false), &[(SIGNATURE, shown)], now, BODY).await;
            assert_eq!(plain, Ok(()), "{shown}");
        }
        for (off, good) in [
            (0, true),
            (300, true),
            (-300, true),
            (301, false),
            (-301, false),
        ] {
            let pairs = [(SIGNATURE, TIMED), ("x-time", "1700000000")];
            let timed = verdict(&hmac(&file, true), &pairs, now + off, BODY).await;
            assert_eq!(timed.is_ok(), good, "{off}: {timed:?}");
        }
    }

    #[tokio::test]
    async fn a_wrong_missing_or_downgraded_signature_is_refused() {
        let file = File::new("wrong", "s3cr3t");
        let now = 1_700_000_000;
        let table: &[(bool, &Pairs, &[u8])] = &[
            (false, &[], BODY),
            (false, &[(SIGNATURE, PLAIN)], b"{}"),
            (false, &[(SIGNATURE, TIMED)], BODY),
            (false, &[(SIGNATURE, "zz")], BODY),
            (false, &[(SIGNATURE, PLAIN), (SIGNATURE, PLAIN)], BODY),
            // A signature without time must not pass where a time is asked for.
            (true, &[(SIGNATURE, PLAIN)], BODY),
            (true, &[(SIGNATURE, PLAIN), ("x-time", "1700000000")], BODY),
            (true, &[(SIGNATURE, TIMED), ("x-time", "1700000001")], BODY),
            (true, &[(SIGNATURE, TIMED), ("x-time", "now")], BODY),
        ];
        for (timed, pairs, body) in table {
            let verdict = verdict(&hmac(&file, *timed), pairs, now, body).await;
            assert!(
                matches!(verdict, Err(Refusal::Unauthorized(_))),
                "{pairs:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_captured_request_with_a_signed_time_is_worthless_after_five_minutes() {
        let file = File::new("replay", "s3cr3t");
        let sent = 1_700_000_000;
        // The captured time cannot be moved on: it is signed with the body.
        for (shown, now, good) in [
            (sent, sent, true),
            (sent, sent + 300, true),
            (sent, sent + 301, false),
            (sent, sent + 86_400, false),
            (sent + 86_400, sent + 86_400, false),
        ] {
            let time = shown.to_string();
            let pairs = [(SIGNATURE, TIMED), ("x-time", time.as_str())];
            let verdict = verdict(&hmac(&file, true), &pairs, now, BODY).await;
            assert_eq!(verdict.is_ok(), good, "{shown} at {now}: {verdict:?}");
        }
    }

    #[tokio::test]
    async fn two_secrets_are_alive_during_a_rotation() {
        let file = File::new("rotation", "new-secret\n\n s3cr3t \n");
        let rotated = verdict(&hmac(&file, false), &[(SIGNATURE, PLAIN)], 0, BODY).await;
        assert_eq!(rotated, Ok(()));
        let bearer = Credentials::Bearer {
            token_file: MountedFile::alone(&file.0),
        };
        for (shown, good) in [
            ("Bearer s3cr3t", true),
            ("bearer new-secret", true),
            ("Bearer s3cr3", false),
            ("Bearer ", false),
            ("Basic s3cr3t", false),
        ] {
            let verdict = verdict(&bearer, &[("authorization", shown)], 0, BODY).await;
            assert_eq!(verdict.is_ok(), good, "{shown}");
        }
    }

    #[tokio::test]
    async fn an_empty_or_missing_secret_accepts_no_sender() {
        let file = File::new("empty", "\n \n");
        let gone = Credentials::Bearer {
            token_file: MountedFile::alone("/nonexistent/token"),
        };
        let pairs = [("authorization", "Bearer ")];
        for credentials in [
            gone,
            Credentials::Bearer {
                token_file: MountedFile::alone(&file.0),
            },
        ] {
            let verdict = verdict(&credentials, &pairs, 0, BODY).await;
            assert!(matches!(verdict, Err(Refusal::NoSecret(_))), "{verdict:?}");
        }
    }
}
