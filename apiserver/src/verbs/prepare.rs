//! Conversion of the bytes of a request to an object to store: decoding, unknown fields, defaults,
//! checks.

use bytes::Bytes;
use reeve_wire::Cause;
use serde_json::{Value, json};

use super::{metadata, replicas};
use crate::core::Core;
use crate::field::{ErrorKind, Errors, FieldError, Path, quote};
use crate::http::media;
use crate::json_text::{self, MAX_STORED_DEPTH, Node};
use crate::kinds::{defaults, rules};
use crate::meta;
use crate::protobuf;
use crate::request::{FieldValidation, Request};
use crate::status::Status;

/// Reads an object from the body of a POST or PUT. Unknown and repeated fields are dropped, each with
/// a warning if `fieldValidation` asks for it.
///
/// # Errors
/// 415 for a type that is neither JSON nor YAML nor protobuf; 400 for a malformed body, for another type of
/// object, and with `fieldValidation=Strict` for unknown and repeated fields.
pub(crate) fn decode(
    core: &Core,
    request: &Request,
    content_type: Option<&str>,
    body: &Bytes,
) -> Result<Value, Status> {
    let (mut object, node) = read(request, content_type, body)?;
    if request.info.custom && object["kind"].as_str().is_none_or(str::is_empty) {
        return Err(without_kind(request, body));
    }
    settle_type(core, request, &mut object)?;
    let info = &request.info;
    let refuse = |why: &str| {
        Status::bad_request(format!(
            "{} in version {} cannot be handled as a {}: {why}",
            info.kind,
            quote(&info.version),
            info.kind
        ))
    };
    let Some(schema) = info.structural() else {
        return Ok(object);
    };
    if !schema.is_sound(&node) {
        if let Some(error) = schema.decode_error(&node) {
            return Err(refuse(&error));
        }
        // In protobuf an unknown field has no name, and may be one of a newer version.
        let is_named = content_type.map(media::essence).as_deref() != Some(media::PROTOBUF);
        if request.validation != FieldValidation::Ignore && is_named {
            let errors = schema.strict_errors(&node);
            if request.validation == FieldValidation::Strict && !errors.is_empty() {
                return Err(refuse(&format!(
                    "strict decoding error: {}",
                    errors.join(", ")
                )));
            }
            request.warnings.extend(errors);
        }
    }
    schema.prune(&mut object);
    Ok(object)
}

/// The error for a custom resource without kind.
fn without_kind(request: &Request, body: &Bytes) -> Status {
    let info = &request.info;
    let missing = format!(
        "Object 'Kind' is missing in '{}'",
        String::from_utf8_lossy(body)
    );
    Status::bad_request(if request.validation == FieldValidation::Ignore {
        format!(
            "{} in version {} cannot be handled as a {}: {missing}",
            info.kind,
            quote(&info.version),
            info.kind
        )
    } else {
        format!(
            "the object provided is unrecognized (must be of type {}): {missing} ({})",
            info.kind,
            snippet(body)
        )
    })
}

/// The beginning of a body, as texts show it; in hexadecimal unless it is a JSON object.
fn snippet(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let head = &body[..body.len().min(SHOWN)];
    let shown = if head.first() == Some(&b'{') {
        String::from_utf8_lossy(head).into_owned()
    } else {
        head.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    if body.len() > SHOWN {
        format!("{shown} ...")
    } else {
        shown
    }
}

/// Reads the body as one JSON object.
pub(crate) fn read<'a>(
    request: &Request,
    content_type: Option<&str>,
    body: &'a Bytes,
) -> Result<(Value, Node<'a>), Status> {
    let essence = content_type.map(media::essence).unwrap_or_default();
    let refuse = |why: String| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why}",
            request.info.kind
        ))
    };
    let unversioned = |why: String| {
        refuse(format!(
            "couldn't get version/kind; json parse error: {why}"
        ))
    };
    let node = match essence.as_str() {
        "" | "application/json" => json_text::parse(body)
            .map_err(|error| unversioned(format!("{error} ({})", snippet(body))))?,
        "application/yaml" | "text/yaml" | "application/x-yaml" => {
            let value =
                crate::yaml::read(body).map_err(|error| refuse(format!("yaml: {error}")))?;
            Node::from_value(&value).into_owned()
        }
        media::PROTOBUF => Node::from_value(&read_protobuf(request, body)?).into_owned(),
        _ => return Err(Status::unsupported_media_type(media::READ)),
    };
    // Go reads null as an empty object.
    let node = match node {
        Node::Null => Node::Object(Vec::new()),
        node => node,
    };
    if !matches!(node, Node::Object(_)) {
        return Err(unversioned(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({})",
            node.go_type(),
            snippet(body)
        )));
    }
    let value = node.to_value();
    Ok((value, node))
}

