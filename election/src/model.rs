//! Model test: three candidates against one server under virtual time, each behind a network of its own, with every
//! fault of the module's documentation. At no moment may the fences of two let a write through.
//!
//! A process is a future that can be paused in the middle (SIGSTOP) and resumed. The network is separate: a request that
//! has left a process arrives whatever happens to the process.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Frame;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::client::Body;
use kube_core::params::{Patch, PatchParams};
use parking_lot::Mutex;
use proptest::prelude::*;
use reeve_client::ObjectKey;
use reeve_clock::Clock;
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::elector::Elector;
use super::{Fence, Options};
use reeve_client::Client;
use reeve_client::Gated;
use reeve_fake::Fake;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
const WORK: &str = "/api/v1/namespaces/ns/configmaps/work";
const CANDIDATES: usize = 3;
/// Maximum time in flight: within LeaseDuration − RenewDeadline, as the guarantee requires.
const SLOWEST: Duration = Duration::from_millis(4500);
/// Time in which faults happen.
const TROUBLE: Duration = Duration::from_secs(120);
/// Time without faults after which everything works again: the lease, a restart and a retry.
const CALM: Duration = Duration::from_secs(40);

#[derive(Clone, Debug)]
struct Event {
    after: Duration,
    candidate: usize,
    fault: Fault,
}

#[derive(Clone, Debug)]
enum Fault {
    /// No message passes, in either direction.
    Cut(Duration),
    /// Each direction takes this long.
    Slow(Duration, Duration),
    /// The server answers writes of the lease with this code.
    Refuse(u16, Duration),
    /// The server executes requests, and the answers are lost.
    Deaf(Duration),
    /// The process is paused.
    Pause(Duration),
    /// The wall clock is set.
    Jump(i64),
    /// The process dies and comes back after a while, as itself or as another.
    Crash(Duration, bool),
    /// The process stops gracefully and comes back.
    Stop(Duration),
    /// Watches show nothing.
    Blind(Duration),
}

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
            .fetch_max(recent.len() as u64, std::sync::atomic::Ordering::Relaxed);
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
                let options = Options::new("ns", "lock", identity.as_str());
                let elector = Elector::new(Client::new(client.clone()), options, own.clone())
                    .unwrap()
                    .with_fence(fence.clone());
                let gate = world.gated.then_some(fence);
                let writers = write(
                    Client::new(client).gated(gate.map(|fence| fence.gate())),
                    working.clone(),
                );
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

type AnswerBody =
    StreamBody<futures::stream::BoxStream<'static, Result<Frame<bytes::Bytes>, BoxError>>>;

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
                let params = PatchParams::default();
                let _ = client.patch::<ConfigMap, _>(&key, &params, &patch).await;
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

