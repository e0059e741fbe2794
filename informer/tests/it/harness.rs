//! An informer under test, with the events of its handler.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_informer::{Builder, Event, HandlerHandle, HandlerOptions, SharedInformer, Stored};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::script::Script;

pub type Maps = SharedInformer<ConfigMap>;

/// The events of a handler, shortened: `+a@5`, `~a@5-6`, `-a@6`, with `!` for a tombstone, `*` for initial,
/// `r` for relist and `s` for resync.
#[derive(Clone, Default)]
pub struct Received(Arc<Mutex<Vec<String>>>);

impl Received {
    pub fn handler(&self) -> impl Fn(Event<ConfigMap>) + Send + Sync + 'static + use<> {
        let received = Arc::clone(&self.0);
        move |event| received.lock().push(short(&event))
    }

    pub fn last(&self) -> Option<String> {
        self.0.lock().last().cloned()
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

pub fn short<S: Stored>(event: &Event<S>) -> String {
    match event {
        Event::Added { object, initial } => {
            let mark = if *initial { "*" } else { "" };
            format!("+{}@{}{mark}", object.name(), object.resource_version())
        }
        Event::Updated { old, new, reason } => {
            let mark = match reason {
                reeve_informer::UpdateReason::Changed => "",
                reeve_informer::UpdateReason::Relist => "r",
                reeve_informer::UpdateReason::Resync => "s",
            };
            format!(
                "~{}@{}-{}{mark}",
                new.name(),
                old.resource_version(),
                new.resource_version()
            )
        }
        Event::Deleted {
            key,
            last,
            tombstone,
            ..
        } => {
            let version = last.as_ref().map_or("?", |last| last.resource_version());
            format!(
                "-{}@{version}{}",
                key.name,
                if *tombstone { "!" } else { "" }
            )
        }
    }
}

pub struct Running {
    pub informer: Maps,
    pub received: Received,
    pub handle: HandlerHandle<ConfigMap>,
    pub stop: CancellationToken,
    pub task: JoinHandle<()>,
}

pub fn clock() -> Clock {
    Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 7)
}

pub fn builder(script: &Script) -> Builder<ConfigMap> {
    SharedInformer::<ConfigMap>::builder(script.client()).clock(clock())
}

/// Runs an informer of ConfigMaps with one handler.
pub fn start(script: &Script) -> Running {
    run(builder(script).build())
}

pub fn run(informer: Maps) -> Running {
    let received = Received::default();
    let handle = informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await.unwrap() }
    });
    Running {
        informer,
        received,
        handle,
        stop,
        task,
    }
}

/// Runs `test` on real threads. A test that hangs fails after a minute, by its name; a blocked thread is left behind.
pub fn within_a_minute(threads: usize, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(limited)));
    runtime.shutdown_background();
    let thread = std::thread::current();
    match ended {
        Ok(ended) => assert!(
            ended.is_ok(),
            "{} hangs: it did not end within a minute",
            thread.name().unwrap_or("a test")
        ),
        Err(panic) => resume_unwind(panic),
    }
}

/// Runs `test` on real threads, beside an informer of ConfigMaps: for callbacks that block a thread. No time passes.
pub fn on_threads<F: Future<Output = ()>>(script: &Script, test: impl FnOnce(Maps) -> F) {
    within_a_minute(3, async {
        let informer = SharedInformer::<ConfigMap>::builder(script.client()).build();
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        test(informer).await;
        stop.cancel();
        task.await.unwrap().unwrap();
    });
}

impl Running {
    /// The content of the store: `a@5 b@6`.
    pub fn store(&self) -> String {
        contents(&self.informer)
    }

    /// Stops the informer; it must end at once.
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_millis(1), self.task)
            .await
            .expect("it ends at once")
            .unwrap();
    }
}

pub fn contents(informer: &Maps) -> String {
    let mut objects: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|object| format!("{}@{}", object.name(), object.resource_version()))
        .collect();
    objects.sort();
    objects.join(" ")
}

pub async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub async fn millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
