//! Observers of the writes of a client, for a cache that waits until it shows them.

use std::fmt;
use std::sync::Arc;

use kube_core::ObjectMeta;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;

/// Observes the writes of a client: [`Client::observed`](crate::Client::observed). Dry runs are left out.
pub trait WriteObserver: fmt::Debug + Send + Sync + 'static {
    /// A write is about to be sent. `None` leaves it unobserved.
    fn begin(&self, call: &Call) -> Option<Box<dyn PendingWrite>>;
}

/// One write in flight. Dropped without an answer (its future was cancelled), the write may have taken effect.
pub trait PendingWrite: Send {
    /// The server took the write and answered with `answer`; `object` is the metadata of the answer where it was decoded
    /// as an object of the kind.
    fn answered(self: Box<Self>, answer: &Answer, object: Option<&ObjectMeta>);

    /// The write failed. [`Error::is_ambiguous`] shows whether it may have taken effect.
    fn failed(self: Box<Self>, error: &Error);
}

/// Two observers of the same writes.
#[derive(Debug)]
struct Both(Arc<dyn WriteObserver>, Arc<dyn WriteObserver>);

/// One write that both observe.
struct PendingBoth(Box<dyn PendingWrite>, Box<dyn PendingWrite>);

/// `observer`, and the observer that was there before.
pub(crate) fn and(
    before: Option<Arc<dyn WriteObserver>>,
    observer: Arc<dyn WriteObserver>,
) -> Arc<dyn WriteObserver> {
    match before {
        None => observer,
        Some(before) => Arc::new(Both(before, observer)),
    }
}

// === impl Both ===

impl WriteObserver for Both {
    fn begin(&self, call: &Call) -> Option<Box<dyn PendingWrite>> {
        match (self.0.begin(call), self.1.begin(call)) {
            (Some(first), Some(second)) => Some(Box::new(PendingBoth(first, second))),
            (pending, None) | (None, pending) => pending,
        }
    }
}

impl PendingWrite for PendingBoth {
    fn answered(self: Box<Self>, answer: &Answer, object: Option<&ObjectMeta>) {
        self.0.answered(answer, object);
        self.1.answered(answer, object);
    }

    fn failed(self: Box<Self>, error: &Error) {
        self.0.failed(error);
        self.1.failed(error);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_client::client::Body;
    use kube_core::params::DeleteParams;
    use parking_lot::Mutex;

    use super::*;
    use crate::{Client, ObjectKey};

    /// Records what it is notified of, if it observes at all.
    #[derive(Clone, Debug)]
    struct Log(bool, Arc<Mutex<Vec<&'static str>>>);

    impl WriteObserver for Log {
        fn begin(&self, _: &Call) -> Option<Box<dyn PendingWrite>> {
            self.1.lock().push("begin");
            self.0.then(|| Box::new(self.clone()) as _)
        }
    }

    impl PendingWrite for Log {
        fn answered(self: Box<Self>, _: &Answer, _: Option<&ObjectMeta>) {
            self.1.lock().push("answered");
        }

        fn failed(self: Box<Self>, _: &Error) {
            self.1.lock().push("failed");
        }
    }

    #[tokio::test]
    async fn an_observer_stays_when_another_is_added() {
        for (status, end) in [(200, "answered"), (409, "failed")] {
            let server = tower::service_fn(move |_: Request<Body>| async move {
                let mut answer = http::Response::new(Body::from(b"{}".to_vec()));
                *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
                Ok::<_, tower::BoxError>(answer)
            });
            for observes in [[true, true], [true, false], [false, true]] {
                let [one, two] = observes.map(|observes| Log(observes, Arc::default()));
                let client = Client::new(kube_client::Client::new(server, "ns"));
                let client = client.observed(Arc::new(one.clone()));
                let client = Client::unbound(&client.observed(Arc::new(two.clone())));
                let key = ObjectKey::namespaced("ns", "work");
                let _ = client
                    .delete::<ConfigMap>(&key, &DeleteParams::default())
                    .await;
                for log in [one, two] {
                    let expected: &[&str] = if log.0 { &["begin", end] } else { &["begin"] };
                    assert_eq!(*log.1.lock(), expected, "{status} {observes:?}");
                }
            }
        }
    }
}