/// Plays `schedule`, then a calm time, and returns the violations.
async fn play(schedule: Vec<Event>, gated: bool) -> Vec<String> {
    let world = World::new(gated);
    world.fake.put(WORK, json!({"data": {}}));
    let mut tasks = JoinSet::new();
    let mut processes: Vec<Process> = (0..CANDIDATES)
        .map(|candidate| world.start(candidate, format!("pod-{candidate}"), &mut tasks))
        .collect();
    let begin = Instant::now();
    let end = |length: Duration| Some((Instant::now() + length).min(begin + TROUBLE));
    let mut later: Vec<(Instant, usize, Later)> = Vec::new();
    let mut generation = 0;
    let mut schedule: VecDeque<Event> = schedule.into();
    let mut next = begin;
    loop {
        if let Some(event) = schedule.front() {
            next = next.min(begin + TROUBLE);
            let at = (next + event.after).min(begin + TROUBLE);
            later.sort_by_key(|(at, candidate, _)| (*at, *candidate));
            if later.first().is_none_or(|(due, ..)| *due > at) {
                tokio::time::sleep_until(at).await;
                next = at;
                let Event {
                    candidate, fault, ..
                } = schedule.pop_front().unwrap();
                let link = &world.links[candidate];
                let process = &processes[candidate];
                match fault {
                    Fault::Cut(length) => link.lock().cut = end(length),
                    Fault::Slow(delay, length) => {
                        link.lock().slow = end(length).map(|end| (end, delay));
                    }
                    Fault::Refuse(code, length) => {
                        link.lock().refuse = end(length).map(|end| (end, code));
                    }
                    Fault::Deaf(length) => link.lock().deaf = end(length),
                    Fault::Pause(length) => {
                        process.pause.send_replace(true);
                        later.push((end(length).unwrap(), candidate, Later::Resume));
                    }
                    Fault::Jump(seconds) => {
                        process.clock.jump(SignedDuration::from_secs(seconds));
                    }
                    Fault::Crash(length, same) => {
                        process.task.abort();
                        world.fences.lock()[candidate] = None;
                        generation += u64::from(!same);
                        later.push((end(length).unwrap(), candidate, Later::Start));
                    }
                    Fault::Stop(length) => {
                        process.stop.cancel();
                        later.push((end(length).unwrap(), candidate, Later::Start));
                    }
                    Fault::Blind(length) => {
                        world.fake.hold_watches(true);
                        later.push((end(length).unwrap(), candidate, Later::See));
                    }
                }
                continue;
            }
        }
        if later.is_empty() {
            break;
        }
        later.sort_by_key(|(at, candidate, _)| (*at, *candidate));
        let (at, candidate, what) = later.remove(0);
        tokio::time::sleep_until(at).await;
        match what {
            Later::Resume => {
                processes[candidate].pause.send_replace(false);
            }
            Later::See => world.fake.hold_watches(false),
            Later::Start => {
                processes[candidate].task.abort();
                world.fences.lock()[candidate] = None;
                let identity = match generation {
                    0 => format!("pod-{candidate}"),
                    number => format!("pod-{candidate}-{number}"),
                };
                processes[candidate] = world.start(candidate, identity, &mut tasks);
            }
        }
    }
    for process in &processes {
        process.pause.send_replace(false);
    }
    tokio::time::sleep_until(begin + TROUBLE).await;
    sleep(CALM).await;
    let mut found = std::mem::take(&mut *world.found.lock());
    let recent = Instant::now() - Duration::from_secs(5);
    let holder = world.holder().unwrap_or_default();
    let accepted = world.accepted.lock();
    let writers: Vec<&String> = accepted
        .iter()
        .filter(|(at, _)| *at > recent)
        .map(|(_, candidate)| candidate)
        .collect();
    if writers.is_empty() || writers.iter().any(|writer| **writer != holder) {
        found.push(format!("in the end {holder:?} leads and {writers:?} write"));
    }
    let busiest = world.busiest.load(std::sync::atomic::Ordering::Relaxed);
    // A leader writes five times in ten seconds and may have to read and write again each time; a standby reads and
    // tries as often, and opens watches.
    if busiest > 40 {
        found.push(format!("{busiest} requests of one elector in ten seconds"));
    }
    found
}

#[derive(Clone, Copy, Debug)]
enum Later {
    Resume,
    See,
    Start,
}

fn run(schedule: Vec<Event>, gated: bool) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = TROUBLE * 4 + CALM;
        timeout(limit, play(schedule, gated))
            .await
            .expect("it ends")
    })
}

fn faults() -> impl Strategy<Value = Vec<Event>> {
    let length = || (200_u64..30_000).prop_map(Duration::from_millis);
    let fault = prop_oneof![
        3 => length().prop_map(Fault::Cut),
        2 => (10_u64..4400, length())
            .prop_map(|(delay, length)| Fault::Slow(Duration::from_millis(delay), length)),
        2 => (prop_oneof![Just(409_u16), Just(500), Just(403)], length())
            .prop_map(|(code, length)| Fault::Refuse(code, length)),
        2 => length().prop_map(Fault::Deaf),
        4 => length().prop_map(Fault::Pause),
        1 => (-90_000_i64..90_000).prop_map(Fault::Jump),
        2 => (length(), any::<bool>()).prop_map(|(length, same)| Fault::Crash(length, same)),
        1 => length().prop_map(|length| Fault::Stop(length + SLOWEST * 3)),
        1 => length().prop_map(Fault::Blind),
    ];
    let event = (0_u64..20_000, 0..CANDIDATES, fault).prop_map(|(after, candidate, fault)| Event {
        after: Duration::from_millis(after),
        candidate,
        fault,
    });
    prop::collection::vec(event, 1..16)
}

fn event(seconds: u64, candidate: usize, fault: Fault) -> Event {
    Event {
        after: Duration::from_secs(seconds),
        candidate,
        fault,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fences_of_two_never_let_writes_through(schedule in faults()) {
        let found = run(schedule, true);
        prop_assert!(found.is_empty(), "{:#?}", &found[..found.len().min(5)]);
    }
}

/// A case is two virtual minutes of three processes: by default fewer than proptest's usual number.
fn cases() -> u32 {
    let cases = std::env::var("PROPTEST_CASES").ok();
    cases.and_then(|text| text.parse().ok()).unwrap_or(32)
}

#[test]
fn without_the_fence_a_pause_longer_than_the_lease_is_found() {
    let pause = |candidate| event(10, candidate, Fault::Pause(Duration::from_secs(25)));
    let schedule = vec![pause(0), pause(1), pause(2)];
    assert_eq!(run(schedule.clone(), true), Vec::<String>::new());
    let found = run(schedule, false);
    assert!(
        found.iter().any(|text| text.contains("is accepted under")),
        "{found:?}"
    );
}
