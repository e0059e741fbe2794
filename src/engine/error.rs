//! Why a ban or an unban is not confirmed.

use std::time::Duration;

use crate::outbound;

/// The fault of an engine call, in words for a status message.
///
/// The text holds nothing that changes between attempts (no ports of ours, no counters, no times), so
/// that a lasting fault writes one status and one Event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There was no answer.
    #[error("gateway {gateway}: {}", no_answer(cause))]
    NoAnswer {
        /// `host:port`.
        gateway: String,
        /// The fault of the connection.
        cause: outbound::Error,
    },
    /// The answer has an error status.
    #[error("gateway {gateway} answered HTTP {code}{}", after_colon(detail))]
    Status {
        /// `host:port`.
        gateway: String,
        /// The HTTP status.
        code: u16,
        /// The start of the answer.
        detail: String,
    },
    /// The gateway answered that it failed (with HTTP 200).
    #[error("gateway {gateway} failed{}", after_colon(detail))]
    Failed {
        /// `host:port`.
        gateway: String,
        /// The gateway's text.
        detail: String,
    },
    /// The answer is not one of this engine's.
    #[error(
        "gateway {gateway} gave an answer that is not understood{}",
        after_colon(detail)
    )]
    Undecodable {
        /// `host:port`.
        gateway: String,
        /// The start of the answer.
        detail: String,
    },
    /// Not called: the gateway failed repeatedly a moment ago. Reads as the last failure does.
    #[error("{last}")]
    Open {
        /// The error of the last call.
        last: Box<Error>,
        /// When the gateway is tried again.
        retry_after: Duration,
    },
}

// === impl Error ===

impl Error {
    /// One word for conditions and Events, stable for a lasting fault.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        use outbound::Error as Cause;
        match self {
            Self::NoAnswer { cause, .. } => match cause {
                Cause::Refused => "GatewayRefused",
                Cause::Reset => "GatewayReset",
                Cause::ConnectTimeout(_) | Cause::Timeout(_) => "GatewayTimeout",
                Cause::Unreachable => "GatewayUnreachable",
                Cause::Unresolved(_) => "GatewayUnresolved",
                Cause::Forbidden(_) | Cause::Url(_) => "GatewayForbidden",
                Cause::Tls(_) => "GatewayTLS",
                Cause::TooLarge(_) | Cause::Other(_) => "GatewayError",
            },
            Self::Status { .. } => "GatewayError",
            Self::Failed { .. } => "GatewayFailed",
            Self::Undecodable { .. } => "GatewayAnswer",
            Self::Open { last, .. } => last.reason(),
        }
    }

    /// A label value for metrics: which kind of outcome, not which fault exactly.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        use outbound::Error as Cause;
        match self {
            Self::NoAnswer { cause, .. } => match cause {
                Cause::Refused => "refused",
                Cause::Reset => "reset",
                Cause::ConnectTimeout(_) | Cause::Timeout(_) => "timeout",
                Cause::TooLarge(_) => "undecodable",
                _ => "unreachable",
            },
            Self::Status { .. } => "status",
            Self::Failed { .. } => "failed",
            Self::Undecodable { .. } => "undecodable",
            Self::Open { .. } => "not_called",
        }
    }

    /// Whether the answer is longer than what is read of one.
    pub(crate) fn is_too_long(&self) -> bool {
        let Self::NoAnswer { cause, .. } = self else {
            return false;
        };
        matches!(cause, outbound::Error::TooLarge(_))
    }

    /// Whether it is a fault of the gateway as a whole rather than of this one target.
    #[must_use]
    pub fn is_gateway_fault(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => !self.is_too_long(),
            Self::Open { .. } => true,
            Self::Status { code, .. } => *code >= 500 || *code == 429,
            Self::Failed { .. } | Self::Undecodable { .. } => false,
        }
    }

    /// Whether the call may have taken effect: it was sent, and not refused.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        use outbound::Error as Cause;
        match self {
            Self::NoAnswer { cause, .. } => match cause {
                Cause::Reset | Cause::Timeout(_) | Cause::TooLarge(_) | Cause::Other(_) => true,
                Cause::Refused
                | Cause::Unreachable
                | Cause::Unresolved(_)
                | Cause::ConnectTimeout(_)
                | Cause::Forbidden(_)
                | Cause::Url(_)
                | Cause::Tls(_) => false,
            },
            Self::Status { code, .. } => !(400..500).contains(code) || matches!(code, 408 | 499),
            Self::Failed { .. } | Self::Undecodable { .. } => true,
            Self::Open { .. } => false,
        }
    }

    /// The same without a word of the answer, for statuses that users read: the address of a gateway that is not
    /// configured any more may belong to another service by now.
    #[must_use]
    pub fn without_answer(self) -> Self {
        match self {
            Self::Status { gateway, code, .. } => Self::Status {
                gateway,
                code,
                detail: String::new(),
            },
            Self::Failed { gateway, .. } => Self::Failed {
                gateway,
                detail: String::new(),
            },
            Self::Undecodable { gateway, .. } => Self::Undecodable {
                gateway,
                detail: String::new(),
            },
            Self::Open { last, retry_after } => Self::Open {
                last: Box::new(last.without_answer()),
                retry_after,
            },
            // No answer was read.
            other @ Self::NoAnswer { .. } => other,
        }
    }
}

