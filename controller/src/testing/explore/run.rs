//! One run of a plan, and the judgement about it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use reeve_apiserver::Template;
use serde::Serialize;
use serde_json::Value;

use super::core::{Core, MOST_EFFECTS};
use super::plan::{Fault, Plan, Point};
use super::state::{Mask, State};
use super::trace::Trace;
use super::world::{World, text_of};
use super::{Explorer, SEED};
use crate::testing::{Server, Setup};

/// What a run was.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) trace: Trace,
    pub(super) state: State,
    /// The collections that it wrote to.
    collections: BTreeSet<String>,
    /// The objects at each rest.
    rests: Vec<State>,
    /// What deletions found.
    deletions: HashMap<Point, Value>,
    /// Its deletions by name alone.
    pub(super) unguarded: BTreeSet<String>,
    /// Effects before which a crash is one after the effect before.
    pub(super) follow: BTreeSet<Point>,
    /// The faults of the plan whose points the run did not reach.
    pub(super) unreached: Vec<Fault>,
    /// The first thing that is wrong whatever other runs do.
    pub(super) wrong: Option<Wrong>,
}

/// A rule that a run broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The rule.
    pub rule: String,
    /// How.
    pub how: String,
}

/// What runs without faults look like.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) ran: Ran,
    /// The effects of the two runs that are not the same ones.
    unlike: Vec<String>,
    pub(super) mask: Mask,
}

// === impl Ran ===

impl Ran {
    /// What is no failure, and may become one.
    pub(super) fn notes(&self) -> Vec<String> {
        let by_name = self.unguarded.iter().map(|what| {
            format!("{what} has no precondition: it may meet another object of that name")
        });
        let mut conflicts: BTreeMap<&str, usize> = BTreeMap::new();
        for (point, outcome) in self.trace.effects() {
            if outcome == "409" {
                *conflicts.entry(&*point.what).or_default() += 1;
            }
        }
        let conflicts = conflicts.into_iter();
        let conflicts =
            conflicts.map(|(what, count)| format!("{what} meets {count} conflicts without faults"));
        by_name.chain(conflicts).collect()
    }
}

// === impl Explorer ===

