//! Carries out a [`Plan`]: one call for an action, in order. A failed action does not stop the others, except those that
//! need its result; all failures come back as one [`Failures`].
//!
//! A group whose new backends were refused gets no listener in place of another group, and keeps its former backends if no
//! other would be left. Backends that the cloud does not know are left out, and the others are added.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use reeve_controller::reconcile;

use crate::model::{Backend, GroupId, LbId, ListenerKey};
use crate::plan::{Action, GroupRef, Plan};
use crate::provider::{Error, Kind, Provider};

/// The wait for a load balancer that refuses changes for now, and for a throttled call without a time.
const BUSY: Duration = Duration::from_secs(5);

/// The name of an addition in which the cloud refused some backends and took others.
const SOME_BACKENDS: &str = "add_some_backends";

/// The backends that the cloud may refuse one by one before the others count as refused, too, while it took none.
const MOST_REFUSED: usize = 8;

/// A failed action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of the call.
    pub call: &'static str,
    /// The action.
    pub action: String,
    /// The cloud's answer.
    pub error: Error,
}

/// The failed actions of one run, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures {
    /// The failures in the order of the actions.
    pub failed: Vec<Failure>,
    /// The number of all actions.
    pub of: usize,
}

/// Carries out `plan` on the load balancer `id`.
///
/// # Errors
/// The failures of all actions. Actions that need the result of a failed one are skipped and not among them.
pub async fn apply(provider: &dyn Provider, id: &LbId, plan: &Plan) -> Result<(), Failures> {
    let mut run = Run {
        provider,
        id,
        created: HashMap::new(),
        without: BTreeSet::new(),
        usable: BTreeMap::new(),
        invalid: Vec::new(),
        keeps_groups: false,
    };
    let mut failed = Vec::new();
    for action in &plan.actions {
        if let Action::AddBackends(group, backends, stay) = action {
            run.add(group, backends, *stay, &mut failed).await;
        } else if let Err(error) = run.act(action).await {
            if let Action::CreateListener(key, ..) = action {
                run.without.insert(*key);
            }
            failed.push(Failure {
                call: action.call(),
                action: action.to_string(),
                error,
            });
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    // Those that are left out are reported, and the group is of use without them.
    for (at, group) in &run.invalid {
        if !run.is_short(group) {
            failed[*at].call = SOME_BACKENDS;
        }
    }
    let of = plan.actions.len();
    Err(Failures { failed, of })
}

struct Run<'a> {
    provider: &'a dyn Provider,
    id: &'a LbId,
    /// The groups that were created, by name.
    created: HashMap<&'a str, GroupId>,
    /// The listeners whose creation failed or was skipped.
    without: BTreeSet<ListenerKey>,
    /// Whether each group that was to get backends has any.
    usable: BTreeMap<GroupId, bool>,
    /// The failures whose backends the cloud does not know, with their groups.
    invalid: Vec<(usize, GroupId)>,
    /// A listener still uses a group that was to be replaced.
    keeps_groups: bool,
}

// === impl Run ===

impl<'a> Run<'a> {
    fn group(&self, group: &GroupRef) -> Option<GroupId> {
        match group {
            GroupRef::Id(id) => Some(id.clone()),
            GroupRef::New(name) => self.created.get(name.as_str()).cloned(),
        }
    }

    /// Adds backends; if the cloud refuses some, the others. Former ones `stay`.
    async fn add(
        &mut self,
        group: &GroupRef,
        backends: &[Backend],
        stay: bool,
        failed: &mut Vec<Failure>,
    ) {
        let Some(id) = self.group(group) else {
            return;
        };
        let mut left = vec![backends];
        let (mut added, mut refused) = (0, 0);
        while let Some(part) = left.pop() {
            let Err(error) = self.provider.add_backends(self.id, &id, part).await else {
                added += part.len();
                continue;
            };
            let invalid = error.kind == Kind::Invalid;
            // Where none is taken, none of the others will be.
            if invalid && part.len() > 1 && (added > 0 || refused < MOST_REFUSED) {
                let (first, second) = part.split_at(part.len() / 2);
                left.extend([second, first]);
                continue;
            }
            refused += 1;
            if invalid {
                self.invalid.push((failed.len(), id.clone()));
            }
            failed.push(Failure {
                call: "add_backends",
                action: Action::AddBackends(group.clone(), part.to_vec(), stay).to_string(),
                error,
            });
        }
        let usable = self.usable.entry(id).or_insert(false);
        *usable |= stay || added > 0;
    }

    /// Whether a group was to get backends, and has none.
    fn is_short(&self, group: &GroupId) -> bool {
        self.usable.get(group) == Some(&false)
    }

    async fn act(&mut self, action: &'a Action) -> Result<(), Error> {
        let Self { provider, id, .. } = *self;
        match action {
            Action::SetModificationProtection(on) => {
                provider.set_modification_protection(id, *on).await
            }
            Action::SetName(name) => provider.set_name(id, name).await,
            Action::SetInstanceCharge(charge) => provider.set_instance_charge(id, *charge).await,
            Action::SetInternet(internet) => provider.set_internet(id, *internet).await,
            Action::SetSpec(spec) => provider.set_spec(id, spec).await,
            Action::Tag(tags) => provider.tag(id, tags).await,
            Action::CreateGroup(new) => {
                let group = provider.create_group(id, new).await?;
                self.created.insert(&new.name, group);
                Ok(())
            }
            // [`Run::add`] does that.
            Action::AddBackends(..) => Ok(()),
            Action::SetWeights(group, backends) => match self.group(group) {
                Some(group) => provider.set_weights(id, &group, backends).await,
                None => Ok(()),
            },
            Action::RemoveBackends(group, backends, replaces) => match self.group(group) {
                Some(group) if *replaces && self.is_short(&group) => Ok(()),
                Some(group) => provider.remove_backends(id, &group, backends).await,
                None => Ok(()),
            },
            Action::DeleteGroup(..) if self.keeps_groups => Ok(()),
            Action::DeleteGroup(group, _) => provider.delete_group(id, group).await,
            Action::DeleteListener(key) => provider.delete_listener(id, *key).await,
            Action::CreateListener(key, settings, group) => {
                let Some(group) = self.group(group) else {
                    self.without.insert(*key);
                    return Ok(());
                };
                let mut settings = settings.clone();
                settings.group = group;
                provider.create_listener(id, *key, &settings).await
            }
            Action::SetListener(key, settings, group, fields) => {
                let moves = fields.contains(&"group");
                let group = self.group(group);
                let group = group.filter(|group| !(moves && self.is_short(group)));
                let Some(group) = group else {
                    self.keeps_groups = true;
                    return Ok(());
                };
                let mut settings = settings.clone();
                settings.group = group;
                provider.set_listener(id, *key, &settings).await
            }
            Action::SetDomain(key, domain, certificate) if !self.without.contains(key) => {
                provider
                    .set_domain(id, *key, domain, certificate.as_deref())
                    .await
            }
            Action::StartListener(key) if !self.without.contains(key) => {
                provider.start_listener(id, *key).await
            }
            Action::SetDomain(..) | Action::StartListener(_) => Ok(()),
            Action::SetDeleteProtection(on) => provider.set_delete_protection(id, *on).await,
        }
    }
}

// === impl Failures ===

impl Failures {
    /// The failure of one call outside a plan.
    #[must_use]
    pub fn one(call: &'static str, error: Error) -> Self {
        Self {
            failed: vec![Failure {
                call,
                action: call.to_owned(),
                error,
            }],
            of: 1,
        }
    }

    /// Whether all listeners and groups are as planned, and have backends: only attributes failed, or some backends of a
    /// group.
    #[must_use]
    pub fn leaves_listeners(&self) -> bool {
        let attributes = [
            "set_name",
            "set_spec",
            "set_internet",
            "set_instance_charge",
            "set_delete_protection",
            "set_modification_protection",
            "tag",
            SOME_BACKENDS,
        ];
        let mut failed = self.failed.iter();
        failed.all(|failure| attributes.contains(&failure.call))
    }

    /// The minimum wait before the next attempt, if any call gave one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let waits = self.failed.iter().filter_map(|failure| {
            let error = &failure.error;
            let waits = matches!(error.kind, Kind::Throttled | Kind::Busy);
            error.retry_after.or(waits.then_some(BUSY))
        });
        waits.max()
    }

    /// The error of the reconcile: that of an outage if the cloud is at fault in every failure.
    #[must_use]
    pub fn into_error(self) -> reconcile::Error {
        let away = self
            .failed
            .iter()
            .all(|failure| failure.error.kind == Kind::Unavailable);
        match self.retry_after() {
            Some(wait) => reconcile::Error::rate_limited(self, wait),
            None if away => reconcile::Error::outage(self),
            None => reconcile::Error::transient(self),
        }
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of > 1 {
            write!(f, "{} of {} changes failed: ", self.failed.len(), self.of)?;
        }
        for (at, Failure { action, error, .. }) in self.failed.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{action}: {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failures {}
