//! Defaults of the manager against settings of a controller.

use super::*;
use crate::fake::Managed as _;

/// The builder of a controller for ConfigMaps.
type ForMaps = Builder<Request, ConfigMap, OneKind>;

/// A controller of this name with the settings of `set`.
fn with_own(name: &str, seen: &Seen, set: impl FnOnce(ForMaps) -> ForMaps) -> Controller {
    let builder = Controller::builder(name).for_kind::<ConfigMap>();
    set(builder).complete(done(seen)).unwrap()
}

/// Starts a manager with `defaults` and one controller.
async fn started(
    defaults: Defaults,
    controller: Controller,
    fake: &Fake,
    election: Option<Election>,
) -> Running {
    let mut manager = fake.manager().controllers(defaults);
    if let Some(election) = election {
        manager = manager.leader_election(election);
    }
    run(manager.build().await.unwrap(), controller).await
}

#[tokio::test(start_paused = true)]
async fn what_the_manager_says_of_workers_counts_unless_the_kind_or_the_controller_says_otherwise()
{
    let defaults = Defaults::new()
        .workers(2)
        .group_kind_concurrency("ConfigMap", 3);
    let (_sender, stream) = source::channel::<Request>(1);
    let seen = Seen::default();
    let of_none = Controller::builder("by the manager").watches_source(stream);
    for (name, controller, expected) in [
        ("by kind", with_own("by kind", &seen, |it| it), 3),
        (
            "by itself",
            with_own("by itself", &seen, |it| it.workers(5)),
            5,
        ),
        ("by the manager", of_none.complete(done(&seen)).unwrap(), 2),
    ] {
        let running = started(defaults.clone(), controller, &Fake::default(), None).await;
        let labels = format!("{{controller=\"{name}\"}}");
        let workers = format!("controller_runtime_max_concurrent_reconciles{labels}");
        assert_eq!(running.metric(&workers) as u32, expected, "{name}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_manager_says_counts_unless_the_controller_says_otherwise() {
    let second = Duration::from_secs(1);
    for own in [None, Some(false), Some(true)] {
        for by_manager in [false, true] {
            let case = format!("manager {by_manager}, controller {own:?}");
            let expected = own.unwrap_or(by_manager);

            let (fake, limit) = (Fake::default(), Arc::new(Mutex::new(None)));
            fake.put(&path("a"), map("1"));
            let noted = Arc::clone(&limit);
            let seen = Seen::default();
            let noting = noting(&seen, move |ctx, _| {
                *noted.lock() = ctx.deadline().map(|deadline| deadline - Instant::now());
                Ok(Outcome::done())
            });
            let mut defaults = Defaults::new();
            if by_manager {
                defaults = defaults.reconcile_timeout(second * 7);
            }
            let mut builder = Controller::builder("test").for_kind::<ConfigMap>();
            if let Some(own) = own {
                builder = builder.reconcile_timeout(if own { second * 7 } else { second * 9 });
            }
            let controller = builder.complete(noting).unwrap();
            let running = started(defaults, controller, &fake, None).await;
            eventually("a run", || !seen.lock().is_empty()).await;
            let timeout = match own {
                Some(false) => Some(second * 9),
                _ => expected.then_some(second * 7),
            };
            assert_eq!(*limit.lock(), timeout, "time-out of a reconcile: {case}");
            running.end().await;

            // A kind that cannot be listed.
            let (fake, seen) = (Fake::default(), Seen::default());
            fake.hook(|_, path| path.ends_with("/configmaps").then_some(Fate::Refuse(403)));
            let mut defaults = Defaults::new();
            if by_manager {
                defaults = defaults.cache_sync_timeout(second * 30);
            }
            let controller = with_own("test", &seen, |it| match own {
                None => it,
                Some(true) => it.cache_sync_timeout(second * 30),
                Some(false) => it.cache_sync_timeout(Duration::MAX),
            });
            let running = started(defaults, controller, &fake, None).await;
            sleep(second * 300).await;
            assert_eq!(
                running.run.is_finished(),
                expected,
                "time-out of caches: {case}"
            );
            running.stop.cancel();

            // A standby.
            let (fake, seen) = (Fake::default(), Seen::default());
            fake.put(&path("a"), map("1"));
            fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
            let defaults = Defaults::new().warm_up(by_manager);
            let controller = with_own("test", &seen, |it| match own {
                None => it,
                Some(own) => it.warm_up(own),
            });
            let election = Some(Election::new("ns", "lock").identity("me"));
            let running = started(defaults, controller, &fake, election).await;
            sleep(second * 60).await;
            let waiting = running.manager.queues().report(10)[0].items.len();
            assert_eq!(waiting, usize::from(expected), "warm-up: {case}");
            running.end().await;

            let fake = Fake::default();
            fake.put(&path("a"), map("1"));
            let mut builder: ForMaps = Controller::builder("test").for_kind::<ConfigMap>();
            if let Some(own) = own {
                builder = builder.propagate_panics(own);
            }
            let panicking = super::noting(&Seen::default(), |_, _| panic!("boom"));
            let controller = builder.complete(panicking).unwrap();
            let defaults = Defaults::new().propagate_panics(by_manager);
            let running = started(defaults, controller, &fake, None).await;
            sleep(second * 60).await;
            assert_eq!(running.run.is_finished(), expected, "panics: {case}");
            running.stop.cancel();

            // Whether it runs on a standby.
            let (fake, seen) = (Fake::default(), Seen::default());
            fake.put(&path("a"), map("1"));
            fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
            let mut defaults = Defaults::new();
            if by_manager {
                defaults = defaults.without_leader_election();
            }
            let controller = with_own("test", &seen, |it| match own {
                None => it,
                Some(true) => it.without_leader_election(),
                Some(false) => it.with_leader_election(),
            });
            let election = Some(Election::new("ns", "lock").identity("me"));
            let running = started(defaults, controller, &fake, election).await;
            sleep(second * 60).await;
            assert_eq!(!seen.lock().is_empty(), expected, "every replica: {case}");
            running.end().await;
        }
    }
}
