//! Each policy against a slow, obvious model of it: the same events in the same order.
//!
//! A model keeps the events that a handler has yet to receive as changes from one state of an object to another, and
//! searches all of them each time. It shares no code with the queue or its merge table.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::event::UpdateReason::{Changed, Relist, Resync};
use crate::event::{Event, UpdateReason};
use crate::object::Stored;
use crate::processor::{EventHandler, Filtered, Policy};
use crate::sample::{cases, line, map, text};
use reeve_client::ObjectKey;

type Object = Arc<ConfigMap>;

/// From one state of an object to another.
#[derive(Clone)]
struct Change {
    key: ObjectKey,
    from: Option<Object>,
    to: Option<Object>,
    /// Of a deletion: the last state of the object.
    last: Option<Object>,
    initial: bool,
    tombstone: bool,
    reason: UpdateReason,
    /// Nothing is merged into it any more: a later change of this object was merged away.
    closed: bool,
    /// A resync was among the dropped events.
    resync: bool,
}

impl Change {
    fn of(event: &Event<ConfigMap>) -> Self {
        let change = Self {
            key: event.key(),
            from: None,
            to: None,
            last: None,
            initial: false,
            tombstone: false,
            reason: Changed,
            closed: false,
            resync: event.is_resync(),
        };
        match event.clone() {
            Event::Added { object, initial } => Self {
                to: Some(object),
                initial,
                ..change
            },
            Event::Updated { old, new, reason } => Self {
                from: Some(old),
                to: Some(new),
                reason,
                ..change
            },
            Event::Deleted {
                last,
                seen,
                tombstone,
                ..
            } => Self {
                from: seen,
                last,
                tombstone,
                ..change
            },
        }
    }

    fn line(&self) -> String {
        let mark = |set, mark| if set { mark } else { "" };
        match (&self.from, &self.to) {
            (None, Some(to)) => format!("+{}{}", text(to), mark(self.initial, "*")),
            (Some(from), None) => {
                let last = self.last.as_ref().unwrap_or(from);
                let seen = from.resource_version();
                let seen = match last.resource_version() == seen {
                    true => String::new(),
                    false => format!("<{seen}"),
                };
                format!("-{}{seen}{}", text(last), mark(self.tombstone, "!"))
            }
            (Some(from), Some(to)) => {
                let reason = match self.reason {
                    Changed => "",
                    Relist => "r",
                    Resync => "s",
                };
                format!("~{}-{}{reason}", text(from), to.resource_version())
            }
            (None, None) => unreachable!("a change has a state"),
        }
    }

    fn is_same_object(&self) -> bool {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => from.uid() == to.uid(),
            _ => true,
        }
    }
}

/// The changes that wait, and those that were dropped.
struct Model {
    policy: Policy,
    waiting: Vec<Change>,
    /// Coalesce: since it was full it merges, until less than half of the bound waits.
    merging: bool,
    /// Drop to resync: the state of each object that the handler had seen when the first event of it was dropped.
    missed: Vec<Change>,
    dropped: usize,
}

impl Model {
    fn push(&mut self, event: &Event<ConfigMap>) {
        let next = Change::of(event);
        match self.policy {
            Policy::Block { .. } => self.waiting.push(next),
            Policy::Coalesce { bound } => {
                if !self.merging && self.waiting.len() >= bound {
                    self.merging = true;
                    for waiting in &mut self.waiting {
                        waiting.closed = false;
                    }
                }
                self.coalesce(next);
            }
            Policy::DropToResync { bound } => {
                if self.waiting.len() < bound && self.missed.is_empty() {
                    self.waiting.push(next);
                    return;
                }
                self.dropped += usize::from(!next.resync);
                let known = self.missed.iter().position(|missed| missed.key == next.key);
                match known {
                    Some(place) if self.missed[place].from.is_none() && next.to.is_none() => {
                        self.missed.swap_remove(place);
                    }
                    Some(place) => self.missed[place].resync |= next.resync,
                    None => self.missed.push(next),
                }
            }
        }
    }

    fn coalesce(&mut self, next: Change) {
        let place = self
            .waiting
            .iter()
            .rposition(|waiting| self.merging && waiting.key == next.key);
        let Some(place) = place.filter(|place| !self.waiting[*place].closed) else {
            self.waiting.push(next);
            return;
        };
        let waiting = self.waiting[place].clone();
        let update = waiting.from.is_some() && waiting.to.is_some() && next.from.is_some();
        let both = Change {
            to: next.to.clone(),
            last: next.last.clone(),
            reason: if update {
                waiting.reason.max(next.reason)
            } else {
                Changed
            },
            tombstone: next.tombstone,
            ..waiting
        };
        if both.from.is_none() && both.to.is_none() {
            self.waiting.remove(place);
            for waiting in &mut self.waiting {
                waiting.closed |= waiting.key == next.key;
            }
        } else if both.is_same_object() {
            self.waiting[place] = both;
        } else {
            self.waiting.push(next);
        }
    }

