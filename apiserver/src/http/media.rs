//! Media types of requests and answers.

use crate::status::Status;

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
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

/// The objects that an answer is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    /// A list of objects (a watch shows single ones).
    pub(crate) list: bool,
    /// A watch.
    pub(crate) watch: bool,
    /// Custom resources, which have no message of their own.
    pub(crate) custom: bool,
}

/// The media type of protobuf.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The media type of a watch in protobuf.
pub(crate) const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The types of an answer, in the text of a 406.
const SERVED: &[&str] = &["application/json", "application/yaml", PROTOBUF];

/// The types of a watch, in the text of a 406.
const WATCHED: &[&str] = &["application/json;stream=watch", PROTOBUF_WATCH];

/// The types of a body, in the text of a 415.
pub(crate) const READ: &[&str] = SERVED;

/// The types of a body with a custom resource, in the text of a 415.
pub(crate) const READ_OF_CUSTOM: &[&str] = &["application/json", "application/yaml"];

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
            Self::Protobuf => PROTOBUF,
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
            PROTOBUF => Some(Encoding::Protobuf),
            _ => None,
        }
    }

    /// The shape in this encoding; `None` for one that is not served in it.
    fn shape_in(&self, encoding: Encoding, objects: Objects) -> Option<Shape> {
        // A watch may request metadata under either name.
        let other = || objects.watch.then(|| self.shape(!objects.list)).flatten();
        let shape = self.shape(objects.list).or_else(other)?;
        let is_served = match (encoding, shape) {
            (Encoding::Protobuf, Shape::Whole) => !objects.custom,
            (Encoding::Protobuf, Shape::Table(_)) => false,
            _ => true,
        };
        is_served.then_some(shape)
    }

    /// Whether it asks for another shape, or for a stream other than a watch.
    fn is_special(&self) -> bool {
        let special = |(name, value): &(&str, &str)| match *name {
            "as" | "g" | "v" => true,
            "sv" => !value.is_empty(),
            "stream" => !matches!(*value, "" | "watch"),
            _ => false,
        };
        self.parameters.iter().any(special)
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

/// Negotiates the answer to `accept`.
///
/// # Errors
/// 406 when no accepted type can be served.
pub(crate) fn negotiate(accept: Option<&str>, objects: Objects) -> Result<Accepted, Status> {
    let mut known = false;
    for range in Range::parse_all(or_anything(accept)) {
        if range.quality <= 0.0 {
            continue;
        }
        let Some(encoding) = range.encoding() else {
            continue;
        };
        known = true;
        if objects.watch && encoding == Encoding::Yaml {
            continue;
        }
        if let Some(shape) = range.shape_in(encoding, objects) {
            return Ok(Accepted { encoding, shape });
        }
    }
    if !known && !objects.custom {
        return Err(Status::nothing_acceptable(&[SERVED, WATCHED].concat()));
    }
    Err(Status::not_acceptable(if objects.watch {
        WATCHED
    } else {
        SERVED
    }))
}

/// The encoding of an error for `accept`: the first one of the accepted types without a shape; JSON if there is none.
pub(crate) fn negotiate_errors(accept: Option<&str>) -> Encoding {
    let ranges = Range::parse_all(or_anything(accept));
    let plain = ranges.iter().filter(|range| !range.is_special());
    let encoding = plain.filter_map(Range::encoding).next();
    encoding.unwrap_or(Encoding::Json)
}

fn or_anything(accept: Option<&str>) -> &str {
    let accept = accept.unwrap_or_default().trim();
    if accept.is_empty() { "*/*" } else { accept }
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

    const ONE: Objects = Objects {
        list: false,
        watch: false,
        custom: false,
    };
    const LIST: Objects = Objects { list: true, ..ONE };
    const WATCH: Objects = Objects { watch: true, ..ONE };
    const CUSTOM: Objects = Objects {
        custom: true,
        ..ONE
    };

    fn accepted(accept: &str, objects: Objects) -> (Encoding, Shape) {
        let accepted = negotiate(Some(accept), objects).unwrap();
        (accepted.encoding, accepted.shape)
    }

    #[test]
    fn kubectl_gets_a_table() {
        let table = (Encoding::Json, Shape::Table("v1"));
        assert_eq!(accepted(KUBECTL, LIST), table);
        let watched = Objects {
            list: true,
            ..WATCH
        };
        assert_eq!(accepted(KUBECTL, watched), table);
    }

    #[test]
    fn protobuf_is_served_for_built_in_kinds() {
        let both = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(accepted(both, ONE), (Encoding::Protobuf, Shape::Whole));
        assert_eq!(accepted(both, WATCH), (Encoding::Protobuf, Shape::Whole));
        assert_eq!(accepted(both, CUSTOM), (Encoding::Json, Shape::Whole));
        let stream = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(accepted(stream, WATCH), (Encoding::Protobuf, Shape::Whole));
        let any = "application/vnd.kubernetes.protobuf, */*";
        assert_eq!(accepted(any, ONE).0, Encoding::Protobuf);
        assert_eq!(accepted(any, CUSTOM).0, Encoding::Json);
        assert_eq!(accepted("*/*", ONE).0, Encoding::Json);
        let later = "application/vnd.kubernetes.protobuf;q=0.5,application/json";
        assert_eq!(accepted(later, ONE).0, Encoding::Json);
        assert!(negotiate(Some(PROTOBUF), CUSTOM).is_err());
    }

    #[test]
    fn metadata_is_served_in_protobuf_and_a_table_is_not() {
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let expected = (Encoding::Protobuf, Shape::Metadata("v1"));
        assert_eq!(accepted(metadata, ONE), expected);
        assert_eq!(accepted(metadata, CUSTOM), expected);
        let table =
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(accepted(table, LIST), (Encoding::Json, Shape::Whole));
    }

    #[test]
    fn an_error_has_the_first_type_without_a_shape() {
        let metadata =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(negotiate_errors(Some(metadata)), Encoding::Json);
        let or_plain = format!("{metadata},application/vnd.kubernetes.protobuf,application/json");
        assert_eq!(negotiate_errors(Some(&or_plain)), Encoding::Protobuf);
        assert_eq!(negotiate_errors(Some(PROTOBUF_WATCH)), Encoding::Protobuf);
        assert_eq!(negotiate_errors(Some(KUBECTL)), Encoding::Json);
        assert_eq!(negotiate_errors(Some("text/html")), Encoding::Json);
        assert_eq!(negotiate_errors(None), Encoding::Json);
    }

    #[test]
    fn quality_decides_the_order() {
        let accept = "application/json;q=0.5, application/yaml";
        assert_eq!(accepted(accept, ONE).0, Encoding::Yaml);
    }

    #[test]
    fn nothing_that_can_be_served_is_a_406_that_names_what_can() {
        let status = negotiate(Some("text/html"), ONE).unwrap_err();
        assert_eq!(status.code, 406);
        let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch";
        assert!(status.message.contains(types), "{}", status.message);
        let status = negotiate(Some("text/html"), CUSTOM).unwrap_err();
        assert!(
            status
                .message
                .ends_with("application/yaml, application/vnd.kubernetes.protobuf")
        );
    }

    #[test]
    fn metadata_of_lists_and_of_objects_have_names_of_their_own() {
        let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert!(negotiate(Some(one), ONE).is_ok());
        assert!(negotiate(Some(list), LIST).is_ok());
        assert!(negotiate(Some(list), ONE).is_err());
        let watched = Objects {
            list: true,
            ..WATCH
        };
        assert!(negotiate(Some(one), watched).is_ok());
    }
}
