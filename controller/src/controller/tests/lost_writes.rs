//! The rate and the order of reads after lost writes.

use super::own_writes::{patching, secret};
use super::waiting_writes::{changed, held};
use super::*;
use crate::cache::View;
use crate::client::GroupKind;
use crate::own_writes::effect::{Effect, Write};
use crate::own_writes::tracker::{Hold, Own, OwnWrites, Place};

/// Each GET of one object: its time and the object's name.
type Reads = Arc<Mutex<Vec<(Instant, String)>>>;

/// Records each GET of an object of `plural`, and answers it with `fate`.
fn noting_reads(
    fake: &Fake,
    plural: &str,
    fate: impl Fn(&Method) -> Option<Fate> + Send + 'static,
) -> Reads {
    let reads = Reads::default();
    let noted = Arc::clone(&reads);
    let place = format!("/{plural}/");
    fake.hook(move |method, path| {
        let (_, name) = path.split_once(&place)?;
        if *method == Method::GET {
            noted.lock().push((Instant::now(), name.to_owned()));
        }
        fate(method)
    });
    reads
}

/// No second has more than eight reads.
fn assert_budget(reads: &Reads) {
    for nine in reads.lock().windows(9) {
        let within = nine[8].0 - nine[0].0;
        assert!(within >= Duration::from_secs(1), "nine reads in {within:?}");
    }
}

fn lost(name: &str) -> Write {
    Write {
        effect: Effect::UNKNOWN,
        ..changed(name, "u", "1")
    }
}

/// A manager whose cache of Secrets has come past version 1.
async fn with_secrets(fake: &Fake) -> (Running, Arc<Place>) {
    fake.put(&secret("traffic"), json!({"metadata": {}}));
    let running = start(fake, []).await;
    let caches = running.manager.caches();
    caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || caches.check().is_ok()).await;
    let place = Place::new(caches, running.manager.client());
    (running, place)
}