impl<S: Default + Serialize + Send + 'static> Explorer<S> {
    /// Runs the scenario with the faults of `plan`; with `restarts`, the processes end at its end, and start once more.
    pub(super) fn once(
        &self,
        plan: &Plan,
        seed: u64,
        restarts: bool,
        scenario: &impl AsyncFn(&World<S>),
    ) -> Ran {
        let ran = Arc::new(Mutex::new(None));
        let begun = Arc::new(Mutex::new(None));
        let (out, begins) = (Arc::clone(&ran), Arc::clone(&begun));
        let run = || {
            self.run_once(plan, seed, restarts, scenario, &begins, &out);
        };
        // A step that fails only under this plan is a finding, and needs the plan and the timeline.
        let panicked = catch_unwind(AssertUnwindSafe(run)).err();
        if let Some(ran) = ran.lock().take().filter(|_| panicked.is_none()) {
            return ran;
        }
        let core: Option<Core> = begun.lock().take();
        Ran {
            trace: core.as_ref().map(Core::trace).unwrap_or_default(),
            state: State::default(),
            collections: BTreeSet::new(),
            rests: Vec::new(),
            deletions: HashMap::new(),
            unguarded: BTreeSet::new(),
            follow: BTreeSet::new(),
            unreached: core.as_ref().map(Core::unreached).unwrap_or_default(),
            wrong: Some(Wrong {
                rule: "no step of the scenario panics".into(),
                how: panicked.map_or_else(String::new, |panic| text_of(&*panic)),
            }),
        }
    }

    /// What the API server of each run starts with.
    pub(super) fn template(&self) -> &Template {
        self.template.get_or_init(|| {
            let template = Mutex::new(None);
            Setup::new()
                .server(Server::BuiltIn)
                .seed(SEED)
                .run(async |cluster| {
                    for definition in &self.definitions {
                        cluster.install_definition(definition).await;
                    }
                    for object in &self.given {
                        object(&cluster).await;
                    }
                    *template.lock() = cluster.template();
                });
            template.into_inner().expect("a built-in server")
        })
    }

    fn run_once(
        &self,
        plan: &Plan,
        seed: u64,
        restarts: bool,
        scenario: &impl AsyncFn(&World<S>),
        begun: &Mutex<Option<Core>>,
        out: &Mutex<Option<Ran>>,
    ) {
        let template = self.template().clone();
        Setup::new()
            .server(Server::BuiltIn)
            .seed(seed)
            .api_server(move |server| {
                let server = server.streaming_lists(false).record_requests(false);
                server.template(&template)
            })
            .run(async move |cluster| {
                let core = Core::new(plan, cluster.clock().clone());
                *begun.lock() = Some(core.clone());
                let outside = Arc::new(Mutex::new(S::default()));
                let broken = Arc::new(Mutex::new(None));
                let mut world = World::new(
                    cluster,
                    core.clone(),
                    Arc::clone(&self.factory),
                    Arc::clone(&outside),
                    self.checked(&broken),
                    (self.quiet, self.limit),
                );
                world.keeps_rests = plan.0.is_empty();
                world.known = self.known.get().cloned().unwrap_or_default();
                world.prepared = self.template().resource_version();
                world.start(self.processes);
                world.settle().await;
                scenario(&world).await;
                core.step("the scenario is over");
                world.rest(true).await;
                let (mut again, mut trace) = (None, core.trace());
                if restarts {
                    let before = core.trace().effects().count();
                    core.step("all processes start again");
                    world.restart().await;
                    trace = core.trace();
                    let mut effects = trace.effects().skip(before);
                    again = effects.next().map(|(point, _)| point.what.clone());
                }
                let mut state = world.state().await;
                state.outside = serde_json::to_value(&*outside.lock())
                    .expect("the state of the world outside as JSON");
                let wrong = broken.lock().take();
                let wrong = wrong.or_else(|| {
                    world.is_restless().then(|| Wrong {
                        rule: "it comes to rest".into(),
                        how: if core.is_stuck() {
                            format!("more than {MOST_EFFECTS} effects after one step")
                        } else {
                            format!("something still happens after {:?}", self.limit)
                        },
                    })
                });
                let wrong = wrong.or_else(|| {
                    again.map(|what| Wrong {
                        rule: "a restart changes nothing".into(),
                        how: format!("after all was done and the processes started again: {what}"),
                    })
                });
                let wrong = wrong.or_else(|| self.rules.broken(&trace));
                let wrong = wrong.or_else(|| self.judge_rest(&state, &outside.lock()));
                let wrong = wrong.or_else(|| {
                    let panics = core.reconcile_panics();
                    (panics > 0).then(|| Wrong {
                        rule: "no reconcile panics".into(),
                        how: format!("{panics} did; the log has what they say"),
                    })
                });
                // The end of the processes is no part of the run.
                let follow = core.follow();
                world.finish().await;
                let panicked = world.panicked().map(|how| Wrong {
                    rule: "no process panics".into(),
                    how,
                });
                let wrong = panicked.or(wrong);
                *out.lock() = Some(Ran {
                    unreached: core.unreached(),
                    trace,
                    collections: core.collections(),
                    rests: world.rests(),
                    deletions: core.deletions(),
                    unguarded: core.unguarded(),
                    follow,
                    state,
                    wrong,
                });
            });
    }

    fn checked(&self, broken: &Arc<Mutex<Option<Wrong>>>) -> super::outside::Check<S> {
        let (always, broken) = (Arc::clone(&self.always), Arc::clone(broken));
        Arc::new(move |state, _core| {
            for (rule, holds) in always.iter() {
                if !holds(state) {
                    broken.lock().get_or_insert_with(|| Wrong {
                        rule: rule.clone(),
                        how: "it was broken for a time".into(),
                    });
                }
            }
        })
    }

    fn judge_rest(&self, state: &State, outside: &S) -> Option<Wrong> {
        let broken = self
            .at_rest
            .iter()
            .find(|(_, holds)| !holds(state, outside));
        broken.map(|(rule, _)| Wrong {
            rule: rule.clone(),
            how: "it does not hold at rest".into(),
        })
    }

    /// What runs without faults look like; `Err`: such a run is wrong. `runs` counts them.
    pub(super) fn reference(
        &self,
        scenario: &impl AsyncFn(&World<S>),
        runs: &mut usize,
    ) -> Result<Reference, Box<(Ran, Wrong)>> {
        let mut checked = |ran: Ran| {
            *runs += 1;
            match ran.wrong.clone() {
                Some(wrong) => Err(Box::new((ran, wrong))),
                None => Ok(ran),
            }
        };
        let ran = self.once(&Plan::default(), SEED, false, scenario);
        self.known.get_or_init(|| ran.collections.clone());
        // A run that causes itself takes long, so a wrong one is not repeated.
        let ran = checked(ran)?;
        let other = checked(self.once(&Plan::default(), SEED + 1, true, scenario))?;
        let mut mask = Mask(self.mask.clone());
        mask.learn(&ran.state, &other.state);
        let unlike = unlike(&ran.trace, &other.trace);
        Ok(Reference { mask, ran, unlike })
    }
}

