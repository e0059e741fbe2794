//! What a handler decides.

use std::collections::BTreeMap;

/// A decision about a request: allow or deny, with warnings for the client and annotations for the audit log.
///
/// ```
/// use reeve_webhook::admission::{Cause, Verdict};
/// let verdict = Verdict::deny("replicas must be odd")
///     .code(422)
///     .reason("Invalid")
///     .cause(Cause::new("spec.replicas", "FieldValueInvalid", "4 is even"))
///     .warn("spec.size is deprecated: use spec.replicas")
///     .audit("rule", "odd-replicas");
/// assert!(!verdict.is_allowed());
/// ```
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub(super) denial: Option<Denial>,
    pub(super) warnings: Vec<String>,
    pub(super) audit: BTreeMap<String, String>,
}

/// The reason of a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) causes: Vec<Cause>,
}

/// One cause of a denial: a field and its problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub(super) field: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// A decision of a mutating webhook: a verdict, and the object that it wants in place of the one of the request.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use reeve_webhook::admission::{Mutation, Verdict};
/// let unchanged: Mutation<ConfigMap> = Mutation::unchanged();
/// let changed = Mutation::changed(ConfigMap::default()).warn("the map was emptied");
/// let denied: Mutation<ConfigMap> = Verdict::deny("no maps here").into();
/// assert_ne!(unchanged, denied);
/// # let _ = changed;
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation<K> {
    pub(super) verdict: Verdict,
    pub(super) object: Option<K>,
}

// === impl Verdict ===

impl Verdict {
    /// Allows the request.
    pub fn allow() -> Self {
        Self::default()
    }

    /// Denies the request with code 403 and the reason `Forbidden` (controller-runtime: `admission.Denied`). The client
    /// sees `admission webhook "…" denied the request: ` and `message`.
    pub fn deny(message: impl Into<String>) -> Self {
        Self {
            denial: Some(Denial {
                code: 403,
                reason: "Forbidden".to_owned(),
                message: message.into(),
                causes: Vec::new(),
            }),
            ..Self::default()
        }
    }

    /// Allows the request if there are no causes. Otherwise denies it with code 422, the reason `Invalid` and the causes, as
    /// validation of the API server does.
    pub fn of_causes(causes: impl IntoIterator<Item = Cause>) -> Self {
        let causes: Vec<Cause> = causes.into_iter().collect();
        if causes.is_empty() {
            return Self::allow();
        }
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let verdict = Self::deny(texts.join(", ")).code(422).reason("Invalid");
        causes.into_iter().fold(verdict, Self::cause)
    }

    /// Sets the HTTP code of a denial, 400 or above: the API server makes lower ones 400. No effect on an allowed request.
    pub fn code(mut self, code: u16) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.code = code;
        }
        self
    }

    /// Sets the machine-readable reason of a denial. kubectl prints it in parentheses, and nothing if it is empty. No effect
    /// on an allowed request.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.reason = reason.into();
        }
        self
    }

    /// Adds a cause to a denial. No effect on an allowed request.
    pub fn cause(mut self, cause: Cause) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.causes.push(cause);
        }
        self
    }

    /// Adds a warning that the client shows, also with a denial. A text is put on one line and cut after
    /// [`WARNING_LENGTH`](super::WARNING_LENGTH) characters; at most [`MOST_WARNINGS`](super::MOST_WARNINGS) are sent.
    pub fn warn(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }

    /// Adds an annotation for the audit log, where its name is `webhook name/name`. The name is letters, digits, `-`, `_`
    /// and `.`, at most 63; an annotation with another name is logged and dropped.
    pub fn audit(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(name.into(), value.into());
        self
    }

    /// Whether it allows the request.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// Both decisions: the first denial, all warnings and annotations (controller-runtime: `MultiValidatingHandler`).
    pub fn and(mut self, other: Self) -> Self {
        self.denial = self.denial.or(other.denial);
        self.warnings.extend(other.warnings);
        self.audit.extend(other.audit);
        self
    }
}

// === impl Cause ===

impl Cause {
    /// A problem of `field`, such as `spec.replicas`. The reason is a word for machines, such as `FieldValueInvalid`.
    #[must_use]
    pub fn new(
        field: impl Into<String>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

// === impl Mutation ===

impl<K> Mutation<K> {
    /// Allows the request and leaves the object as it is.
    pub fn unchanged() -> Self {
        Verdict::allow().into()
    }

    /// Allows the request with `object` in place of its object. The patch is the difference of both; an equal object makes
    /// none. Fields of the request that `K` does not have stay. Items of lists are paired with those that they were: equal
    /// ones first, then those of one `name` in their order, then those at one place.
    ///
    /// The object of a deletion or of a connection cannot be changed; it may be returned as it is.
    pub fn changed(object: K) -> Self {
        Self {
            verdict: Verdict::allow(),
            object: Some(object),
        }
    }

    /// Denies the request, see [`Verdict::deny`].
    pub fn deny(message: impl Into<String>) -> Self {
        Verdict::deny(message).into()
    }

    /// See [`Verdict::warn`].
    pub fn warn(mut self, text: impl Into<String>) -> Self {
        self.verdict = self.verdict.warn(text);
        self
    }

    /// See [`Verdict::audit`].
    pub fn audit(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.verdict = self.verdict.audit(name, value);
        self
    }
}

impl<K> From<Verdict> for Mutation<K> {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            object: None,
        }
    }
}
