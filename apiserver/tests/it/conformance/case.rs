//! The steps of a case: requests and watches. Each step is recorded.

use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use crate::conformance::client::{Reply, Stream};
use crate::conformance::normal::{Line, Normalizer};
use crate::conformance::runner::{Compact, Shared};
use crate::conformance::webhook::Webhook;

pub const MERGE: &str = "application/merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
pub const METADATA: &str =
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
pub const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

const EVENT_PATIENCE: Duration = Duration::from_secs(15);

/// One conversation.
///
/// Paths and bodies may contain `{ns}` (the case's own namespace), `{group}` (of the shared kinds), `{own}` (the case's
/// own group), `{w}` and `{cm}` (the collections of Widgets and ConfigMaps in the namespace), `{g}` (the
/// cluster-scoped Gadgets) and `{me}` (a name that no other case uses).
pub struct Case {
    shared: std::sync::Arc<Shared>,
    me: String,
    lines: Vec<Line>,
    keep_managed_fields: bool,
    hidden: Vec<(String, &'static str)>,
}

/// An answer without replacements.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
}

/// An open watch.
pub struct Watch {
    stream: Stream,
    label: String,
}

// === impl Case ===

impl Case {
    /// Whether the requests go to the built-in server.
    pub fn is_built_in(&self) -> bool {
        matches!(self.shared.compact, Compact::BuiltIn(_))
    }

    pub async fn new(shared: std::sync::Arc<Shared>, number: usize) -> Self {
        let me = format!("c-{}-{number:03}", shared.run);
        let case = Self {
            shared,
            me,
            lines: Vec::new(),
            keep_managed_fields: false,
            hidden: Vec::new(),
        };
        case.setup(
            "POST",
            "/api/v1/namespaces",
            json!({"metadata": {"name": "{ns}"}}),
        )
        .await;
        case
    }

    /// The lines of the conversation.
    pub fn transcript(self) -> Vec<String> {
        let mut normalizer = Normalizer::new(self.keep_managed_fields);
        normalizer.replace(&self.shared.group, "{group}");
        normalizer.replace(&format!("{}.example.com", self.me), "{own}");
        normalizer.replace(&self.me, "{ns}");
        for (text, placeholder) in self.hidden {
            normalizer.replace(&text, placeholder);
        }
        normalizer.transcript(self.lines)
    }

    /// Shows `placeholder` for `text` in the record.
    pub fn hide(&mut self, text: &str, placeholder: &'static str) {
        self.hidden.push((text.to_owned(), placeholder));
    }

    /// Keeps a webhook to the end of the run. While objects remain that only a webhook can convert, no namespace is deleted without it:
    /// the namespace controller lists every resource.
    pub fn keep(&self, webhook: &Webhook) {
        self.shared.kept.lock().push(webhook.running());
    }