    /// The event that the handler receives next, if any.
    fn take(&mut self, now: &BTreeMap<ObjectKey, Object>) -> Option<String> {
        while self.waiting.is_empty()
            && !self.missed.is_empty()
            && let Policy::DropToResync { bound } = self.policy
        {
            for missed in self.missed.drain(..bound.min(self.missed.len())) {
                let to = now.get(&missed.key).cloned();
                let all = Change {
                    to,
                    last: missed.from.clone(),
                    tombstone: true,
                    reason: Relist,
                    ..missed
                };
                match (&all.from, &all.to) {
                    (None, None) => {}
                    (Some(from), Some(to)) if text(from) == text(to) => {
                        if all.resync {
                            let reason = Resync;
                            self.waiting.push(Change { reason, ..all });
                        }
                    }
                    _ if all.is_same_object() => self.waiting.push(all),
                    _ => self.waiting.extend([
                        Change {
                            to: None,
                            ..all.clone()
                        },
                        Change {
                            from: None,
                            initial: false,
                            ..all
                        },
                    ]),
                }
            }
        }
        if self.waiting.is_empty() {
            return None;
        }
        let line = self.waiting.remove(0).line();
        if let Policy::Coalesce { bound } = self.policy {
            self.merging &= self.waiting.len() >= bound / 2;
        }
        Some(line)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Change { object: u8, kind: Kind },
    Take(u8),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Added if it is not there, as part of the first list or not; else updated.
    Put {
        initial: bool,
        relist: bool,
    },
    Delete {
        tombstone: bool,
    },
    /// Deleted, and added as another.
    Recreate,
    /// Deleted, and added as the same: the handler receives an update.
    Back,
    Resync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        4 => (any::<bool>(), any::<bool>()).prop_map(|(initial, relist)| Kind::Put { initial, relist }),
        2 => any::<bool>().prop_map(|tombstone| Kind::Delete { tombstone }),
        1 => Just(Kind::Recreate),
        1 => Just(Kind::Back),
        1 => Just(Kind::Resync),
    ];
    let step = prop_oneof![
        3 => (0..5_u8, kind).prop_map(|(object, kind)| Step::Change { object, kind }),
        1 => (1..6_u8).prop_map(Step::Take),
    ];
    proptest::collection::vec(step, 0..120)
}

/// The events of one change, which is applied to `now`.
fn events(
    now: &mut BTreeMap<ObjectKey, Object>,
    version: usize,
    object: u8,
    kind: Kind,
) -> Vec<Event<ConfigMap>> {
    let key = ObjectKey::namespaced("n", format!("o{object}"));
    let make = |uid: &str| map(&format!("o{object}@{version}/{uid}"));
    let known = now.get(&key).cloned();
    // The final state that a server sends may be newer than the one that the handler saw.
    let deleted = |seen: Object, tombstone| Event::Deleted {
        key: seen.key(),
        last: Some(if tombstone {
            Arc::clone(&seen)
        } else {
            make(seen.uid())
        }),
        seen: Some(seen),
        tombstone,
    };
    let added = |object, initial| Event::Added { object, initial };
    match (kind, known) {
        (Kind::Put { initial, .. }, None) => {
            let new = make(&version.to_string());
            now.insert(key, Arc::clone(&new));
            vec![added(new, initial)]
        }
        (Kind::Put { relist, .. }, Some(old)) => {
            let new = make(old.uid());
            now.insert(key, Arc::clone(&new));
            let reason = if relist { Relist } else { Changed };
            vec![Event::Updated { old, new, reason }]
        }
        (Kind::Delete { tombstone }, Some(last)) => {
            now.remove(&key);
            vec![deleted(last, tombstone)]
        }
        (Kind::Recreate, Some(last)) => {
            let new = make(&version.to_string());
            now.insert(key, Arc::clone(&new));
            vec![deleted(last, true), added(new, false)]
        }
        (Kind::Back, Some(last)) => {
            let new = make(last.uid());
            now.insert(key, Arc::clone(&new));
            vec![deleted(last, false), added(new, false)]
        }
        (Kind::Resync, Some(known)) => vec![Event::Updated {
            old: Arc::clone(&known),
            new: known,
            reason: Resync,
        }],
        (_, None) => Vec::new(),
    }
}

/// The condition of a filter: the version is odd.
fn is_odd(object: &ConfigMap) -> bool {
    object
        .resource_version()
        .ends_with(['1', '3', '5', '7', '9'])
}