/// Decodes a body in protobuf to the equivalent JSON object. A real server breaks the connection for a custom
/// resource in protobuf; here it is 415.
fn read_protobuf(request: &Request, body: &Bytes) -> Result<Value, Status> {
    let info = &request.info;
    let version = info.api_version();
    let expected = match request.subresource.as_str() {
        "scale" => ("autoscaling/v1", "Scale"),
        "token" => ("authentication.k8s.io/v1", "TokenRequest"),
        _ => (version.as_str(), info.kind.as_str()),
    };
    if info.custom && expected.1 != "Scale" {
        let mut status = Status::unsupported_media_type(media::READ_OF_CUSTOM);
        status.message = format!(
            "custom resources cannot be read from protobuf: {}",
            status.message
        );
        return Err(status);
    }
    protobuf::decode(body, expected).or_else(|error| match error {
        // Another kind than the resource's: the check of the type refuses it.
        protobuf::Error::Envelope(Cause::UnknownKind { api_version, kind })
            if (api_version.as_str(), kind.as_str()) != expected =>
        {
            Ok(json!({"apiVersion": api_version, "kind": kind}))
        }
        protobuf::Error::Object {
            api_version,
            kind,
            cause,
        } => Err(Status::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {cause}",
            quote(api_version.rsplit('/').next().unwrap_or_default()),
            expected.1
        ))),
        error => Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error} ({})",
            expected.1,
            snippet(body)
        ))),
    })
}

/// Sets the type of an object to that of its resource; another one is refused.
///
/// # Errors
/// 400 when it has another.
pub(crate) fn settle_type(
    core: &Core,
    request: &Request,
    object: &mut Value,
) -> Result<(), Status> {
    let info = &request.info;
    let expected = info.api_version();
    let found = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let other_version = found != expected && (info.custom || !found.is_empty());
    let other_kind = kind != info.kind && (info.custom || !kind.is_empty());
    if other_version || other_kind {
        return Err(other_type(
            core,
            request,
            &found,
            &kind,
            meta::text(object, "name"),
        ));
    }
    let map = meta::object_mut(object);
    map.insert("apiVersion".to_owned(), expected.into());
    map.insert("kind".to_owned(), info.kind.clone().into());
    if !map.get("metadata").is_some_and(Value::is_object) {
        map.insert("metadata".to_owned(), Value::Object(serde_json::Map::new()));
    }
    Ok(())
}

/// Whether [`settle_type`] leaves an object as it is.
pub(crate) fn is_settled(request: &Request, object: &Value) -> bool {
    let info = &request.info;
    object["apiVersion"] == info.api_version()
        && object["kind"] == info.kind
        && object["metadata"].is_object()
}

/// The error for an object of another type: Go's decoder has texts of its own for built-in kinds.
fn other_type(core: &Core, request: &Request, found: &str, kind: &str, name: &str) -> Status {
    let info = &request.info;
    let expected = info.api_version();
    if info.custom {
        if found != expected {
            return Status::bad_request(format!(
                "the API version in the data ({found}) does not match the expected API version ({expected})"
            ));
        }
        let error = FieldError::invalid(&Path::new("kind"), kind, format!("must be {}", info.kind));
        return Status::invalid(&info.group, kind, name, &[error]);
    }
    let found = if found.is_empty() { &expected } else { found };
    let kind = if kind.is_empty() { &info.kind } else { kind };
    let version = found.rsplit('/').next().unwrap_or_default();
    let served = core.registry.served();
    let (_, why) = served.other_type(info, &info.kind, found, kind);
    Status::bad_request(format!(
        "{kind} in version {} cannot be handled as a {}: {why}",
        quote(version),
        info.kind
    ))
}

/// The part of `new` that differs from `old`: fields of objects that are equal are left out.
fn changes(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let changed = new.iter().filter_map(|(name, new)| {
        let old = old.get(name);
        let part = match old {
            Some(old) if old == new => return None,
            Some(old) => changes(old, new),
            None => new.clone(),
        };
        Some((name.clone(), part))
    });
    Value::Object(changed.collect())
}

