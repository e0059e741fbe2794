//! The control API: what tests of this crate do with an [`ApiServer`](crate::ApiServer), over HTTP, for tests in any language.
//!
//! Its paths are below [`PREFIX`]. They are served beside the API, at the same addresses, and a user needs the same rights as
//! for any path that is not a resource: administrators have them, and a role can give them (`nonResourceURLs`). Requests for
//! them meet no fault rule and are not recorded. Without [`Builder::control`](crate::Builder::control) they do not exist.
//!
//! `docs/control-api.md` describes every path.

mod form;
mod requests;
mod routes;
mod snapshots;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, Method, Request, Response};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::access;
use crate::core::Core;
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::media::Encoding;
use crate::http::query::Parameters;
use crate::http::route::Target;
use crate::service::{agent_of, header, is_pretty};
use crate::status::Status;
use crate::template::Template;

use snapshots::Snapshots;

/// The paths of the control API.
pub(crate) const PREFIX: &str = "/reeve/v1";
/// Maximum size of a request body in bytes.
const LARGEST_BODY: usize = 64 * 1024;

/// The state of the control API.
#[derive(Debug, Default)]
pub(crate) struct Control {
    snapshots: Mutex<Snapshots>,
    /// The sum of the times by which the clock was advanced.
    advanced: Mutex<Duration>,
    /// The outage that is going on.
    outage: Mutex<Option<JoinHandle<()>>>,
}

/// A request of the control API.
struct Call<'a> {
    core: &'a Arc<Core>,
    control: &'a Control,
    method: Method,
    /// The parts of the path below the prefix.
    path: Vec<String>,
    query: Parameters,
    body: Value,
}

/// The answer to a [`Call`]: its code and its document.
type Answer = Result<(u16, Value), Failure>;

/// The answer to a call that fails.
enum Failure {
    Status(Status),
    /// 405, with the methods of the path.
    Method(&'static str),
}

// === impl Failure ===

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

// === impl Control ===

impl Control {
    /// Makes `template` the state that a reset leads to.
    pub(crate) fn set_start(&self, template: Template) {
        self.snapshots.lock().start = Some(template);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(outage) = self.outage.get_mut().take() {
            outage.abort();
        }
    }
}

/// Whether a path is one of the control API.
pub(crate) fn is_path(path: &str) -> bool {
    let below = path.strip_prefix(PREFIX);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request of the control API.
pub(crate) async fn answer<B>(
    core: &Arc<Core>,
    control: &Control,
    request: Request<B>,
) -> io::Result<Response<Body>>
where
    B: http_body::Body + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let query = Parameters::parse(head.uri.query().unwrap_or_default());
    let pretty = is_pretty(&query, &agent_of(&head.headers));
    let answered = async {
        check_origin(&head.headers)?;
        let target = Target::of(&head.method, head.uri.path(), &query);
        let attributes = target.attributes(&head.method);
        access::check(core, &head.headers, head.extensions.get(), &attributes)?;
        let body = document(&head.headers, &body::read(body).await?)?;
        let path = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
        let path = path.split('/').filter(|part| !part.is_empty());
        let call = Call {
            core,
            control,
            method: head.method.clone(),
            path: path.map(str::to_owned).collect(),
            query,
            body,
        };
        routes::answer(call).await
    };
    Ok(match answered.await {
        Ok((code, value)) => answer::document(code, Encoding::Json, pretty, &value),
        Err(Failure::Status(status)) => answer::failure(&status, Encoding::Json, pretty),
        Err(Failure::Method(allowed)) => {
            let text = format!("this path has the methods {allowed}");
            let status = Status::new(405, "MethodNotAllowed", text);
            let mut response = answer::failure(&status, Encoding::Json, pretty);
            answer::set(&mut response, ALLOW, allowed);
            response
        }
    })
}

/// Refuses requests of web pages: on a server without authentication, any page in a browser on this machine could send them.
fn check_origin(headers: &HeaderMap) -> Result<(), Status> {
    if headers.contains_key(ORIGIN) {
        let text = "the control API has no answers for web pages: the request has an Origin";
        return Err(Status::new(403, "Forbidden", text));
    }
    Ok(())
}

/// The JSON of a body; an empty one is an empty object.
fn document(headers: &HeaderMap, body: &[u8]) -> Result<Value, Status> {
    if body.len() > LARGEST_BODY {
        return Err(Status::too_large(format_args!("limit is {LARGEST_BODY}")));
    }
    if body.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let content_type = header(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    if !content_type.eq_ignore_ascii_case("application/json") {
        let text = format!("the body is {content_type:?}, and has to be application/json");
        return Err(Status::new(415, "UnsupportedMediaType", text));
    }
    serde_json::from_slice(body)
        .map_err(|error| Status::bad_request(format!("the body is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_are_not_of_the_control_api() {
        for (path, expected) in [
            ("/reeve/v1", true),
            ("/reeve/v1/", true),
            ("/reeve/v1/faults", true),
            ("/reeve/v10", false),
            ("/reeve", false),
            ("/api/v1/reeve/v1", false),
        ] {
            assert_eq!(is_path(path), expected, "{path}");
        }
    }
}
