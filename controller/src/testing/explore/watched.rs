//! The events of a watch on their way to a process.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::Response;
use http_body_util::BodyExt as _;
use kube_client::client::Body;
use serde::Deserialize;

use super::core::{Core, Incarnation};
use super::tap::{Answer, body_of};
use super::target::Target;

/// The part of an event that names it.
#[derive(Debug, Deserialize)]
struct Event {
    r#type: String,
    object: Named,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: Option<String>,
    resource_version: String,
}

struct Watched {
    body: Body,
    partial: BytesMut,
    lines: VecDeque<Bytes>,
    core: Core,
    incarnation: Incarnation,
    target: Target,
}

/// The answer of a watch, whose events pass one by one, and wait while they are held.
pub(super) fn watched(
    answer: Response<Body>,
    core: Core,
    incarnation: Incarnation,
    target: Target,
) -> Answer {
    let (head, body) = answer.into_parts();
    let watched = Watched {
        body,
        partial: BytesMut::new(),
        lines: VecDeque::new(),
        core,
        incarnation,
        target,
    };
    let events = stream::try_unfold(watched, |mut watched| async move {
        Ok(watched.next().await?.map(|line| (line, watched)))
    });
    Response::from_parts(head, body_of(events))
}

// === impl Watched ===

impl Watched {
    async fn next(&mut self) -> Result<Option<Bytes>, kube_client::Error> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                arrive(&self.core, self.incarnation, &self.target, &line).await;
                return Ok(Some(line));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok((!self.partial.is_empty()).then(|| self.partial.split().freeze()));
            };
            if let Ok(data) = frame?.into_data() {
                self.partial.extend_from_slice(&data);
            }
            while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
                self.lines
                    .push_back(self.partial.split_to(end + 1).freeze());
            }
        }
    }
}

async fn arrive(core: &Core, incarnation: Incarnation, watched: &Target, line: &Bytes) {
    if watched.is_plain() {
        return core.alive(incarnation).await;
    }
    let Ok(event) = serde_json::from_slice::<Event>(line) else {
        return;
    };
    let resource = &*watched.resource;
    let metadata = event.object.metadata;
    if event.r#type == "BOOKMARK" {
        return core.deliverable(incarnation, resource).await;
    }
    let target = Target {
        namespace: metadata.namespace,
        ..Target::default()
    };
    let kind = event.r#type.to_lowercase();
    let what = format!("{kind} {resource} {}", target.object(&metadata.name));
    let version = metadata.resource_version.parse().unwrap_or_default();
    core.event(incarnation, resource, &what, version).await;
}
