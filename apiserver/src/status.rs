//! The error of every verb: a Kubernetes `Status`, with Kubernetes' texts.
//!
//! Each constructor is named for its `reason`; the texts are those of apimachinery's `errors`
//! package, because people and programs match on them.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::field::{self, FieldError};

/// The answer to a failed request. Boxed, because every `Result` carries it.
#[derive(Clone, Debug)]
pub(crate) struct Status(Box<Failure>);

/// The content of a [`Status`].
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// The machine-readable reason, such as `NotFound`; empty when there is none.
    pub(crate) reason: Cow<'static, str>,
    /// The text for people.
    pub(crate) message: String,
    /// `details`, where there are any.
    pub(crate) details: Option<Details>,
    /// `metadata.continue`: with 410 on an expired page, a token to continue inconsistently.
    pub(crate) continue_token: Option<String>,
    /// Answer in text/plain, as priority and fairness does with its 429, not as a Status document.
    pub(crate) plain_text: bool,
    /// Extra headers of the answer.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// `details` of a Status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    /// The object's name.
    pub(crate) name: String,
    /// Its group; empty for the core group.
    pub(crate) group: String,
    /// Its plural resource (of most reasons) or its kind (of `Invalid`).
    pub(crate) kind: String,
    /// Its uid.
    pub(crate) uid: String,
    /// One cause per field or precondition.
    pub(crate) causes: Vec<Cause>,
    /// Seconds to wait before another try; also the `Retry-After` header.
    pub(crate) retry_after_seconds: Option<u32>,
}

/// One cause in [`Details`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    /// Machine-readable, such as `FieldValueInvalid`.
    pub(crate) reason: String,
    /// The text for people.
    pub(crate) message: String,
    /// The field of the error, if there is one.
    pub(crate) field: String,
}

/// The place of Go's table of types, as its texts name it.
pub(crate) const SCHEME: &str = "scheme \"pkg/runtime/scheme.go:111\"";

/// A resource of a group, as texts show it: `plural` or `plural.group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupResource<'a> {
    /// The group; empty for core.
    pub(crate) group: &'a str,
    /// The plural resource.
    pub(crate) resource: &'a str,
}

// === impl GroupResource ===

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

// === impl Status ===

impl Status {
    /// A failure of `code` with `reason` and `message` only.
    pub(crate) fn new(
        code: u16,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self(Box::new(Failure {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            continue_token: None,
            plain_text: false,
            headers: Vec::new(),
        }))
    }

    /// The same with another code and reason.
    pub(crate) fn with_code(mut self, code: u16, reason: &'static str) -> Self {
        self.0.code = code;
        self.0.reason = reason.into();
        self
    }

    /// The same with another message and reason.
    pub(crate) fn with_text(mut self, message: String, reason: &'static str) -> Self {
        self.0.message = message;
        self.0.reason = reason.into();
        self
    }

    /// The same with `details`.
    pub(crate) fn with_details(mut self, details: Details) -> Self {
        self.0.details = Some(details);
        self
    }

    /// The same with a wait before another try, in `details` and in the `Retry-After` header.
    pub(crate) fn with_retry_after(mut self, seconds: u32) -> Self {
        self.0
            .details
            .get_or_insert_with(Details::default)
            .retry_after_seconds = Some(seconds);
        self
    }

    /// The same with one more cause.
    pub(crate) fn with_cause(
        mut self,
        reason: impl Into<String>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        self.0
            .details
            .get_or_insert_with(Details::default)
            .causes
            .push(Cause {
                reason: reason.into(),
                message: message.into(),
                field: field.into(),
            });
        self
    }

