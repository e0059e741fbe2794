//! Frames of a watch: one JSON object a line, or protobuf with its length. The frame of an event is made once for all watches
//! that send it in the same shape.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde_json::Value;

use super::present::{Presenter, document_frame};
use crate::http::media::{Encoding, Shape};
use crate::resource::ResourceInfo;
use crate::status::Status;
use crate::store::Object;
use crate::table::IncludeObject;

/// Frames that are sent together.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The only one, which may be shared with other watches.
    one: Bytes,
    many: BytesMut,
}

/// What frames of one object have in common if they are equal.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) kind: &'static str,
    pub(super) info: Arc<ResourceInfo>,
    pub(super) encoding: Encoding,
    pub(super) shape: Shape,
    pub(super) include_object: IncludeObject,
    /// Whether a Table has its columns.
    pub(super) columns: bool,
    /// The time of the ages in a Table, in seconds.
    pub(super) second: i64,
}

// === impl Form ===

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        let is_table = matches!(self.shape, Shape::Table(_));
        let table = |form: &Self| (form.include_object, form.columns, form.second);
        Arc::ptr_eq(&self.info, &other.info)
            && (self.kind, self.encoding, self.shape) == (other.kind, other.encoding, other.shape)
            && (!is_table || table(self) == table(other))
    }
}

// === impl Frames ===

impl Frames {
    pub(super) fn is_empty(&self) -> bool {
        self.one.is_empty() && self.many.is_empty()
    }

    pub(super) fn push(&mut self, frame: Bytes) {
        if self.is_empty() {
            self.one = frame;
            return;
        }
        if self.many.is_empty() {
            self.many.extend_from_slice(&std::mem::take(&mut self.one));
        }
        self.many.extend_from_slice(&frame);
    }

    /// Adds the frame of a document.
    ///
    /// # Errors
    /// 500 for a document that cannot be written in protobuf.
    pub(super) fn push_document(
        &mut self,
        kind: &str,
        document: &Value,
        encoding: Encoding,
    ) -> Result<(), Status> {
        let frame = if encoding == Encoding::Protobuf {
            document_frame(kind, document)?.into()
        } else {
            let mut line = begin(kind, 256);
            line.extend_from_slice(document.to_string().as_bytes());
            end(line)
        };
        self.push(frame);
        Ok(())
    }

    /// The frames in their order.
    pub(super) fn finish(self) -> Bytes {
        if self.many.is_empty() {
            return self.one;
        }
        self.many.freeze()
    }
}

/// The frame of an event.
///
/// # Errors
/// 500 for an object that cannot be written in protobuf.
pub(super) fn of_object(
    presenter: &Presenter,
    form: &Form,
    object: &Object,
) -> Result<Bytes, Status> {
    if form.encoding == Encoding::Protobuf {
        return presenter
            .frame_in_protobuf(form.kind, object)
            .map(Bytes::from);
    }
    let mut line = begin(form.kind, object.encoded().len() + 128);
    presenter.write_one(object, true, form.columns, &mut line);
    Ok(end(line))
}

/// [`of_object`], made once for all watches.
///
/// # Errors
/// As of [`of_object`].
pub(super) fn shared(presenter: &Presenter, form: &Form, object: &Object) -> Result<Bytes, Status> {
    let make = || of_object(presenter, form, object);
    object.form(form.clone(), make, Bytes::len)
}

/// The object of an event that leaves a selection: the `previous` one at the version of `event`, made once for all watches.
pub(super) fn left(previous: &Arc<Object>, event: &Object) -> Arc<Object> {
    #[derive(PartialEq)]
    struct Left;
    let make = || Ok::<_, Infallible>(Arc::new(Object::at_version(previous, event.version())));
    let Ok(left) = event.form(Left, make, |left| left.weight());
    left
}

fn begin(kind: &str, capacity: usize) -> BytesMut {
    let mut line = BytesMut::with_capacity(capacity);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line
}

