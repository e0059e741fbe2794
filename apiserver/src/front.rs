//! Fault rules and the log of requests in front of another API server, for example a real one, so that a test that
//! uses them runs against either.

use std::io;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use kube_client::Client;
use kube_client::client::Body as ClientBody;
use reeve_clock::Clock;
use tokio::time::sleep;
use tower::BoxError;

use crate::faults::{Faults, Instead};
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::media::Encoding;
use crate::http::query::Parameters;
use crate::http::route::Target;
use crate::record::{Record, RequestRecord};
use crate::service::{agent_of, broken, cut_short};

/// A proxy between clients and an API server. Clones share everything.
///
/// It supports the [`Faults`] that need no server: delays, refusals, broken connections, lost answers, streams that
/// end early. Rules for the state of the server ([`Rule::stale`](crate::faults::Rule::stale), bookmarks,
/// streaming lists) have no effect here.
#[derive(Clone, Debug)]
pub struct Front {
    clock: Clock,
    faults: Faults,
    record: Record,
}

// === impl Front ===

impl Front {
    /// Without faults, with an empty log.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            faults: Faults::new(clock.clone()),
            record: Record::default(),
            clock,
        }
    }

    /// The fault rules.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The requests that were answered. Only the server has their users, so the user is empty.
    #[must_use]
    pub fn requests(&self) -> Record {
        self.record.clone()
    }

    /// A client whose requests pass here before `behind` sends them.
    #[must_use]
    pub fn client(&self, behind: Client) -> Client {
        let front = self.clone();
        let namespace = behind.default_namespace().to_owned();
        let service = tower::service_fn(move |request| {
            let (front, behind) = (front.clone(), behind.clone());
            async move { front.pass(&behind, request).await }
        });
        Client::new(service, namespace)
    }

    async fn pass(
        &self,
        behind: &Client,
        request: Request<ClientBody>,
    ) -> Result<Response<Body>, BoxError> {
        let (head, sent) = request.into_parts();
        let query = Parameters::parse(head.uri.query().unwrap_or_default());
        let target = Target::of(&head.method, head.uri.path(), &query);
        let attributes = target.attributes(&head.method);
        let agent = agent_of(&head.headers);
        let plan = self.faults.plan(&attributes, &agent);
        sleep(plan.delay_before).await;
        let sent = body::read(sent).await.map_err(io::Error::other)?;
        let mut record = RequestRecord::of(&head, &attributes, agent, self.clock.now());
        record.body = sent.clone();
        let answered = match &plan.instead {
            Some(Instead::Status(status)) => {
                Some(Ok(answer::failure(status, Encoding::Json, false)))
            }
            Some(Instead::CloseEmpty) => Some(Ok(answer::bytes(
                200,
                Encoding::Json.content_type(),
                Bytes::new(),
            ))),
            Some(Instead::Reset) => Some(Err(broken().into())),
            Some(Instead::Stall) => {
                self.record.push(record);
                return std::future::pending().await;
            }
            None => None,
        };
        let answered = match answered {
            Some(answered) => answered,
            None => {
                let request = Request::from_parts(head, ClientBody::from(sent.to_vec()));
                behind
                    .send(request)
                    .await
                    .map(|response| response.map(of_client))
                    .map_err(BoxError::from)
            }
        };
        if !plan.lose_answer
            && let Ok(response) = &answered
        {
            record.code = response.status().as_u16();
        }
        self.record.push(record);
        if plan.lose_answer {
            return Err(broken().into());
        }
        sleep(plan.delay_after).await;
        let response = answered?;
        let Some((after, end)) = plan.stream else {
            return Ok(response);
        };
        // Only the client ends a stream that stalls here.
        Ok(response.map(|body| cut_short(body, after, end, std::future::pending)))
    }
}

/// Converts the body of a client's answer to that of a server's.
fn of_client(body: ClientBody) -> Body {
    let pieces = http_body_util::BodyDataStream::new(body);
    body::stream(pieces.map(|piece| piece.map_err(io::Error::other)))
}
