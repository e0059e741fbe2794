//! Electors with networks of their own, against the scripted API server under paused time.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Frame;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::client::Body;
use kube_core::params::Patch;
use parking_lot::Mutex;
use reeve_client::{Client, Gated, ObjectKey};
use reeve_clock::Clock;
use reeve_fake::Fake;
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::faults::{CALM, CANDIDATES, Change, TROUBLE, identity};
use crate::tests::fixture::LEASE;
use crate::{Elector, Fence, Options};

const WORK: &str = "/api/v1/namespaces/ns/configmaps/work";
/// Maximum number of requests of one elector in ten seconds. A leader writes five times in ten seconds and may have to
/// read and write again each time; a standby reads and tries as often, and opens watches.
const MOST_REQUESTS: u64 = 40;

/// The network between one process and the server.
#[derive(Debug, Default)]
struct Link {
    cut: Option<Instant>,
    slow: Option<(Instant, Duration)>,
    refuse: Option<(Instant, u16)>,
    deaf: Option<Instant>,
}

impl Link {
    fn holds(end: Option<Instant>) -> bool {
        end.is_some_and(|end| Instant::now() < end)
    }

    fn delay(&self) -> Duration {
        match self.slow {
            Some((end, delay)) if Instant::now() < end => delay,
            _ => Duration::from_millis(1),
        }
    }
}

struct World {
    fake: Fake,
    server: kube_client::Client,
    links: [Arc<Mutex<Link>>; CANDIDATES],
    /// The current fence of each process.
    fences: Mutex<Vec<Option<Fence>>>,
    /// Whether clients check their fence; off to show that the audit finds violations.
    gated: bool,
    found: Mutex<Vec<String>>,
    network: Mutex<JoinSet<()>>,
    accepted: Mutex<Vec<(Instant, String)>>,
    /// Times of the requests of each elector, within the last ten seconds.
    elections: Mutex<Vec<VecDeque<Instant>>>,
    busiest: AtomicU64,
}

/// One process, which can be paused and killed.
struct Process {
    pause: watch::Sender<bool>,
    stop: CancellationToken,
    clock: Clock,
    task: AbortHandle,
}

impl World {
    fn new(gated: bool) -> Arc<Self> {
        let fake = Fake::default();
        Arc::new(Self {
            server: fake.client(),
            fake,
            links: Default::default(),
            fences: Mutex::new(vec![None; CANDIDATES]),
            gated,
            found: Mutex::default(),
            network: Mutex::default(),
            accepted: Mutex::default(),
            elections: Mutex::new(vec![VecDeque::new(); CANDIDATES]),
            busiest: AtomicU64::new(0),
        })
    }

