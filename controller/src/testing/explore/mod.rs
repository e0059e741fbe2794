//! An explorer of faults: it runs a scenario again and again, each time with another fault at another point, and finds the plan
//! under which a controller goes wrong.
//!
//! The whole run is in this process, under virtual time: API server, caches, queues, workers, the world outside. So a
//! process can be killed before or after each of its writes, an answer can be lost, a cache can fall behind, and a restart
//! can read the past, at every point of a run.
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use reeve_controller::testing::explore::{Explorer, Process};
//! use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, reconcile};
//! use serde_json::json;
//!
//! fn copier() -> Controller {
//!     let reconciler = reconcile::function(|ctx: Context, request: Request| async move {
//!         if ctx.lister::<ConfigMap>()?.get(&request)?.is_some()
//!             && ctx.lister::<Secret>()?.get(&request)?.is_none()
//!         {
//!             let mut secret = Secret::default();
//!             secret.metadata.name = Some(request.name.to_string());
//!             secret.metadata.namespace = request.namespace.as_deref().map(str::to_owned);
//!             ctx.client().create(&secret).await?;
//!         }
//!         Ok::<_, reconcile::Error>(Outcome::done())
//!     });
//!     let builder = Controller::builder("copier").for_kind::<ConfigMap>();
//!     builder.watches::<Secret>(reeve_controller::handler::for_object()).complete(reconciler).unwrap()
//! }
//!
//! Explorer::new(|_: &Process<()>| vec![copier()]).check(async |world| {
//!     world.create::<ConfigMap>(json!({"metadata": {"name": "a", "namespace": "default"}})).await;
//!     world.settle().await;
//! });
//! ```
//!
//! Rules that every run has to keep:
//!
//! | rule | it finds |
//! |---|---|
//! | it comes to rest | writes that cause themselves, retries without end |
//! | the end is that of a run without faults | what is missing, left over, or different |
//! | nothing is deleted that stays without faults | data that is gone, though an object of its name is there again |
//! | a restart after a run without faults changes nothing | state that is in memory only |
//! | no process panics, no reconcile panics, no step of the scenario panics | what a program or a user does not expect |
//! | [`Explorer::at_most_once`] | effects that are no state, such as messages, twice |
//! | [`Explorer::conflicts`], [`Explorer::settles_within`] | writers that disturb each other, programs that wait too long after a fault |
//! | [`Explorer::always`], [`Explorer::at_rest`] | what the program promises |
//!
//! A failure names the smallest plan, the rule, and what happened in which order. `REEVE_PLAN='crash-after P1 create secrets
//! default/a 1'` in the environment runs that plan alone.

mod core;
mod outside;
mod plan;
mod report;
mod rules;
mod run;
mod search;
mod state;
mod tap;
mod target;
mod trace;
mod watched;
mod world;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, LocalBoxFuture};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use reeve_apiserver::Template;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use outside::{Failure, Outside};
pub use plan::{Fault, NotAPlan, Plan, Point};
pub use report::{Broken, Report};
pub use run::Wrong;
pub use state::State;
pub use trace::{Entry, Happened, Trace};
pub use world::{Process, World};

use crate::client::Object;
use crate::controller::Controller;
use crate::manager::Manager;
use crate::testing::Cluster;
use rules::Rules;
use run::{Ran, Reference};
use search::{Drawn, Plans};
use world::Factory;

/// The environment variable with the only plan to run.
pub const PLAN_VARIABLE: &str = "REEVE_PLAN";

/// The seed of runs.
const SEED: u64 = 1;

type Always<S> = Arc<Vec<(String, Box<dyn Fn(&S) -> bool + Send + Sync>)>>;
type Given = Box<dyn for<'a> Fn(&'a Cluster) -> LocalBoxFuture<'a, ()>>;
type AtRest<S> = Vec<(String, Box<dyn Fn(&State, &S) -> bool>)>;