/// Drops unknown fields from the result of a patch of `old`, with a warning or an error as `fieldValidation` asks; `strict`
/// is what there is to say of the patch itself.
///
/// # Errors
/// 422 for values of a wrong type, and with `fieldValidation=Strict` for unknown fields.
pub(crate) fn prune_patched(
    request: &Request,
    old: &Value,
    object: &mut Value,
    strict: &[String],
    patch: &dyn Fn(&Value) -> String,
) -> Result<(), Status> {
    let Some(schema) = request.info.structural() else {
        return Ok(());
    };
    let refuse = |object: &Value, why: String| {
        let error = FieldError::invalid(&Path::new("patch"), patch(object), why);
        Status::invalid("", "", "", &[error])
    };
    // What is stored of a built-in kind is of its type. The schema of a custom one may have changed since.
    let changed = (!request.info.custom).then(|| changes(old, object));
    let node = Node::from_value(changed.as_ref().unwrap_or(object));
    if let Some(error) = schema.decode_error(&node) {
        return Err(refuse(object, error));
    }
    if request.validation != FieldValidation::Ignore {
        let mut errors = strict.to_vec();
        errors.extend(schema.strict_errors(&node));
        if request.validation == FieldValidation::Strict && !errors.is_empty() {
            let why = format!("strict decoding error: {}", errors.join(", "));
            return Err(refuse(object, why));
        }
        request.warnings.extend(errors);
    }
    schema.prune_changed(object, &|field| {
        changed
            .as_ref()
            .is_none_or(|changed| changed.get(field).is_some())
    });
    Ok(())
}

/// Sets the defaults of an object: of its schema and of its kind.
pub(crate) fn default(request: &Request, object: &mut Value) {
    if let Some(schema) = request.info.structural() {
        schema.set_defaults(object);
    }
    defaults::set(&request.info, object);
}

/// Checks a new object, or a changed one against the `old`.
///
/// # Errors
/// 422 with every invalid field; 413 for an object that nests too deep to be read again.
pub(crate) fn validate(
    request: &Request,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let parts = object.as_object().into_iter().flatten();
    let mut parts = parts.filter(|(name, _)| *name != "metadata");
    if parts.any(|(_, part)| json_text::is_deeper(part, MAX_STORED_DEPTH - 1)) {
        return Err(Status::too_large(format_args!(
            "the object has more than {MAX_STORED_DEPTH} levels of arrays and objects"
        )));
    }
    let of_metadata = metadata::validate(&request.info, object);
    // An absent name does not keep the rules of a custom resource from being checked in an update. (apiserver: `BeforeUpdate`
    // finds it, and not the strategy of the kind.)
    let is_apart = |error: &FieldError| old.is_some() && error.kind == ErrorKind::Required;
    let (mut errors, mut of_object): (Errors, Errors) = of_metadata.into_iter().partition(is_apart);
    if let Some(old) = old {
        // The rules of a kind on a real server check the metadata again, except for the status of a CronJob.
        let is_once = request.subresource == "status" && request.info.storage == "cronjobs.batch";
        for _ in 0..if is_once { 1 } else { 2 } {
            of_object.extend(metadata::validate_update(old, object));
        }
    }
    if let Some(schema) = request.info.structural() {
        let of_scale = replicas::validate(&request.info, object);
        let mut warnings = Vec::new();
        of_object = schema.validate(object, old, of_object, of_scale, &mut warnings);
        request.warnings.extend(warnings);
    }
    errors.extend(of_object);
    if request.subresource == "status" {
        // A real server validates the status by itself: paths in texts begin below it.
        for error in &mut errors {
            if let Some(below) = error.detail.strip_prefix("status.") {
                error.detail = below.to_owned();
            } else if let Some(of_status) = error.detail.strip_prefix("status in body") {
                error.detail = format!(" in body{of_status}");
            }
        }
    }
    errors.extend(rules::validate(request, object, old));
    if errors.is_empty() {
        Ok(())
    } else {
        Err(request.invalid(meta::text(object, "name"), &errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changed_part_of_an_object_has_no_field_that_is_equal() {
        let old = json!({"a": {"b": 1, "c": [1, 2], "d": {"e": 1}}, "f": 1, "g": {"h": 1}});
        let new =
            json!({"a": {"b": 1, "c": [1, 3], "d": {"e": 1, "x": null}}, "f": {"y": 1}, "z": 1});
        let changed = json!({"a": {"c": [1, 3], "d": {"x": null}}, "f": {"y": 1}, "z": 1});
        assert_eq!(changes(&old, &new), changed);
        assert_eq!(changes(&old, &old), json!({}));
    }
}