    fn client(self: &Arc<Self>, candidate: usize, identity: &str) -> kube_client::Client {
        let (world, identity) = (Arc::clone(self), identity.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (world, identity) = (Arc::clone(&world), identity.clone());
            async move { world.send(candidate, identity, request).await }
        });
        kube_client::Client::new(service, "ns")
    }

    /// The part of a request inside the process; the network does the rest.
    async fn send(
        self: Arc<Self>,
        candidate: usize,
        identity: String,
        request: Request<Body>,
    ) -> Result<Response<AnswerBody>, BoxError> {
        let (parts, body) = Gated::request(request)?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        // From here on the request is in flight.
        let work = parts.uri.path() == WORK;
        if work {
            self.audit_sending(candidate);
        } else {
            self.count(candidate);
        }
        let request = Request::from_parts(parts, Body::from(bytes));
        let (sender, answer) = oneshot::channel();
        let world = Arc::clone(&self);
        self.network.lock().spawn(async move {
            world.carry(candidate, identity, request, sender).await;
        });
        match answer.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }

    async fn carry(
        self: Arc<Self>,
        candidate: usize,
        identity: String,
        request: Request<Body>,
        sender: oneshot::Sender<Result<Response<AnswerBody>, BoxError>>,
    ) {
        let link = &self.links[candidate];
        let delay = link.lock().delay();
        sleep(delay).await;
        let (cut, refuse) = {
            let link = link.lock();
            (Link::holds(link.cut), link.refuse)
        };
        if cut {
            return;
        }
        let write = *request.method() != Method::GET;
        let lease = request.uri().path().contains("/leases");
        if let Some((end, code)) = refuse.filter(|_| write && lease)
            && Instant::now() < end
        {
            let _ = sender.send(Ok(refusal(code)));
            return;
        }
        if request.uri().path() == WORK {
            self.audit_accepting(&identity);
        }
        let answer = self.server.send(request).await;
        let (delay, deaf, cut) = {
            let link = link.lock();
            (link.delay(), Link::holds(link.deaf), Link::holds(link.cut))
        };
        if deaf {
            let _ = sender.send(Err("connection reset".into()));
            return;
        }
        if cut {
            return;
        }
        sleep(delay).await;
        let link = Arc::clone(link);
        let answer = answer.map_err(BoxError::from).map(|answer| {
            answer.map(|body| {
                // Events of a watch during a cut are lost.
                let frames = BodyStream::new(body)
                    .filter(move |_| std::future::ready(!Link::holds(link.lock().cut)))
                    .map(|frame| frame.map_err(BoxError::from));
                StreamBody::new(frames.boxed())
            })
        });
        let _ = sender.send(answer);
    }

    /// A write leaves a process: no other fence may be open.
    fn audit_sending(&self, candidate: usize) {
        for (other, fence) in self.fences.lock().iter().enumerate() {
            if other != candidate && fence.as_ref().is_some_and(Fence::is_open) {
                let text = format!("{candidate} writes while the fence of {other} is open");
                self.found.lock().push(text);
            }
        }
    }

    /// A write arrives: the lease must be the writer's, or must not exist.
    fn audit_accepting(&self, identity: &str) {
        let holder = self.holder();
        if holder.as_deref().is_some_and(|holder| holder != identity) {
            let text = format!("a write of {identity} is accepted under {holder:?}");
            self.found.lock().push(text);
        }
        self.accepted
            .lock()
            .push((Instant::now(), identity.to_owned()));
    }

    fn holder(&self) -> Option<String> {
        let lease = self.fake.object(LEASE)?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    fn count(&self, candidate: usize) {
        let mut all = self.elections.lock();
        let (now, recent) = (Instant::now(), &mut all[candidate]);
        recent.push_back(now);
        while recent
            .front()
            .is_some_and(|at| now.duration_since(*at) > Duration::from_secs(10))
        {
            recent.pop_front();
        }
        self.busiest
            .fetch_max(recent.len() as u64, Ordering::Relaxed);
    }

    /// Starts `candidate` as `identity`. It starts again when its lease is lost, as a Pod does.
    fn start(
        self: &Arc<Self>,
        candidate: usize,
        identity: String,
        tasks: &mut JoinSet<()>,
    ) -> Process {
        let (pause, paused) = watch::channel(false);
        let stop = CancellationToken::new();
        let skew = SignedDuration::from_mins(i64::try_from(candidate).unwrap_or(0) * 7 - 7);
        let start = "2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap() + skew;
        let clock = Clock::simulated(start, candidate as u64 + 1);
        let (world, own, stopping) = (Arc::clone(self), clock.clone(), stop.clone());
        let task = tasks.spawn(pausable(paused, async move {
            while !stopping.is_cancelled() {
                let client = world.client(candidate, &identity);
                let fence = Fence::closed(own.clone());
                world.fences.lock()[candidate] = Some(fence.clone());
                let working = CancellationToken::new();
                let options = Options::new("ns", "lock").identity(identity.as_str());
                let elector = Elector::with_fence(
                    Client::new(client.clone()),
                    options,
                    own.clone(),
                    fence.clone(),
                )
                .unwrap();
                let gate = world.gated.then_some(fence);
                let client = Client::new(client);
                let writing = match gate {
                    Some(fence) => client.gated(fence.gate()),
                    None => client,
                };
                let writers = write(writing, working.clone());
                let lead = async {
                    let ending = CancellationToken::new();
                    let stop = async {
                        stopping.cancelled().await;
                        // The release waits for the writes in flight.
                        working.cancel();
                        ending.cancel();
                        std::future::pending::<()>().await;
                    };
                    let leading = watch::channel(false).0;
                    tokio::select! {
                        biased;
                        _ = elector.lead(ending.clone(), leading) => {}
                        () = stop => {}
                    }
                };
                tokio::select! {
                    biased;
                    () = lead => {}
                    () = writers => {}
                }
                world.fences.lock()[candidate] = None;
                sleep(Duration::from_secs(1)).await;
            }
        }));
        Process {
            pause,
            stop,
            clock,
            task,
        }
    }
}

