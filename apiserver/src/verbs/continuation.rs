//! The token of a paged list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::json_text;
use crate::status::Status;

/// The position of a continued list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// The version of the first page; `None` continues with the current state.
    pub(crate) version: Option<u64>,
    /// The last key of the previous page, without the prefix of the collection.
    pub(crate) after: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

const FORM: &str = "meta.k8s.io/v1";

// === impl Continuation ===

impl Continuation {
    /// The text for clients.
    pub(crate) fn encode(&self) -> String {
        let token = Token {
            v: FORM.to_owned(),
            rv: self
                .version
                .map_or(-1, |version| i64::try_from(version).unwrap_or(i64::MAX)),
            start: format!("/{}\0", self.after),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_string(&token).unwrap_or_default())
    }

    /// Decodes the text of a client.
    ///
    /// # Errors
    /// 400 when it is not a token of this server.
    pub(crate) fn decode(text: &str) -> Result<Self, Status> {
        let refuse = |why: String| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|error| refuse(error.to_string()))?;
        json_text::parse(&bytes).map_err(|error| refuse(error.to_string()))?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
        if token.v != FORM {
            return Err(refuse(format!(
                "server does not recognize this encoded version {}",
                token.v
            )));
        }
        if token.rv == 0 {
            return Err(refuse(format!(
                "incorrect encoded start resourceVersion (version {FORM})"
            )));
        }
        if token.start.is_empty() {
            return Err(refuse(format!(
                "encoded start key is empty (version {FORM})"
            )));
        }
        Ok(Self {
            version: u64::try_from(token.rv).ok(),
            after: token
                .start
                .trim_start_matches('/')
                .trim_end_matches('\0')
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_as_it_was_written() {
        for version in [Some(7), None] {
            let token = Continuation {
                version,
                after: "a/b".to_owned(),
            };
            assert_eq!(Continuation::decode(&token.encode()).unwrap(), token);
        }
    }

    #[test]
    fn rubbish_is_a_bad_request() {
        for text in ["%%%", "e30", "abc"] {
            assert_eq!(Continuation::decode(text).unwrap_err().code, 400, "{text}");
        }
    }
}