/// Explores a program; see the [module](self). `S` is the state of the world outside.
#[must_use = "an explorer does nothing until `check` or `run` is called"]
pub struct Explorer<S = ()> {
    factory: Factory<S>,
    definitions: Vec<CustomResourceDefinition>,
    given: Vec<Given>,
    template: OnceLock<Template>,
    /// The collections that a run without faults writes to.
    known: OnceLock<BTreeSet<String>>,
    processes: usize,
    always: Always<S>,
    at_rest: AtRest<S>,
    rules: Rules,
    mask: BTreeSet<String>,
    quiet: Duration,
    limit: Duration,
    most: usize,
    pairs: bool,
    wall: Duration,
    every_failure: bool,
    first: Vec<Plan>,
    only: Option<Plan>,
    spread: bool,
    jumps: bool,
    without: BTreeSet<&'static str>,
    drawn: u64,
    remembered: Option<PathBuf>,
}

// === impl Explorer ===

impl<S: Default + Serialize + Send + 'static> Explorer<S> {
    /// Explores one process with these controllers. `process` is called for each start, and gives the world outside; what the
    /// controllers keep in memory is made here.
    pub fn new(
        controllers: impl Fn(&Process<S>) -> Vec<Controller> + Send + Sync + 'static,
    ) -> Self {
        let controllers = Arc::new(controllers);
        Self::of_manager(move |process| {
            let controllers = controllers(&process);
            async move {
                let manager = process.manager().build().await.expect("a manager");
                for controller in controllers {
                    manager
                        .add_controller(controller)
                        .expect("a new controller");
                }
                manager
            }
            .boxed()
        })
    }

    /// Explores a program with a manager of its own, made by [`Process::manager`] or with [`Process::kube`].
    pub fn of_manager(
        manager: impl Fn(Process<S>) -> BoxFuture<'static, Manager> + Send + Sync + 'static,
    ) -> Self {
        Self::of_program(move |process| {
            let core = process.core.clone();
            let manager = manager(process);
            async move {
                let manager = manager.await;
                core.count_panics(manager.metrics());
                // One that ends starts again, as a Pod does.
                let _ = manager.run(CancellationToken::new()).await;
            }
            .boxed()
        })
    }

    /// Explores a program; `life` is that of one process, from its start on. The process is killed by dropping it, and
    /// starts again when it ends.
    pub fn of_program(
        life: impl Fn(Process<S>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            factory: Arc::new(life),
            definitions: Vec::new(),
            given: Vec::new(),
            template: OnceLock::new(),
            known: OnceLock::new(),
            processes: 1,
            always: Arc::default(),
            at_rest: Vec::new(),
            rules: Rules::default(),
            mask: BTreeSet::new(),
            quiet: Duration::from_secs(60),
            limit: Duration::from_secs(1800),
            most: 5_000,
            pairs: true,
            wall: Duration::from_secs(20),
            every_failure: false,
            first: Vec::new(),
            only: None,
            spread: false,
            jumps: false,
            without: BTreeSet::new(),
            drawn: 0,
            remembered: None,
        }
    }

    /// Installs the definition of a custom kind before each run.
    pub fn install<K: CustomResourceExt>(self) -> Self {
        self.install_definition(K::crd())
    }

    /// As [`Explorer::install`], with a definition that was not derived, or changed since.
    pub fn install_definition(mut self, definition: CustomResourceDefinition) -> Self {
        self.definitions.push(definition);
        self.template = OnceLock::new();
        self
    }

    /// Creates an object before each run: what is there when the processes start.
    pub fn given<K: Object>(mut self, object: Value) -> Self {
        self.given.push(Box::new(move |cluster| {
            let object = object.clone();
            async move {
                let _: K = cluster.create(object).await;
            }
            .boxed_local()
        }));
        self.template = OnceLock::new();
        self
    }

    /// Runs so many processes, which need a leader election if they may not act at once. Default: 1.
    pub fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }

    /// A rule about the world outside that holds after every call.
    ///
    /// # Panics
    /// After [`Explorer::check`] has begun.
    pub fn always(
        mut self,
        rule: &str,
        holds: impl Fn(&S) -> bool + Send + Sync + 'static,
    ) -> Self {
        let rules = Arc::get_mut(&mut self.always).expect("no run has begun");
        rules.push((rule.to_owned(), Box::new(holds)));
        self
    }

    /// A rule that holds at the end, when nothing happens any more.
    pub fn at_rest(mut self, rule: &str, holds: impl Fn(&State, &S) -> bool + 'static) -> Self {
        self.at_rest.push((rule.to_owned(), Box::new(holds)));
        self
    }

    /// A rule about effects that happen once at most: `key` names what an effect does once, and no two effects that were
    /// applied have one name. `effect` is such as `create pods default/a`, or `call NAME` of the world outside.
    pub fn at_most_once(
        mut self,
        rule: &str,
        key: impl Fn(&str) -> Option<String> + 'static,
    ) -> Self {
        self.rules.once.push((rule.to_owned(), Box::new(key)));
        self
    }

    /// The number of conflicts (409 of an update, a patch or a deletion) that a run may meet, with and without faults. Default: any number.
    pub fn conflicts(mut self, most: usize) -> Self {
        self.rules.conflicts = Some(most);
        self
    }

    /// The virtual time from a step of the scenario, or from the last fault after it, to the last effect of a process. Default: the
    /// [limit](Explorer::limit) alone.
    pub fn settles_within(mut self, time: Duration) -> Self {
        self.rules.within = Some(time);
        self
    }

    /// A leaf that may differ from a run without faults, such as `secrets default/a/data/token`, or a field with all below it,
    /// such as `secrets default/a/data`. Leaves that differ between two runs without faults are found without this.
    pub fn mask(mut self, field: &str) -> Self {
        self.mask.insert(field.to_owned());
        self
    }

    /// The virtual time without an effect or an event after which a run is at rest. Default: 60 s. A retry that waits for longer
    /// is not seen: a program with a long back-off needs more.
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// The virtual time within which a run has to come to rest after each step. Default: 30 minutes.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The number of plans, and the real time, after which no other plan is tried. Default: 5,000 and 20 s. The plans of
    /// [`Explorer::first`] and [`Explorer::remember`], and at least one plan, are tried whatever the time.
    pub fn budget(mut self, plans: usize, wall: Duration) -> Self {
        (self.most, self.wall) = (plans, wall);
        self
    }

    /// Whether plans of two faults are tried after those of one. Default: true.
    pub fn pairs(mut self, pairs: bool) -> Self {
        self.pairs = pairs;
        self
    }

    /// Tries these plans before all others: those that once found something. The report notes those whose points the run does
    /// not reach any more.
    pub fn first(mut self, plans: impl IntoIterator<Item = Plan>) -> Self {
        self.first.extend(plans);
        self
    }

    /// Tries plans from all over the run one after the other, in place of those of one kind first: for a budget that ends
    /// before the last plan.
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }

    /// Tries plans in which the wall clock is set forward or back by an hour, until nothing happens any more: for programs with
    /// dates. A delay that such a program computes from the wall clock meanwhile is wrong by an hour, and it has to notice.
    pub fn clock_jumps(mut self) -> Self {
        self.jumps = true;
        self
    }

    /// Leaves out faults of these kinds, in the words of a plan: `["stale", "behind"]` for a program whose reads are never old. Plans of
    /// [`Explorer::first`] and [`Explorer::remember`] are tried as they are. Default: none.
    ///
    /// # Panics
    /// When a word is no kind.
    pub fn without<'a>(mut self, kinds: impl IntoIterator<Item = &'a str>) -> Self {
        for kind in kinds {
            let found = plan::KINDS.iter().find(|one| **one == kind);
            let known = plan::KINDS.join(", ");
            let found = found.unwrap_or_else(|| panic!("{kind} is no kind of faults: {known}"));
            self.without.insert(found);
        }
        self
    }

    /// Tries so many plans of two to four faults, drawn at random, after all others. They are the same each time, and none of
    /// them was tried before: fewer are tried where the run has few points. Default: 0.
    pub fn drawn(mut self, plans: u64) -> Self {
        self.drawn = plans;
        self
    }

    /// Keeps the plans that fail in the file at `path`, a plan a line, and tries those in it before all others, also after they
    /// are mended. Commit the file with the test. Lines that begin with `#` are comments.
    pub fn remember(mut self, path: impl Into<PathBuf>) -> Self {
        self.remembered = Some(path.into());
        self
    }

    /// Tries this plan alone, as `REEVE_PLAN` does.
    pub fn only(mut self, plan: Plan) -> Self {
        self.only = Some(plan);
        self
    }

    /// Goes on after a failure. Each rule is reported once for each way in which it is broken.
    pub fn every_failure(mut self) -> Self {
        self.every_failure = true;
        self
    }

    /// Explores `scenario`, which has time until [`World::settle`] for each step. Prints the report to standard error, which
    /// `cargo test -- --nocapture` shows.
    ///
    /// # Panics
    /// With the smallest plan, the rule and the timeline, when a run breaks a rule. When the budget ends before the first
    /// plan. As [`Explorer::run`].
    pub fn check(&self, scenario: impl AsyncFn(&World<S>)) {
        let report = self.run(scenario);
        eprintln!("{report}");
        assert!(
            !report.failures.is_empty() || report.tried > 0 || report.plans == 0,
            "the budget ended before the first plan: nothing was tried ({report})"
        );
        if let Some(broken) = report.failures.first() {
            let others: String = report.failures[1..]
                .iter()
                .map(|other| {
                    let (rule, how) = (&other.wrong.rule, &other.wrong.how);
                    format!("\nalso {}: {rule}: {how}", other.plan)
                })
                .collect();
            panic!("{broken}{others}");
        }
    }

    /// As [`Explorer::check`], and returns what it found.
    ///
    /// # Panics
    /// When a definition or a given object is refused. When a remembered plan is none, or its file cannot be read or written. When
    /// `REEVE_PLAN` is not a plan, or the run does not reach its points. When [`Explorer::without`] leaves out every fault that
    /// the scenario has points for.
    pub fn run(&self, scenario: impl AsyncFn(&World<S>)) -> Report {
        let started = real_time();
        let mut report = Report::default();
        let only = std::env::var(PLAN_VARIABLE).ok();
        let only: Option<Plan> = only.map(|text| {
            text.parse()
                .unwrap_or_else(|error| panic!("{PLAN_VARIABLE}: {error}"))
        });
        let only = only.or_else(|| self.only.clone());
        let alone = only.is_some();
        self.template();
        let reference = match self.reference(&scenario, &mut report.runs) {
            Ok(reference) => reference,
            Err(failed) => {
                let (ran, wrong) = *failed;
                report.failures.push(Broken {
                    plan: Plan::default(),
                    wrong,
                    tried: 0,
                    timeline: ran.trace,
                });
                report.took = started.elapsed();
                return report;
            }
        };
        report.notes = reference.notes();
        let mut plans = Plans::default();
        let mut singles = Vec::new();
        // The plans that are tried whatever the time, and those of them that have to be reached.
        let (mut certain, mut named) = (1, 0);
        if let Some(plan) = only {
            plans.add(plan);
        } else {
            let trace = &reference.ran.trace;
            let follow = &reference.ran.follow;
            report.pruned = follow.len();
            singles = search::singles(trace, follow, self.processes);
            if self.jumps {
                singles.extend(search::jumps(trace));
            }
            let found = singles.len();
            singles.retain(|fault| self.tries(fault));
            if self.spread {
                singles = search::spread(singles);
            }
            for plan in self.remembered().into_iter().chain(self.first.clone()) {
                plans.add(plan);
            }
            named = plans.len();
            assert!(
                found == 0 || named > 0 || !singles.is_empty(),
                "all {found} faults of the scenario are left out: nothing would be tried"
            );
            certain = certain.max(named);
            for fault in &singles {
                plans.add(Plan(vec![fault.clone()]));
            }
        }
        let mut known = BTreeSet::new();
        let mut next = 0;
        let mut drawn = Drawn::new(singles, if alone { 0 } else { self.drawn });
        // The runs without faults are no part of the budget.
        let began = real_time();
        while next < self.most && (next < certain || began.elapsed() < self.wall) {
            if next == plans.len() && !drawn.add_to(&mut plans) {
                break;
            }
            let Some(plan) = plans.get(next).cloned() else {
                break;
            };
            next += 1;
            report.runs += 1;
            let ran = self.once(&plan, SEED, false, &scenario);
            let judged = reference.judge(&ran);
            if let (Some(fault), None) = (ran.unreached.first(), &judged) {
                assert!(
                    !alone,
                    "the run does not reach the point of the fault: {fault}"
                );
                report.unreached += 1;
                if next <= named {
                    let note = format!("the plan {plan} is not reached any more: {fault}");
                    report.notes.push(note);
                }
            }
            let Some(wrong) = judged else {
                if self.pairs && !alone && plan.0.len() == 1 {
                    for second in search::seconds(&plan, &ran.trace) {
                        if second.0.iter().all(|fault| self.tries(fault)) {
                            plans.add(second);
                        }
                    }
                }
                continue;
            };
            let way = |wrong: &Wrong| (wrong.rule.clone(), wrong.how.clone());
            let first = way(&wrong);
            if !known.insert(first.clone()) {
                continue;
            }
            let broken = self.smallest(&reference, (plan, ran, wrong), next, &scenario);
            // A smaller plan may break the rule in a way that is reported already.
            let smallest = way(&broken.wrong);
            if smallest != first && !known.insert(smallest) {
                continue;
            }
            if !alone {
                self.keep(&broken);
            }
            report.failures.push(broken);
            if !self.every_failure {
                break;
            }
        }
        report.plans = plans.len();
        report.tried = next;
        report.took = started.elapsed();
        report
    }

    fn tries(&self, fault: &Fault) -> bool {
        !self.without.contains(fault.kind())
    }

    /// Checks that two scenarios end with the same state, both without faults: that a value reached by way of another is the
    /// value reached at once, or that a change taken back leaves nothing. Names of generated objects, times and what
    /// [`Explorer::mask`] leaves out are not compared, as elsewhere.
    ///
    /// # Panics
    /// When the ends differ, or a run breaks a rule.
    pub fn check_same(&self, one: impl AsyncFn(&World<S>), other: impl AsyncFn(&World<S>)) {
        let reference = |broken: Box<(Ran, Wrong)>| -> Reference {
            let (ran, Wrong { rule, how }) = *broken;
            panic!(
                "without faults, a run breaks the rule {rule:?}: {how}\n{}",
                ran.trace
            )
        };
        let one = self.reference(&one, &mut 0).unwrap_or_else(reference);
        let other = self.reference(&other, &mut 0).unwrap_or_else(reference);
        let mut mask = one.mask.clone();
        mask.0.extend(other.mask.0);
        if let Some(how) = other.ran.state.differs(&one.ran.state, &mask) {
            let how = how.replace("without faults", "at the end of the first scenario");
            panic!(
                "the scenarios end differently: {how}\nthe second one:\n{}",
                other.ran.trace
            );
        }
    }

    fn remembered(&self) -> Vec<Plan> {
        let Some(path) = &self.remembered else {
            return Vec::new();
        };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
            Err(error) => panic!("{} is not read: {error}", path.display()),
        };
        let lines = text.lines().map(str::trim);
        let plans = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        plans
            .map(|line| {
                line.parse()
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            })
            .collect()
    }

    fn keep(&self, broken: &Broken) {
        let Some(path) = &self.remembered else { return };
        if self.remembered().contains(&broken.plan) {
            return;
        }
        let line = format!("# {}\n{}\n", broken.wrong.rule, broken.plan);
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        let kept = file.and_then(|mut file| file.write_all(line.as_bytes()));
        kept.unwrap_or_else(|error| panic!("{} is not written: {error}", path.display()));
    }

    fn smallest(
        &self,
        reference: &Reference,
        (plan, ran, wrong): (Plan, Ran, Wrong),
        tried: usize,
        scenario: &impl AsyncFn(&World<S>),
    ) -> Broken {
        let judged = |plan: &Plan| {
            let ran = self.once(plan, SEED, false, scenario);
            reference.judge(&ran).map(|wrong| (ran, wrong))
        };
        let fails = |plan: &Plan| judged(plan).is_some_and(|(_, other)| other.rule == wrong.rule);
        let less = search::shrink(&plan, fails);
        // A program that takes time or order from elsewhere may not fail again; what was seen is reported then.
        let again = (less != plan).then(|| judged(&less)).flatten();
        let (plan, (ran, wrong)) = match again {
            Some(again) => (less, again),
            None => (plan, (ran, wrong)),
        };
        Broken {
            plan,
            wrong,
            tried,
            timeline: ran.trace,
        }
    }
}

/// Runs are in virtual time, and the budget is in real time.
#[expect(clippy::disallowed_methods, reason = "outside of all runs")]
fn real_time() -> Instant {
    Instant::now()
}

impl<S> fmt::Debug for Explorer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explorer")
            .field("processes", &self.processes)
            .finish_non_exhaustive()
    }
}