    /// 404: the object does not exist.
    pub(crate) fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found"))
            .with_details(Details::of(resource, name))
    }

    /// 404: no such resource, or no such path of a known group (`could not find the requested resource`).
    pub(crate) fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(Details::default())
    }

    /// 409: an object of the name exists.
    pub(crate) fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{resource} \"{name}\" already exists"),
        )
        .with_details(Details::of(resource, name))
    }

    /// 409: the object is not in the state that the writer expected. `why` is the text after the object's name.
    pub(crate) fn conflict(
        resource: GroupResource<'_>,
        name: &str,
        why: impl fmt::Display,
    ) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .with_details(Details::of(resource, name))
    }

    /// 409: another write came after the client's read.
    pub(crate) fn modified(resource: GroupResource<'_>, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422: fields of the object are invalid. Here `kind` is the kind, not the resource.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let group_kind = GroupResource {
            group,
            resource: kind,
        };
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason().to_owned(),
                message: error.body(),
                field: error.path.to_string(),
            })
            .collect();
        Self::new(
            422,
            "Invalid",
            field::invalid_message(group, kind, name, errors),
        )
        .with_details(Details {
            causes,
            ..Details::of(group_kind, name)
        })
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403. An empty `name` is left out of the text, as for lists and creations with a generated name.
    pub(crate) fn forbidden(
        resource: GroupResource<'_>,
        name: &str,
        why: impl fmt::Display,
    ) -> Self {
        let message = if resource.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).with_details(Details::of(resource, name))
    }

    /// 401.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 405: the resource has no such verb. `action` is `create`, `delete`, `patch`, …
    pub(crate) fn method_not_allowed(resource: GroupResource<'_>, action: &str) -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{action} is not supported on resources of kind \"{resource}\""),
        )
        .with_details(Details::of(resource, ""))
    }

    /// 405 for a path whose resource has no handler for the HTTP method.
    pub(crate) fn method_not_supported_here() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(Details::default())
    }

    /// 406: none of the types the client accepts can be served.
    pub(crate) fn not_acceptable(accepted: &[&str]) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!(
                "only the following media types are accepted: {}",
                accepted.join(", ")
            ),
        )
    }

    /// 406: none of the types the client accepts is known.
    pub(crate) fn nothing_acceptable(available: &[&str]) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!(
                "406: Not Acceptable\n\nAvailable representations: {}",
                available.join(", ")
            ),
        )
        .with_details(Details::default())
    }

    /// 415: the body's media type is not one of `accepted`.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// 410, reason `Expired`: a resourceVersion or page token that is no longer in the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413. `why` such as `limit is 3145728`.
    pub(crate) fn too_large(why: impl fmt::Display) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {why}"),
        )
    }

    /// 504: the server has not reached the requested resourceVersion in time.
    pub(crate) fn too_large_resource_version(asked: u64, current: u64) -> Self {
        Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .with_retry_after(1)
        .with_cause("ResourceVersionTooLarge", "", "Too large resource version")
    }

    /// 504: the request took too long.
    pub(crate) fn timeout() -> Self {
        let why = "request did not complete within requested timeout - context deadline exceeded";
        Self::new(504, "Timeout", format!("Timeout: {why}"))
    }

    /// 504 for a read.
    pub(crate) fn read_timeout() -> Self {
        let why = "request did not complete within the allotted timeout";
        Self::new(504, "Timeout", format!("Timeout: {why}"))
    }

    /// 500.
    pub(crate) fn internal(why: impl fmt::Display) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {why}"),
        )
        .with_cause("", "", why.to_string())
    }

    /// 500 with a bare text: an error that the real server does not wrap.
    pub(crate) fn internal_text(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// The `Status` document.
    pub(crate) fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), json!(token));
        }
        let mut document = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            document["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            document["details"] = details.to_value();
        }
        document
    }
}

impl std::ops::Deref for Status {
    type Target = Failure;

    fn deref(&self) -> &Failure {
        &self.0
    }
}

impl std::ops::DerefMut for Status {
    fn deref_mut(&mut self) -> &mut Failure {
        &mut self.0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

// === impl Details ===

impl Details {
    fn of(resource: GroupResource<'_>, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..Self::default()
        }
    }

    /// Reads the `details` of another server's Status, if there are any.
    pub(crate) fn read(details: &Value) -> Option<Self> {
        details.as_object()?;
        let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
        let causes = details["causes"].as_array().into_iter().flatten();
        Some(Self {
            name: text(details, "name"),
            group: text(details, "group"),
            kind: text(details, "kind"),
            uid: text(details, "uid"),
            causes: causes
                .map(|cause| Cause {
                    reason: text(cause, "reason"),
                    message: text(cause, "message"),
                    field: text(cause, "field"),
                })
                .collect(),
            retry_after_seconds: details["retryAfterSeconds"]
                .as_u64()
                .and_then(|seconds| u32::try_from(seconds).ok())
                .filter(|&seconds| seconds > 0),
        })
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                map.insert(key.to_owned(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self.causes.iter().map(Cause::to_value).collect();
            map.insert("causes".to_owned(), Value::Array(causes));
        }
        if let Some(seconds) = self.retry_after_seconds {
            map.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        Value::Object(map)
    }
}

// === impl Cause ===

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !text.is_empty() {
                map.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(map)
    }
}

/// The `Status` document of a successful DELETE.
pub(crate) fn success(resource: GroupResource<'_>, name: &str, uid: &str) -> Value {
    let details = Details {
        uid: uid.to_owned(),
        ..Details::of(resource, name)
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details.to_value(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{ErrorKind, Path};

    const CRONTABS: GroupResource<'static> = GroupResource {
        group: "stable.example.com",
        resource: "crontabs",
    };

    #[test]
    fn a_missing_object_is_named_with_its_resource_and_group() {
        let status = Status::not_found(CRONTABS, "x");
        assert_eq!(
            status.to_value(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "crontabs.stable.example.com \"x\" not found",
                "reason": "NotFound", "code": 404,
                "details": {"name": "x", "group": "stable.example.com", "kind": "crontabs"},
            })
        );
    }

    #[test]
    fn the_core_group_is_not_shown() {
        let pods = GroupResource {
            group: "",
            resource: "pods",
        };
        assert_eq!(
            Status::forbidden(pods, "", "no").message,
            "pods is forbidden: no"
        );
        assert_eq!(Status::not_found(pods, "a").message, "pods \"a\" not found");
    }

    #[test]
    fn several_field_errors_stand_in_brackets_and_each_is_a_cause() {
        let error = |field: &str| FieldError {
            kind: ErrorKind::Required,
            path: Path::new(field),
            value: None,
            detail: String::new(),
        };
        let status = Status::invalid("g.io", "Foo", "x", &[error("spec.a"), error("spec.b")]);
        assert_eq!(
            status.message,
            "Foo.g.io \"x\" is invalid: [spec.a: Required value, spec.b: Required value]"
        );
        assert_eq!(
            status.details.as_ref().map(|details| details.causes.len()),
            Some(2)
        );
    }

    #[test]
    fn a_version_from_the_future_says_what_is_current_and_when_to_try_again() {
        let status = Status::too_large_resource_version(9, 5);
        assert_eq!(
            status.to_value()["details"],
            json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            })
        );
    }
}