fn end(mut line: BytesMut) -> Bytes {
    line.extend_from_slice(b"}\n");
    line.freeze()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::{BodyExt as _, Full};
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{ApiServer, Body};

    #[test]
    fn one_frame_is_sent_as_it_is_and_several_in_their_order() {
        let frame = Bytes::from_static(b"one\n");
        let mut frames = Frames::default();
        assert!(frames.is_empty());
        frames.push(frame.clone());
        assert!(!frames.is_empty());
        let mut more = Frames::default();
        for text in [&b"one\n"[..], b"two\n", b"three\n"] {
            more.push(Bytes::from_static(text));
        }
        assert_eq!(frames.finish().as_ptr(), frame.as_ptr());
        assert_eq!(&more.finish()[..], b"one\ntwo\nthree\n");
    }

    async fn send(
        server: &ApiServer,
        method: &str,
        path: &str,
        accept: &str,
        body: Value,
    ) -> http::Response<Body> {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Accept", accept)
            .header("Content-Type", content)
            .body(Full::new(Bytes::from(body.to_string())));
        server.service().oneshot(request.unwrap()).await.unwrap()
    }

    async fn next(watch: &mut http::Response<Body>) -> Bytes {
        let frame = watch.body_mut().frame().await.unwrap().unwrap();
        frame.into_data().unwrap()
    }

    const JSON: &str = "application/json";

    /// The frames that two watches of each of `requests` get for what `change` does.
    async fn frames_of(
        server: &ApiServer,
        requests: &[(&str, &str)],
        change: impl AsyncFnOnce(),
    ) -> Vec<[Bytes; 2]> {
        let mut watches = Vec::new();
        for (path, accept) in requests {
            let one = send(server, "GET", path, accept, Value::Null).await;
            watches.push([one, send(server, "GET", path, accept, Value::Null).await]);
        }
        change().await;
        let mut frames = Vec::new();
        for [one, other] in &mut watches {
            frames.push([next(one).await, next(other).await]);
        }
        frames
    }

    #[tokio::test(start_paused = true)]
    async fn the_frame_of_an_event_is_made_once_for_each_shape() {
        let server = ApiServer::builder().start().await.unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = json!({"metadata": {"name": "x", "labels": {"app": "a"}}, "data": {"k": "v"}});
        assert_eq!(send(&server, "POST", maps, JSON, map).await.status(), 201);
        let version = server.resource_version();
        let all = format!("{maps}?watch=true&resourceVersion={version}");
        let selected = format!("{all}&labelSelector=app%3Da");
        let requests = [
            (&*all, JSON),
            (
                &*all,
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            ),
            (&*all, "application/json;as=Table;v=v1;g=meta.k8s.io"),
            (&*all, "application/vnd.kubernetes.protobuf"),
            (&*selected, JSON),
        ];
        let frames = frames_of(&server, &requests, async || {
            let labels = json!({"metadata": {"labels": {"app": "b"}}});
            let path = format!("{maps}/x");
            assert_eq!(
                send(&server, "PATCH", &path, JSON, labels).await.status(),
                200
            );
        });
        let frames = frames.await;
        for [one, other] in &frames {
            assert_eq!(one.as_ptr(), other.as_ptr(), "{one:?} {other:?}");
        }
        let parsed = |at: usize| -> Value { serde_json::from_slice(&frames[at][0]).unwrap() };
        let (whole, metadata, table, left) = (parsed(0), parsed(1), parsed(2), parsed(4));
        assert_eq!(whole["type"], "MODIFIED");
        assert_eq!(whole["object"]["data"], json!({"k": "v"}));
        assert_eq!(metadata["object"]["metadata"], whole["object"]["metadata"]);
        assert_eq!(metadata["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["object"]["rows"][0]["cells"][0], "x");
        assert!(table["object"]["columnDefinitions"].is_array());
        // The object left the selection: its last selected state, at the version of leaving.
        assert_eq!(left["type"], "DELETED");
        assert_eq!(left["object"]["metadata"]["labels"]["app"], "a");
        let version = |event: &Value| event["object"]["metadata"]["resourceVersion"].clone();
        assert_eq!(version(&left), version(&whole));
        server.shutdown().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_converted_once_for_all_watches_of_a_version() {
        let server = ApiServer::builder().start().await.unwrap();
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer"}}}});
        let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "apps.a.example"},
            "spec": {"group": "a.example", "scope": "Namespaced", "names": {"plural": "apps", "kind": "App"},
                "versions": [version("v1"), version("v2")]},
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = send(&server, "POST", definitions, JSON, definition).await;
        assert_eq!(made.status(), 201);
        let watch = |version: &str| {
            let from = server.resource_version();
            format!("/apis/a.example/{version}/apps?watch=true&resourceVersion={from}")
        };
        let (first, second) = (watch("v1"), watch("v2"));
        let requests = [(&*first, JSON), (&*second, JSON)];
        let frames = frames_of(&server, &requests, async || {
            let app = json!({"apiVersion": "a.example/v1", "kind": "App", "metadata": {"name": "x"}, "size": 1});
            let apps = "/apis/a.example/v1/namespaces/default/apps";
            assert_eq!(send(&server, "POST", apps, JSON, app).await.status(), 201);
        });
        for ([one, other], version) in frames.await.iter().zip(["v1", "v2"]) {
            assert_eq!(one.as_ptr(), other.as_ptr());
            let event: Value = serde_json::from_slice(one).unwrap();
            assert_eq!(
                event["object"]["apiVersion"],
                format!("a.example/{version}")
            );
            assert_eq!(event["object"]["size"], 1);
        }
        server.shutdown().await.unwrap();
    }
}
