//! Waiting for a state, with a report of the seen one on failure.

use std::fmt::{Debug, Display};
use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The limit of a wait, and the interval of its looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The time limit.
    pub limit: Duration,
    /// The pause between two looks at first; later a hundredth of the waited time.
    pub look_every: Duration,
}

// === impl Patience ===

impl Patience {
    /// Ten minutes, a look every 10 ms at first: under virtual time.
    pub const VIRTUAL: Self = Self {
        limit: Duration::from_secs(600),
        look_every: Duration::from_millis(10),
    };
    /// A minute, a look every 20 ms at first: in real time.
    pub const REAL: Self = Self {
        limit: Duration::from_secs(60),
        look_every: Duration::from_millis(20),
    };

    /// Repeats `look` until it succeeds, and returns its value.
    ///
    /// # Panics
    /// When the time is over, with `what`, the place of the wait, the last seen state, and the text of `more`.
    pub(super) async fn wait<L: Look>(
        self,
        what: &str,
        at: &Location<'_>,
        mut look: impl AsyncFnMut() -> L,
        more: impl FnOnce() -> String,
    ) -> L::Found {
        let begin = Instant::now();
        let mut looks = 0u64;
        loop {
            looks += 1;
            match look().await.found() {
                Ok(found) => return found,
                Err(seen) if begin.elapsed() >= self.limit => panic!(
                    "never: {what}\n  waited for at {at}, {looks} looks in {:?}\n  last seen: {seen}{}",
                    begin.elapsed(),
                    more()
                ),
                // A hundredth of the waited time, so that a long wait does not take a million looks.
                Err(_) => sleep(self.look_every.max(begin.elapsed() / 100)).await,
            }
        }
    }

    /// Repeats `look` for `length`, and fails at the first look without success.
    pub(super) async fn keep<L: Look>(
        self,
        what: &str,
        length: Duration,
        at: &Location<'_>,
        mut look: impl AsyncFnMut() -> L,
        more: impl FnOnce() -> String,
    ) {
        let begin = Instant::now();
        loop {
            if let Err(seen) = look().await.found() {
                panic!(
                    "not any more: {what}\n  watched at {at}, for {:?} of {length:?}\n  seen: {seen}{}",
                    begin.elapsed(),
                    more()
                );
            }
            let left = length.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return;
            }
            sleep(self.look_every.min(left)).await;
        }
    }
}

/// The result of one look: the value, or the state in its place.
///
/// A `bool` (`false` has no details: a `Result` has), an `Option`, or a `Result` whose error is the seen state.
pub trait Look {
    /// The value.
    type Found;

    /// # Errors
    /// The state in its place.
    fn found(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".into()) }
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".into())
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// `seen` if it is `expected`, else a text with both.
pub(super) fn compared<T, E>(seen: T, expected: &E) -> Result<T, String>
where
    T: PartialEq<E> + Debug,
    E: Debug,
{
    if seen == *expected {
        Ok(seen)
    } else {
        Err(format!("{seen:?}\n  expected:  {expected:?}"))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use crate::client::Client;
    use crate::testing::Cluster;
    use crate::{Context, Controller, ObjectKey, Outcome, Request, reconcile};

    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "last seen: 3\n  expected:  4\n  requests: 0")]
    async fn what_never_comes_is_said_with_what_was_seen_instead() {
        let cluster = Cluster::in_process().await;
        cluster.eventually_eq("four", 4, async || 3).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_said_with_the_errors_of_controllers_and_the_requests_of_others() {
        let cluster = Cluster::in_process().await;
        let (client, none) = (cluster.client(), ObjectKey::namespaced("default", "none"));
        let other = Client::new(cluster.kube());
        other.get::<ConfigMap>(&none).await.unwrap_err();
        for name in ["a", "b", "c", "d", "well"] {
            let map = json!({"metadata": {"name": name, "namespace": "default"}});
            cluster.create::<ConfigMap>(map).await;
        }
        let reconciler = reconcile::function(|_: Context, request: Request| async move {
            match &*request.name {
                "well" => Ok(Outcome::done()),
                _ => Err(reconcile::Error::message("my own mistake")),
            }
        });
        let controller = Controller::builder("greeter")
            .for_kind::<ConfigMap>()
            .complete(reconciler);
        let running = cluster.run([controller.unwrap()]).await;
        let never = cluster.eventually("the map", async || client.get::<ConfigMap>(&none).await);
        let panic = AssertUnwindSafe(never).catch_unwind().await.unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        let failed = text.matches("\n  greeter failed for default/").count();
        assert_eq!(failed, 3, "{text}");
        assert_eq!(text.matches("times in a row: my own mistake").count(), 3);
        assert!(
            text.contains("\n  greeter failed for 1 more keys"),
            "{text}"
        );
        // The request of another client, and those of the informer.
        let gets = text
            .matches(" get 404 /api/v1/namespaces/default/configmaps/none")
            .count();
        assert_eq!(gets, 1, "{text}");
        assert!(text.contains(" of the test itself"), "{text}");
        assert!(text.contains(" watch 200 /api/v1/configmaps?"), "{text}");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_late_is_waited_for_and_returned() {
        let cluster = Cluster::in_process().await;
        let begin = Instant::now();
        let late = || (begin.elapsed() > Duration::from_secs(300)).then_some("five minutes");
        let seen = cluster.eventually("five minutes", async || late()).await;
        assert_eq!(seen, "five minutes");
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not any more: one map\n")]
    async fn what_should_stay_and_does_not_is_said() {
        let cluster = Cluster::in_process().await;
        let map = json!({"metadata": {"name": "a", "namespace": "default"}});
        cluster.create::<ConfigMap>(map).await;
        let begin = Instant::now();
        let stays = async || begin.elapsed() < Duration::from_secs(9);
        cluster
            .consistently("one map", Duration::from_secs(8), stays)
            .await;
        cluster
            .consistently("one map", Duration::from_secs(8), stays)
            .await;
    }
}