type AnswerBody = StreamBody<BoxStream<'static, Result<Frame<bytes::Bytes>, BoxError>>>;

fn refusal(code: u16) -> Response<AnswerBody> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "test",
        "reason": if code == 409 { "Conflict" } else { "InternalError" }, "code": code});
    let frame = Ok(Frame::data(bytes::Bytes::from(status.to_string())));
    let mut response = Response::new(StreamBody::new(futures::stream::iter([frame]).boxed()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// Writes all the time, and does not check for leadership: only its fence holds it back.
async fn write(client: Client, stop: CancellationToken) {
    let key = ObjectKey::namespaced("ns", "work");
    let client = client.with_deadline(Duration::from_secs(1));
    let one = |offset: u64| {
        let (client, key, stop) = (client.clone(), key.clone(), stop.clone());
        async move {
            sleep(Duration::from_millis(offset)).await;
            while !stop.is_cancelled() {
                let patch = Patch::Merge(json!({"data": {"touched": "yes"}}));
                let _ = client.patch::<ConfigMap>(&key, &patch).await;
                sleep(Duration::from_millis(190)).await;
            }
        }
    };
    futures::future::join(one(3), one(101)).await;
    std::future::pending::<()>().await;
}

/// `future`, not polled while paused.
async fn pausable(mut paused: watch::Receiver<bool>, future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    loop {
        let mut other = paused.clone();
        let stopped = async { paused.wait_for(|paused| *paused).await.is_ok() };
        let goes_on = tokio::select! {
            biased;
            stopped = stopped => stopped,
            () = &mut future => return,
        };
        if !goes_on || other.wait_for(|paused| !*paused).await.is_err() {
            return future.await;
        }
    }
}

/// Plays `changes`, then a calm time, and returns the violations.
pub(super) async fn play(changes: Vec<(Duration, usize, Change)>, gated: bool) -> Vec<String> {
    let world = World::new(gated);
    world.fake.put(WORK, json!({"data": {}}));
    let mut tasks = JoinSet::new();
    let mut processes: Vec<Process> = (0..CANDIDATES)
        .map(|candidate| world.start(candidate, identity(candidate, 0), &mut tasks))
        .collect();
    let begin = Instant::now();
    let end = |until: Duration| Some(begin + until);
    for (at, candidate, change) in changes {
        sleep_until(begin + at).await;
        let (link, process) = (&world.links[candidate], &processes[candidate]);
        match change {
            Change::Cut { until } => link.lock().cut = end(until),
            Change::Slow { delay, until } => link.lock().slow = Some((begin + until, delay)),
            Change::Refuse { code, until } => link.lock().refuse = Some((begin + until, code)),
            Change::Deaf { until } => link.lock().deaf = end(until),
            Change::Pause => drop(process.pause.send_replace(true)),
            Change::Resume => drop(process.pause.send_replace(false)),
            Change::Jump { seconds } => process.clock.jump(SignedDuration::from_secs(seconds)),
            Change::Crash => {
                process.task.abort();
                world.fences.lock()[candidate] = None;
            }
            Change::Stop => process.stop.cancel(),
            Change::Start { identity } => {
                process.task.abort();
                world.fences.lock()[candidate] = None;
                processes[candidate] = world.start(candidate, identity, &mut tasks);
            }
            Change::Blind => world.fake.hold_watches(true),
            Change::See => world.fake.hold_watches(false),
        }
    }
    sleep_until(begin + TROUBLE + CALM).await;
    let mut found = std::mem::take(&mut *world.found.lock());
    let recent = Instant::now() - Duration::from_secs(5);
    let holder = world.holder().unwrap_or_default();
    let accepted = world.accepted.lock();
    let writers: Vec<&String> = accepted
        .iter()
        .filter(|(at, _)| *at > recent)
        .map(|(_, writer)| writer)
        .collect();
    if writers.is_empty() || writers.iter().any(|writer| **writer != holder) {
        found.push(format!("in the end {holder:?} leads and {writers:?} write"));
    }
    let busiest = world.busiest.load(Ordering::Relaxed);
    if busiest > MOST_REQUESTS {
        found.push(format!("{busiest} requests of one elector in ten seconds"));
    }
    found
}