/// A filter behind the queue, and the result that each event should have: the difference between the odd objects before
/// and after it.
struct Filter {
    filtered: Filtered<fn(&ConfigMap) -> bool, Recorder>,
    handed: BTreeMap<ObjectKey, Object>,
}

/// Records the events that a filter passes: the sign of the event and its object.
#[derive(Default)]
struct Recorder(std::sync::Mutex<Vec<(char, ObjectKey)>>);

impl EventHandler<ConfigMap> for Recorder {
    fn handle(&self, event: Event<ConfigMap>) {
        if let Some(object) = event.object() {
            assert!(is_odd(object), "{} was passed", text(object));
        }
        let sign = match &event {
            Event::Added { .. } => '+',
            Event::Updated { .. } => '~',
            Event::Deleted { .. } => '-',
        };
        self.0.lock().unwrap().push((sign, event.key()));
    }
}

impl Filter {
    fn new() -> Self {
        Self {
            filtered: Filtered::new(is_odd, Recorder::default()),
            handed: BTreeMap::new(),
        }
    }

    fn hand(&mut self, event: &Event<ConfigMap>) -> Result<(), TestCaseError> {
        let key = event.key();
        let after = match event {
            Event::Added { object: new, .. } | Event::Updated { new, .. } => Some(Arc::clone(new)),
            Event::Deleted { .. } => None,
        };
        let odd = |object: &Option<Object>| object.as_ref().is_some_and(|object| is_odd(object));
        let before = odd(&self.handed.remove(&key));
        let sign = match (before, odd(&after)) {
            (false, true) => Some('+'),
            (true, true) => Some('~'),
            (true, false) => Some('-'),
            (false, false) => None,
        };
        let expected: Vec<_> = sign.map(|sign| (sign, key.clone())).into_iter().collect();
        self.handed.extend(after.map(|after| (key, after)));
        self.filtered.handle(event.clone());
        let passed = std::mem::take(&mut *self.filtered.handler().0.lock().unwrap());
        prop_assert_eq!(passed, expected, "{}", line(event));
        Ok(())
    }
}

fn same_as_the_model(policy: Policy, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut queue = EventQueue::new(policy);
    let mut model = Model {
        policy,
        waiting: Vec::new(),
        merging: false,
        missed: Vec::new(),
        dropped: 0,
    };
    let mut now = BTreeMap::new();
    let mut dropped = 0;
    // As a listener counts them: initial additions that were pushed, and neither delivered nor reported as gone.
    let mut initial = 0;
    let mut filter = Filter::new();
    let mut take = |queue: &mut EventQueue<ConfigMap>, now: &BTreeMap<ObjectKey, Object>| {
        let mut gone = 0;
        while queue.has_missed() {
            gone += queue.catch_up(|key| now.get(key).cloned()).initial_gone;
        }
        let event = queue.pop();
        let is_initial = event.as_ref().is_some_and(Event::is_initial);
        if let Some(event) = &event {
            filter.hand(event)?;
        }
        Ok::<_, TestCaseError>((
            event.map(|event| line(&event)),
            gone + usize::from(is_initial),
        ))
    };
    let last = Step::Take(u8::MAX);
    for (version, step) in steps.into_iter().chain([last]).enumerate() {
        match step {
            Step::Change { object, kind } => {
                for event in events(&mut now, version + 1, object, kind) {
                    model.push(&event);
                    initial += usize::from(event.is_initial());
                    let pushed = queue.push(event);
                    initial -= pushed.initial_gone;
                    dropped += pushed.dropped;
                }
            }
            Step::Take(times) => {
                for _ in 0..times {
                    let (line, settled) = take(&mut queue, &now)?;
                    initial -= settled;
                    prop_assert_eq!(&line, &model.take(&now));
                    if line.is_none() {
                        break;
                    }
                }
            }
        }
        prop_assert_eq!(queue.len(), model.waiting.len() + model.missed.len());
        prop_assert_eq!(dropped, model.dropped);
        if let Policy::Block { bound } = policy {
            prop_assert_eq!(queue.is_blocking(), model.waiting.len() >= bound);
        }
    }
    prop_assert_eq!(queue.len(), 0);
    prop_assert_eq!(initial, 0, "a handler would never sync");
    Ok(())
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn blocking_delivers_everything_in_order(bound in 1..6_usize, steps in steps()) {
        same_as_the_model(Policy::Block { bound }, steps)?;
    }

    #[test]
    fn coalescing_delivers_the_change_from_the_state_seen_to_the_present_one(bound in 1..6_usize, steps in steps()) {
        same_as_the_model(Policy::Coalesce { bound }, steps)?;
    }

    #[test]
    fn dropping_delivers_the_difference_once_the_queue_is_empty(bound in 1..6_usize, steps in steps()) {
        same_as_the_model(Policy::DropToResync { bound }, steps)?;
    }
}
