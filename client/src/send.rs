//! Sending of a call: through the gate, within the deadline, with a bounded answer.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::answer::{Answer, refusal};
use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::gate::Passage;

/// Describes a request for messages; most requests need none.
type Describe<'a> = &'a (dyn Fn() -> String + Sync);

impl Client {
    /// Sends `call` as it is.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, Error> {
        let http = call.http()?;
        let (code, body) = self.within_deadline(&|| call.describe(), http).await?;
        if code.is_success() {
            return Ok(Answer(body));
        }
        let error = refusal(call.describe(), code, &body);
        if error.is_not_served() {
            // The results of discovery for the group are outdated.
            self.known.forget(&call.resource().group);
        }
        Err(error)
    }

    /// Sends `http` and reads the answer, within the deadline.
    pub(crate) async fn within_deadline(
        &self,
        request: Describe<'_>,
        http: http::Request<Vec<u8>>,
    ) -> Result<(http::StatusCode, Bytes), Error> {
        let deadline = self.settings.deadline;
        match tokio::time::timeout(deadline, self.exchange(request, http)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Deadline {
                request: request(),
                after: deadline,
            }),
        }
    }

    async fn exchange(
        &self,
        request: Describe<'_>,
        http: http::Request<Vec<u8>>,
    ) -> Result<(http::StatusCode, Bytes), Error> {
        let mut http = http.map(kube_client::client::Body::from);
        let mut passage = self
            .gated
            .as_ref()
            .and_then(|gated| Passage::begin(&gated.gate, &mut http));
        // An interceptor may have held the call up.
        if passage
            .as_ref()
            .is_some_and(|passage| passage.check().is_err())
        {
            return Err(Error::NotLeader { request: request() });
        }
        let transport = |error: kube_client::Error| Error::Transport {
            request: request(),
            sent: !never_sent(&error),
            source: Box::new(error),
        };
        let answer = self.inner.counted.send(http).await.map_err(transport);
        if passage.as_ref().is_some_and(Passage::refused) {
            return Err(Error::NotLeader { request: request() });
        }
        if let Some(passage) = &mut passage {
            match &answer {
                Ok(answer) => passage.answered(answer.status()),
                Err(error) if error.is_ambiguous() => {}
                Err(_) => passage.settle(),
            }
        }
        let response = answer?;
        let status = response.status();
        self.warnings.log(request, response.headers());
        let body = Limited::new(response.into_body(), self.settings.body_limit)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return Error::TooLarge {
                        request: request(),
                        limit: self.settings.body_limit,
                    };
                }
                transport(kube_client::Error::Service(error))
            })?;
        Ok((status, body.to_bytes()))
    }
}

/// Whether the connection was never made, so that a write certainly did not happen.
fn never_sent(error: &kube_client::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        next = error.source();
    }
    false
}
