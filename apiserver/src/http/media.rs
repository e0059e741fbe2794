//! Media types of requests and answers.

use crate::status::Status;

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// The shape of an object in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The object itself.
    Whole,
    /// `PartialObjectMetadata`, of meta.k8s.io in this version.
    Metadata(&'static str),
    /// `Table`, of meta.k8s.io in this version.
    Table(&'static str),
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The encoding.
    pub(crate) encoding: Encoding,
    /// The shape.
    pub(crate) shape: Shape,
}

/// The types of an answer, in the text of a 406.
pub(crate) const SERVED: &[&str] = &["application/json", "application/yaml"];

/// The media type of protobuf.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The types of a body, in the text of a 415.
pub(crate) const READ: &[&str] = &["application/json", "application/yaml", PROTOBUF];

/// One media range of an `Accept` header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range<'a> {
    pub(crate) kind: &'a str,
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
    pub(crate) quality: f32,
}

// === impl Encoding ===

impl Encoding {
    /// The `Content-Type` of an answer.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

// === impl Range ===

impl<'a> Range<'a> {
    /// The ranges of a header, best first; equal ones in their order.
    pub(crate) fn parse_all(header: &'a str) -> Vec<Self> {
        let mut ranges: Vec<Self> = header
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(Self::parse)
            .collect();
        ranges.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        ranges
    }

    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let mut range = Self {
            kind,
            parameters: Vec::new(),
            quality: 1.0,
        };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim_matches('"');
            if key == "q" {
                range.quality = value.parse().unwrap_or(1.0);
            } else {
                range.parameters.push((key, value));
            }
        }
        range
    }

    /// The value of a parameter; empty when absent.
    pub(crate) fn parameter(&self, key: &str) -> &'a str {
        self.parameters
            .iter()
            .find(|(name, _)| *name == key)
            .map_or("", |(_, value)| value)
    }

    fn encoding(&self) -> Option<Encoding> {
        match self.kind {
            "application/json" | "application/*" | "*/*" | "text/*" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            _ => None,
        }
    }

    fn shape(&self, list: bool) -> Option<Shape> {
        let version = match (self.parameter("g"), self.parameter("v")) {
            (_, "v1") => "v1",
            (_, "v1beta1") => "v1beta1",
            _ => "",
        };
        match self.parameter("as") {
            "" => Some(Shape::Whole),
            _ if version.is_empty() || self.parameter("g") != "meta.k8s.io" => None,
            "Table" => Some(Shape::Table(version)),
            "PartialObjectMetadata" if !list => Some(Shape::Metadata(version)),
            "PartialObjectMetadataList" if list => Some(Shape::Metadata(version)),
            _ => None,
        }
    }
}

/// Negotiates the answer to `accept`. `list`: it is a list of objects (a watch shows single ones).
///
/// # Errors
/// 406 when no accepted type can be served.
pub(crate) fn negotiate(accept: Option<&str>, list: bool, watch: bool) -> Result<Accepted, Status> {
    let accept = accept.map_or("*/*", str::trim);
    let accept = if accept.is_empty() { "*/*" } else { accept };
    let mut known = false;
    for range in Range::parse_all(accept) {
        if range.quality <= 0.0 {
            continue;
        }
        let Some(encoding) = range.encoding() else {
            continue;
        };
        known = true;
        if watch && encoding != Encoding::Json {
            continue;
        }
        // A watch may request metadata under either name.
        let shape = range
            .shape(list)
            .or_else(|| watch.then(|| range.shape(!list)).flatten());
        if let Some(shape) = shape {
            return Ok(Accepted { encoding, shape });
        }
    }
    if !known {
        return Err(Status::nothing_acceptable(SERVED));
    }
    Err(Status::not_acceptable(if watch {
        &["application/json;stream=watch"]
    } else {
        SERVED
    }))
}

/// A media type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    #[test]
    fn kubectl_gets_a_table() {
        let accepted = negotiate(Some(KUBECTL), true, false).unwrap();
        assert_eq!(accepted.shape, Shape::Table("v1"));
        assert_eq!(
            negotiate(Some(KUBECTL), true, true).unwrap().shape,
            Shape::Table("v1")
        );
    }

    #[test]
    fn protobuf_is_passed_over_for_json() {
        let accept = "application/vnd.kubernetes.protobuf,application/json";
        let accepted = negotiate(Some(accept), false, false).unwrap();
        assert_eq!(accepted.encoding, Encoding::Json);
        let accept = "application/vnd.kubernetes.protobuf, */*";
        assert!(negotiate(Some(accept), false, false).is_ok());
    }

    #[test]
    fn quality_decides_the_order() {
        let accept = "application/json;q=0.5, application/yaml";
        let accepted = negotiate(Some(accept), false, false).unwrap();
        assert_eq!(accepted.encoding, Encoding::Yaml);
    }

    #[test]
    fn nothing_that_can_be_served_is_a_406_that_names_what_can() {
        let status = negotiate(Some("text/html"), false, false).unwrap_err();
        assert_eq!(status.code, 406);
        assert!(
            status
                .message
                .contains("application/json, application/yaml")
        );
    }

    #[test]
    fn metadata_of_lists_and_of_objects_have_names_of_their_own() {
        let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert!(negotiate(Some(one), false, false).is_ok());
        assert!(negotiate(Some(list), true, false).is_ok());
        assert!(negotiate(Some(list), false, false).is_err());
        assert!(negotiate(Some(one), true, true).is_ok());
    }
}