/// The effects of two runs that differ in their seed alone, where there are more of them in one of the runs. Something that the
/// reconciles do not read decides about them: randomness, the clock, the order of a map.
fn unlike(one: &Trace, other: &Trace) -> Vec<String> {
    let count = |trace: &Trace| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (point, _) in trace.effects() {
            *counts.entry(point.what.clone()).or_default() += 1;
        }
        counts
    };
    let (one, other) = (count(one), count(other));
    let all: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let of = |counts: &BTreeMap<String, usize>, what| counts.get(what).copied().unwrap_or_default();
    all.into_iter()
        .map(|what| (what, of(&one, what), of(&other, what)))
        .filter(|(_, one, other)| one != other)
        .map(|(what, one, other)| {
            format!(
                "{what} happens {one} times in one run without faults and {other} times in another"
            )
        })
        .collect()
}

// === impl Reference ===

impl Reference {
    /// What is no failure, and may become one.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.ran.notes();
        notes.extend(self.unlike.iter().cloned());
        notes
    }

    /// What is wrong with a run.
    pub(super) fn judge(&self, ran: &Ran) -> Option<Wrong> {
        if let Some(wrong) = &ran.wrong {
            return Some(wrong.clone());
        }
        if let Some(how) = ran.state.differs(&self.ran.state, &self.mask) {
            let rule = "the end is that of a run without faults".into();
            return Some(Wrong { rule, how });
        }
        // What is deleted without faults may be deleted later, once.
        let mut own = self.ran.trace.deletions();
        let mut deletions = ran.trace.deletions().into_iter();
        let wrong = deletions.find(|(rests, point)| {
            let same = |one: &(usize, Point)| one.1.what == point.what && one.0 <= *rests;
            if let Some(same) = own.iter().position(same) {
                own.remove(same);
                return false;
            }
            // An object that a stale reading made may go again, so the contents count.
            let found = ran.deletions.get(point).unwrap_or(&Value::Null);
            let stays = self.ran.rests.get(*rests);
            stays.is_some_and(|stays| stays.has(&point.what, found, &self.mask))
        });
        wrong.map(|(_, point)| Wrong {
            rule: "nothing is deleted that stays without faults".into(),
            how: format!("{} was deleted", point.what.trim_start_matches("delete ")),
        })
    }
}
