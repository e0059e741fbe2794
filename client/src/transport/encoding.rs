//! The encodings of answers, and the `Accept` headers that request them.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// JSON. A watch has one line for each event.
    #[default]
    Json,
    /// Kubernetes' protobuf. A watch has one frame for each event: four bytes of length, then the event.
    Protobuf,
}

/// A body, or one event of a watch, and its encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The encoding.
    pub encoding: Encoding,
    /// The bytes.
    pub bytes: Bytes,
}

/// The media type of protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

// === impl Encoding ===

impl Encoding {
    /// The encoding of an answer, by its `Content-Type` alone. Everything that is not called protobuf is read as JSON.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let named = headers.get(CONTENT_TYPE);
        let named = named.and_then(|value| value.to_str().ok()).unwrap_or("");
        let media_type = named.split(';').next().unwrap_or("").trim();
        if media_type.eq_ignore_ascii_case(PROTOBUF) {
            Self::Protobuf
        } else {
            Self::Json
        }
    }

    /// The `Accept` header of a list or a watch. Protobuf is followed by JSON, for a server that does not have it.
    pub(super) fn accept(self, metadata_only: bool, list: bool) -> &'static str {
        match (self, metadata_only, list) {
            (Self::Json, false, _) => "application/json",
            (Self::Json, true, true) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            (Self::Json, true, false) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            (Self::Protobuf, false, true) => {
                "application/vnd.kubernetes.protobuf, application/json"
            }
            (Self::Protobuf, false, false) => {
                "application/vnd.kubernetes.protobuf;stream=watch, application/json"
            }
            (Self::Protobuf, true, true) => concat!(
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, ",
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            ),
            (Self::Protobuf, true, false) => concat!(
                "application/vnd.kubernetes.protobuf;stream=watch;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, ",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_alone_decides() {
        for (named, expected) in [
            ("application/vnd.kubernetes.protobuf", Encoding::Protobuf),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                Encoding::Protobuf,
            ),
            (
                "Application/Vnd.Kubernetes.Protobuf ; stream=watch",
                Encoding::Protobuf,
            ),
            ("application/json", Encoding::Json),
            ("application/json;stream=watch", Encoding::Json),
            ("text/plain", Encoding::Json),
            ("application/vnd.kubernetes.protobuffers", Encoding::Json),
            ("", Encoding::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, named.parse().unwrap());
            assert_eq!(Encoding::of(&headers), expected, "{named}");
        }
        assert_eq!(Encoding::of(&HeaderMap::new()), Encoding::Json);
    }

    #[test]
    fn protobuf_is_always_followed_by_what_is_requested_without_it() {
        for (metadata_only, list) in [(false, false), (false, true), (true, false), (true, true)] {
            let accept = |encoding: Encoding| encoding.accept(metadata_only, list);
            let (binary, json) = (accept(Encoding::Protobuf), accept(Encoding::Json));
            let (first, second) = binary.split_once(", ").unwrap();
            assert!(first.starts_with(PROTOBUF), "{first}");
            assert_eq!(first.contains("stream=watch"), !list, "{first}");
            assert_eq!(second, json);
            let partial = |text: &str| {
                text.split_once(";as=")
                    .map(|(_, partial)| partial.to_owned())
            };
            assert_eq!(partial(first), partial(json));
        }
    }
}