fn no_answer(cause: &outbound::Error) -> String {
    match cause {
        // To a reader the two deadlines, and calls that were given up before either, are the same fault.
        outbound::Error::Timeout(_) | outbound::Error::ConnectTimeout(_) => {
            "no answer in time".to_owned()
        }
        other => other.to_string(),
    }
}

fn after_colon(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(": {detail}")
    }
}

/// The start of a gateway's text, fit for a status message: one line, no control characters, at most
/// 160 characters.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 160;
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        for character in word.chars() {
            if length >= LONGEST {
                line.push('…');
                return line;
            }
            line.push(character);
            length += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_long_is_no_fault_of_the_gateway() {
        let error = |cause| Error::NoAnswer {
            gateway: "g:1".into(),
            cause,
        };
        let long = error(outbound::Error::TooLarge(65_536));
        assert_eq!(
            (long.is_gateway_fault(), long.outcome()),
            (false, "undecodable")
        );
        assert!(error(outbound::Error::Reset).is_gateway_fault());
    }

    #[test]
    fn an_open_breaker_reads_as_the_last_failure() {
        let last = Error::NoAnswer {
            gateway: "g:1".into(),
            cause: outbound::Error::Refused,
        };
        let open = Error::Open {
            last: Box::new(last.clone()),
            retry_after: Duration::from_secs(2),
        };
        assert_eq!(open.to_string(), last.to_string());
        assert_eq!(open.reason(), last.reason());
        assert_eq!(open.to_string(), "gateway g:1: connection refused");
    }

    #[test]
    fn a_gateways_text_becomes_one_short_line() {
        assert_eq!(excerpt("a\r\n\tb\u{1b}[0m  c"), "a b [0m c");
        let long = excerpt(&"é".repeat(5000));
        assert_eq!(long.chars().count(), 161);
    }

    #[test]
    fn an_error_without_the_answer_keeps_its_reason_and_no_word_of_it() {
        let (gateway, detail) = ("g:1".to_owned(), "canary".to_owned());
        let status = Error::Status {
            gateway: gateway.clone(),
            code: 500,
            detail: detail.clone(),
        };
        let failed = Error::Failed {
            gateway: gateway.clone(),
            detail: detail.clone(),
        };
        let undecodable = Error::Undecodable { gateway, detail };
        for (error, text) in [
            (status, "gateway g:1 answered HTTP 500"),
            (failed, "gateway g:1 failed"),
            (
                undecodable,
                "gateway g:1 gave an answer that is not understood",
            ),
        ] {
            let open = Error::Open {
                last: Box::new(error.clone()),
                retry_after: Duration::from_secs(2),
            };
            for error in [error, open] {
                assert!(error.to_string().contains("canary"));
                let short = error.clone().without_answer();
                assert_eq!(short.to_string(), text);
                assert_eq!(short.reason(), error.reason());
                let pause = |error: &Error| match error {
                    Error::Open { retry_after, .. } => Some(*retry_after),
                    _ => None,
                };
                assert_eq!(pause(&short), pause(&error));
            }
        }
    }

    #[test]
    fn a_call_that_was_refused_or_not_sent_had_no_effect_and_any_other_may_have_had_one() {
        let gateway = || "gateway:1".to_owned();
        let no_answer = |cause| Error::NoAnswer {
            gateway: gateway(),
            cause,
        };
        let status = |code| Error::Status {
            gateway: gateway(),
            code,
            detail: String::new(),
        };
        let limit = Duration::from_secs(1);
        for (error, expected) in [
            (no_answer(outbound::Error::Reset), true),
            (no_answer(outbound::Error::Timeout(limit)), true),
            (no_answer(outbound::Error::ConnectTimeout(limit)), false),
            (no_answer(outbound::Error::Refused), false),
            (no_answer(outbound::Error::Tls("expired".into())), false),
            (status(204), true),
            (status(302), true),
            (status(403), false),
            (status(408), true),
            (status(503), true),
        ] {
            assert_eq!(error.may_have_happened(), expected, "{error:?}");
            let open = Error::Open {
                last: Box::new(error),
                retry_after: limit,
            };
            assert!(!open.may_have_happened());
        }
    }
}