#[tokio::test(start_paused = true)]
async fn each_of_many_keys_with_lost_writes_is_asked_for_in_its_turn_and_woken() {
    let fake = Fake::default();
    let (running, place) = with_secrets(&fake).await;
    let reads = noting_reads(&fake, "secrets", |_| None);
    let limit = Duration::from_secs(120);
    let own = Arc::new(OwnWrites::<usize>::new(limit));
    let woken = Arc::new(Mutex::new(Vec::new()));
    let (asker, wakes) = (Arc::clone(&own), Arc::clone(&woken));
    let asker = tokio::spawn(async move { asker.ask_for_lost(|key| wakes.lock().push(key)).await });
    let begin = Instant::now();
    for key in 0..500 {
        own.remember(&key, place.own(vec![lost(&format!("s{key}"))]));
        let held = own.hold(&key, 0);
        assert_eq!(held, Hold::Wait(limit), "it is woken, and so need not look");
    }
    sleep(Duration::from_secs(63)).await;
    let reads = reads.lock().clone();
    // Those of one moment have no order.
    let mut order: Vec<(u128, usize)> = reads
        .iter()
        .map(|(at, name)| ((*at - begin).as_millis(), name[1..].parse().unwrap()))
        .collect();
    order.sort_unstable();
    let expected: Vec<(u128, usize)> = (0..500).map(|key| (key as u128 / 8 * 1000, key)).collect();
    assert_eq!(order, expected);
    let mut woken = woken.lock().clone();
    woken.sort_unstable();
    assert_eq!(woken, (0..500).collect::<Vec<_>>());
    for key in 0..500 {
        assert_eq!(own.hold(&key, 0), Hold::Go);
    }
    asker.abort();
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_came_back_for_lost_writes_do_not_poll() {
    let (fake, seen) = (Fake::default(), Seen::default());
    for number in 0..100 {
        fake.put(&path(&format!("a{number}")), map("1"));
    }
    let reads = noting_reads(&fake, "configmaps", |method| {
        (*method == Method::PATCH).then_some(Fate::Lose)
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .workers(10)
        .own_writes_timeout(Duration::from_secs(60))
        .complete(once(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually_within(Duration::from_secs(30), "each goes on", || {
        seen.lock().len() >= 200
    })
    .await;
    assert_budget(&reads);
    assert_eq!(reads.lock().len(), 100, "each was asked for once");
    let waits = running.metric("reeve_read_your_writes_waits_total{controller=\"test\"}");
    // Once when it came back, and a few times until the cache showed what the read found.
    assert!(waits <= 500.0, "{waits}");
    running.end().await;
}

/// A reconciler that patches the ConfigMap of its request the first time, and records the times of its runs.
fn once(seen: &Seen) -> impl reconcile::Reconciler {
    let seen = Arc::clone(seen);
    reconcile::function(move |ctx: Context, request: Request| {
        let first = {
            let mut seen = seen.lock();
            let name = request.to_string();
            let first = !seen.contains(&name);
            seen.push(name);
            first
        };
        async move {
            if first {
                let patch = Patch::Merge(json!({"data": {"key": "2"}}));
                let patched = ctx.client().patch::<ConfigMap>(&request, &patch);
                patched.await?;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn many_keys_ask_about_lost_writes_eight_times_a_second_together() {
    let (fake, seen) = (Fake::default(), Seen::default());
    for number in 0..100 {
        fake.put(&path(&format!("a{number}")), map("1"));
    }
    let reads = noting_reads(&fake, "configmaps", |method| {
        Some(match *method {
            Method::GET => Fate::Refuse(503),
            _ => Fate::Lose,
        })
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .workers(10)
        .complete(patching(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("it begins", || !reads.lock().is_empty()).await;
    sleep(Duration::from_secs(30)).await;
    assert_budget(&reads);
    let count = reads.lock().len();
    assert!(count >= 8 * 20, "the budget is used: {count}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn lost_writes_and_objects_that_no_cache_shows_share_one_budget() {
    let fake = Fake::default();
    let (running, place) = with_secrets(&fake).await;
    let reads = noting_reads(&fake, "secrets", |_| None);
    let own = Arc::new(OwnWrites::<usize>::new(Duration::from_secs(60)));
    let gone = Arc::new(Mutex::new(Vec::new()));
    let (worker, back) = (Arc::clone(&own), Arc::clone(&gone));
    let work = tokio::spawn(async move {
        tokio::select! {
            never = worker.ask_for_lost(|_| {}) => match never {},
            never = worker.sweep(|key| back.lock().push(key)) => match never {},
        }
    });
    for key in 0..40 {
        own.remember(&key, place.own(vec![lost(&format!("s{key}"))]));
        assert!(matches!(own.hold(&key, 0), Hold::Wait(_)));
        let hidden = 100 + key;
        own.remember(
            &hidden,
            place.own(vec![changed(&format!("h{key}"), "u", "1")]),
        );
    }
    sleep(Duration::from_secs(15)).await;
    assert_budget(&reads);
    assert_eq!(reads.lock().len(), 80);
    assert_eq!(gone.lock().len(), 40, "those are gone");
    let reads = reads.lock().clone();
    let first = reads.iter().take(40);
    let lost = first.filter(|(_, name)| name.starts_with('s')).count();
    assert_eq!(lost, 40, "they stood in line before the sweep began");
    work.abort();
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_list_of_deleted_objects_is_looked_at_in_pieces() {
    let fake = Fake::default();
    let (running, place) = with_secrets(&fake).await;
    let own = OwnWrites::<u32>::new(Duration::from_secs(60));
    let kind = GroupKind::new("", "Secret");
    let write = |name: &str, effect| Write {
        kind: kind.clone(),
        key: Request::namespaced("ns", name),
        effect,
    };
    let gone = |number| {
        let uid = Some(format!("uid {number}"));
        write(&format!("s{number}"), Effect::Gone { uid, after: None })
    };
    let many = |still: Option<Write>| -> Vec<Own> {
        let each = still.into_iter().chain((0..10_000).map(gone)).collect();
        place.own(vec![write("", Effect::Each(each))])
    };
    own.remember(&1, many(None));
    let mut pieces = 0;
    while own.hold(&1, 0) == Hold::Wait(Duration::ZERO) {
        assert_eq!(own.hold(&2, 0), Hold::Go, "another has its turn");
        pieces += 1;
    }
    assert!((30..50).contains(&pieces), "{pieces}");
    assert!(own.is_empty());
    // One is in the cache still.
    let shown = fake.object(&secret("traffic")).unwrap();
    let uid = shown["metadata"]["uid"].as_str().map(str::to_owned);
    own.remember(
        &1,
        many(Some(write("traffic", Effect::Gone { uid, after: None }))),
    );
    let begin = Instant::now();
    let removed = async {
        sleep(Duration::from_secs(5)).await;
        fake.remove(&secret("traffic"));
    };
    let (hold, ()) = tokio::join!(held(&own, 1), removed);
    assert_eq!(hold, Hold::Go);
    assert!(begin.elapsed() >= Duration::from_secs(5));
    running.end().await;
}
