//! Refusals: what the error bodies of the API say.

/// The reason why a call was refused: a status, a code for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// The status of the HTTP answer.
    pub status: u16,
    /// The code, which clients decide by.
    pub code: String,
    /// The message.
    pub message: String,
}

// === impl Refusal ===

impl Refusal {
    /// A refusal of any kind.
    #[must_use]
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn missing(name: &str) -> Self {
        let message = format!("The parameter {name} is required and was not sent.");
        Self::new(400, "MissingParameter", message)
    }

    pub(crate) fn invalid(name: &str) -> Self {
        let message = format!("The value of the parameter {name} is not valid.");
        Self::new(400, "InvalidParameter", message)
    }

    pub(crate) fn unknown_action(name: &str) -> Self {
        let message = format!("The action {name} does not exist in this version.");
        Self::new(404, "InvalidAction.NotFound", message)
    }

    pub(crate) fn throttled() -> Self {
        Self::new(
            400,
            "Throttling.User",
            "The account sent too many requests; send this one again later.",
        )
    }

    pub(super) fn no_balancer(id: &str) -> Self {
        let message = format!("The load balancer {id} does not exist.");
        Self::new(404, "InvalidLoadBalancerId.NotFound", message)
    }

    /// The vendor has no code of its own for it: clients read the message.
    pub(super) fn no_listener() -> Self {
        let message = "The specified resource does not exist.";
        Self::new(400, "InvalidParameter", message)
    }

    /// As [`Refusal::no_listener`].
    pub(super) fn no_group() -> Self {
        let message = "The specified VServerGroupId does not exist.";
        Self::new(400, "InvalidParameter", message)
    }

    pub(super) fn no_access_list(id: &str) -> Self {
        let message = format!("The access control list {id} does not exist.");
        Self::new(400, "AclNotExist", message)
    }

    pub(super) fn no_certificate(id: &str) -> Self {
        let message = format!("The server certificate {id} does not exist.");
        Self::new(404, "ServerCertificateId.NotFound", message)
    }

    pub(super) fn quota(code: &str, what: &str, most: usize) -> Self {
        Self::new(400, code, format!("There can be at most {most} {what}."))
    }

    pub(super) fn busy_balancer() -> Self {
        let message = "The load balancer is being configured; try again later.";
        Self::new(400, "ServiceIsConfiguring", message)
    }

    pub(super) fn busy_listener() -> Self {
        Self::new(
            400,
            "OperationFailed.ListenerStatusNotSupport",
            "The listener is being configured; try again later.",
        )
    }

    pub(super) fn busy_group() -> Self {
        let message = "The backend servers are being configured; try again later.";
        Self::new(400, "BackendServer.configuring", message)
    }
}