    /// Shows managedFields in the record of this case.
    pub fn keep_managed_fields(&mut self) {
        self.keep_managed_fields = true;
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], Value::Null).await
    }

    pub async fn get_as(&mut self, accept: &str, path: &str) -> Answer {
        self.send("GET", path, &[("accept", accept)], Value::Null)
            .await
    }

    pub async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[], body).await
    }

    pub async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, &[], body).await
    }

    pub async fn patch(&mut self, kind: &str, path: &str, body: Value) -> Answer {
        self.send("PATCH", path, &[("content-type", kind)], body)
            .await
    }

    pub async fn delete(&mut self, path: &str) -> Answer {
        self.send("DELETE", path, &[], Value::Null).await
    }

    pub async fn delete_with(&mut self, path: &str, options: Value) -> Answer {
        self.send("DELETE", path, &[], options).await
    }

    /// Sends a request and records it and its answer. A JSON string as the body is sent as plain text.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let shown_headers: String = headers
            .iter()
            .map(|(name, value)| format!(" [{name}: {value}]"))
            .collect();
        let line = format!("> {method} {path}{shown_headers}");
        self.lines.push(match &body {
            Value::Null => Line::Text(line),
            body => Line::Json(line, body.clone()),
        });
        let reply = self.raw(method, path, headers, &body).await;
        let (head, body) = shown(
            &reply.status.as_u16().to_string(),
            &reply.headers,
            &reply.body,
        );
        self.lines.push(match &body {
            Ok(value) => Line::Json(head, value.clone()),
            Err(text) => Line::Text(format!("{head} {text:?}")),
        });
        Answer {
            code: reply.status.as_u16(),
            body: body.unwrap_or_default(),
        }
    }

    /// Sends a request of the set-up that must succeed and is not recorded.
    pub async fn setup(&self, method: &str, path: &str, body: Value) -> Answer {
        let headers: &[(&str, &str)] = match method {
            "PATCH" => &[("content-type", MERGE)],
            _ => &[],
        };
        let reply = self.raw(method, path, headers, &body).await;
        let text = String::from_utf8_lossy(&reply.body);
        assert!(
            reply.status.is_success(),
            "setup {method} {path}: {} {text}",
            reply.status
        );
        Answer {
            code: reply.status.as_u16(),
            body: serde_json::from_slice(&reply.body).unwrap_or_default(),
        }
    }

    /// A patch of `kind` of the set-up that must succeed and is not recorded.
    pub async fn setup_as(&self, kind: &str, path: &str, body: Value) -> Answer {
        let answer = self
            .setup_any("PATCH", path, &[("content-type", kind)], body)
            .await;
        assert!(answer.code < 300, "setup PATCH {path}: {}", answer.body);
        answer
    }

    /// A request that may fail and is not recorded.
    pub async fn setup_any(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let reply = self.raw(method, path, headers, &body).await;
        Answer {
            code: reply.status.as_u16(),
            body: serde_json::from_slice(&reply.body).unwrap_or_default(),
        }
    }

    /// The same without a body; the request is recorded, the answer is not.
    pub async fn send_unwritten(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let shown: String = headers
            .iter()
            .map(|(name, value)| format!(" [{name}: {value}]"))
            .collect();
        self.lines
            .push(Line::Text(format!("> {method} {path}{shown}")));
        self.setup_any(method, path, headers, Value::Null).await
    }

    /// The same, with the body as text.
    pub async fn send_raw(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let shown: String = headers
            .iter()
            .map(|(name, value)| format!(" [{name}: {value}]"))
            .collect();
        self.lines
            .push(Line::Text(format!("> {method} {path}{shown}")));
        let reply = self.raw(method, path, headers, &Value::Null).await;
        let (head, _) = shown_head(&reply);
        self.lines.push(Line::Text(head));
        String::from_utf8_lossy(&reply.body).into_owned()
    }

    /// Status and warnings of an answer; the request is too long for the record.
    pub async fn warnings_of(&self, method: &str, path: &str, body: Value) -> (u16, Vec<String>) {
        let reply = self.raw(method, path, &[], &body).await;
        let warnings = reply.headers.get_all("warning").iter();
        let texts = warnings.filter_map(|value| value.to_str().ok().map(str::to_owned));
        (reply.status.as_u16(), texts.collect())
    }

    /// Gets `path` until it answers 410: on a real server a compaction takes effect a little later.
    pub async fn gone_within(&mut self, path: &str) -> Answer {
        self.lines.push(Line::Text(format!("> GET {path}")));
        self.until(path, |answer| answer.code == 410).await
    }

    /// Makes the server drop all history before now.
    pub async fn compact(&self) {
        let list = self.setup("GET", "{cm}", Value::Null).await;
        let revision = list.version();
        match &self.shared.compact {
            Compact::BuiltIn(server) => server.compact(revision.parse().ok()),
            Compact::Etcd(etcd) => {
                // As the API server's own compactor: the key notifies the caches.
                let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
                let put = json!({"key": encode("compact_rev_key"), "value": encode(&revision)});
                let compaction = json!({"revision": revision, "physical": true});
                for (path, body) in [("/v3/kv/put", put), ("/v3/kv/compaction", compaction)] {
                    let reply = etcd
                        .send(
                            &Method::POST,
                            path,
                            &HeaderMap::new(),
                            body.to_string().into(),
                        )
                        .await;
                    assert!(
                        reply.status.is_success(),
                        "{}",
                        String::from_utf8_lossy(&reply.body)
                    );
                }
            }
        }
    }

    /// Status and some headers of an answer.
    pub async fn head_of(&self, path: &str, headers: &[(&str, &str)], wanted: &[&str]) -> Value {
        let reply = self.raw("GET", path, headers, &Value::Null).await;
        let mut shown = vec![json!(reply.status.as_u16())];
        for name in wanted {
            let values: Vec<&str> = reply
                .headers
                .get_all(*name)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .collect();
            shown.push(json!([name, values]));
        }
        Value::Array(shown)
    }

    /// A watch that is not recorded.
    pub async fn watch_unwritten(&self, path: &str) -> Watch {
        let headers = header_map(&[("accept", "application/json")]);
        Watch {
            stream: self.shared.client.stream(&self.fill(path), &headers).await,
            label: "~".to_owned(),
        }
    }

    /// The next event of a watch, without a record.
    pub async fn event_unwritten(&self, watch: &mut Watch) -> Value {
        let line = watch
            .stream
            .line(EVENT_PATIENCE)
            .await
            .expect("another event");
        serde_json::from_slice(&line).expect("an event is JSON")
    }

    /// Repeats a request as `user` until the new roles allow `verb` for ConfigMaps in the namespace: on a real server
    /// they take effect a little later.
    pub async fn allowed_within(&self, user: &str, verb: &str) {
        let question = json!({"spec": {"user": user, "resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "{ns}"}}});
        for _ in 0..200 {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let answer = self.setup("POST", path, question.clone()).await;
            if answer.body["status"]["allowed"] == true {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{user} was not allowed to {verb} within 10 s");
    }

    /// Repeats a create of `body` as a dry run until it is refused as invalid.
    pub async fn refused_within(&self, collection: &str, body: Value) {
        for _ in 0..200 {
            let answer = self
                .setup_any(
                    "POST",
                    &format!("{collection}?dryRun=All"),
                    &[],
                    body.clone(),
                )
                .await;
            if answer.code == 422 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("a POST to {collection} was not refused within 10 s");
    }

    /// Creates one object of the set-up.
    pub async fn make(&self, collection: &str, body: Value) -> Answer {
        self.setup("POST", collection, body).await
    }

    /// Gets `path` without a record until `condition` holds.
    pub async fn until(&self, path: &str, condition: impl Fn(&Answer) -> bool) -> Answer {
        // The namespace controller of a real server waits up to a minute after each of its failures, which the cases of definitions with broken
        // webhooks cause in all namespaces.
        for _ in 0..7_200 {
            let reply = self.raw("GET", path, &[], &Value::Null).await;
            let answer = Answer {
                code: reply.status.as_u16(),
                body: serde_json::from_slice(&reply.body).unwrap_or_default(),
            };
            if condition(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("GET {path} did not become what it should in 360 s");
    }

    /// Records a value that the case computed.
    pub fn note(&mut self, label: &str, value: Value) {
        self.lines.push(Line::Json(format!("= {label}"), value));
    }

    /// Opens a watch; events are recorded when the case requests them.
    pub async fn watch(&mut self, path: &str) -> Watch {
        self.watch_as("application/json", path).await
    }

    pub async fn watch_as(&mut self, accept: &str, path: &str) -> Watch {
        let shown_accept = if accept == "application/json" {
            String::new()
        } else {
            format!(" [accept: {accept}]")
        };
        self.lines
            .push(Line::Text(format!("> GET {path}{shown_accept}")));
        let headers = header_map(&[("accept", accept)]);
        let stream = self.shared.client.stream(&self.fill(path), &headers).await;
        let (head, _) = shown(&stream.status.as_u16().to_string(), &stream.headers, b"");
        self.lines.push(Line::Text(head));
        Watch {
            stream,
            label: "~".to_owned(),
        }
    }

    /// Records the next `count` events, without the bookmarks that a server sends now and then.
    pub async fn events(&mut self, watch: &mut Watch, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let line = watch.stream.line(EVENT_PATIENCE).await;
            let line = line.unwrap_or_else(|| {
                panic!("the watch ended after {} of {count} events", events.len())
            });
            let event: Value = serde_json::from_slice(&line).expect("an event is JSON");
            if is_periodic(&event) {
                continue;
            }
            self.lines
                .push(Line::Json(watch.label.clone(), event.clone()));
            events.push(event);
        }
        events
    }

    /// All further events until the stream ends; only the end is recorded.
    pub async fn unwritten_to_end(&mut self, watch: &mut Watch) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(line) = watch.stream.line(EVENT_PATIENCE).await {
            events.push(serde_json::from_slice(&line).expect("an event is JSON"));
        }
        self.lines.push(Line::Text(format!("{} end", watch.label)));
        events
    }

    /// Records all further events until the stream ends, and the end.
    pub async fn events_to_end(&mut self, watch: &mut Watch) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(line) = watch.stream.line(EVENT_PATIENCE).await {
            let event: Value = serde_json::from_slice(&line).expect("an event is JSON");
            if is_periodic(&event) {
                continue;
            }
            self.lines
                .push(Line::Json(watch.label.clone(), event.clone()));
            events.push(event);
        }
        self.lines.push(Line::Text(format!("{} end", watch.label)));
        events
    }

    /// The text with the values of the placeholders.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{w}", "/apis/{group}/v1/namespaces/{ns}/widgets")
            .replace("{cm}", "/api/v1/namespaces/{ns}/configmaps")
            .replace("{g}", "/apis/{group}/v1/gadgets")
            .replace("{ns}", &self.me)
            .replace("{me}", &self.me)
            .replace("{group}", &self.shared.group)
            .replace("{own}", &format!("{}.example.com", self.me))
    }

    async fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        let method: Method = method.parse().expect("a method");
        let mut headers = header_map(headers);
        let content = match body {
            Value::Null => Bytes::new(),
            Value::String(text) => Bytes::from(self.fill(text)),
            body => Bytes::from(self.fill(&body.to_string())),
        };
        if !content.is_empty() && !headers.contains_key("content-type") {
            headers.insert("content-type", HeaderValue::from_static("application/json"));
        }
        if !headers.contains_key("accept") {
            headers.insert("accept", HeaderValue::from_static("application/json"));
        }
        self.shared
            .client
            .send(&method, &self.fill(path), &headers, content)
            .await
    }
}

fn header_map(headers: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().expect("a header name");
        let value: HeaderValue = value.parse().expect("a header value");
        if !value.is_empty() {
            map.append(name, value);
        }
    }
    map
}

fn shown_head(reply: &Reply) -> (String, Result<Value, String>) {
    shown(
        &reply.status.as_u16().to_string(),
        &reply.headers,
        &reply.body,
    )
}

/// Status, the relevant headers, and the body, as JSON if it is.
fn shown(status: &str, headers: &HeaderMap, body: &[u8]) -> (String, Result<Value, String>) {
    let mut head = format!("< {status}");
    for name in ["content-type", "retry-after", "warning", "allow"] {
        for value in headers.get_all(name) {
            let value = value.to_str().unwrap_or("?");
            if (name, value) != ("content-type", "application/json") {
                head.push_str(&format!(" [{name}: {value}]"));
            }
        }
    }
    let body = serde_json::from_slice(body).map_err(|_| String::from_utf8_lossy(body).into_owned());
    (head, body)
}

/// Whether it is a bookmark that does not end the initial events.
fn is_periodic(event: &Value) -> bool {
    let ends = &event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
    event["type"] == "BOOKMARK" && ends.is_null()
}

// === impl Answer ===

impl Answer {
    pub fn version(&self) -> String {
        self.text("/metadata/resourceVersion")
    }

    pub fn uid(&self) -> String {
        self.text("/metadata/uid")
    }

    pub fn text(&self, pointer: &str) -> String {
        let value = self.body.pointer(pointer).and_then(Value::as_str);
        value
            .unwrap_or_else(|| panic!("no text at {pointer} in {}", self.body))
            .to_owned()
    }
}
