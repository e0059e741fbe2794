//! From a kind's name to where it is served, by discovery (controller-runtime: `apiutil.NewDynamicRESTMapper`).
//!
//! Everything is learned with two requests where the server offers aggregated discovery (1.26 and later), else with two
//! and one for each version of the group that is asked for. What is known is kept; a name that is not found is looked
//! up once more, so definitions that are added while the program runs are found at once. When a call is answered that
//! its path is not served, what is known of the group is forgotten, so a version that went away is not offered again.

mod discovery;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kube_core::{DynamicObject, GroupVersionKind};
use parking_lot::Mutex;

use super::endpoint::GroupKind;
use super::objects::Objects;
use super::{Client, Error};
use crate::cache::Kind;
use discovery::Form;

/// What discovery told. One for a client and its clones.
#[derive(Debug, Default)]
pub(super) struct Known {
    state: Mutex<State>,
    /// Held while the server is asked, so that many who miss the same ask once.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// By name; `None` is a group whose kinds were not asked for yet.
    groups: BTreeMap<String, Option<Group>>,
    /// The versions of the groups, where their kinds are asked for group by group.
    legacy: BTreeMap<String, Vec<String>>,
    /// How often the server was asked.
    asked: u64,
}

/// The versions of a group, the preferred one first, and the kinds of each.
#[derive(Clone, Debug, Default)]
struct Group {
    versions: Vec<(String, Vec<Kind>)>,
}

/// What is looked for.
#[derive(Clone, Debug)]
enum Wanted<'a> {
    /// A kind, in this version or in the preferred one.
    Kind {
        kind: &'a str,
        version: Option<&'a str>,
    },
    /// A resource by its plural.
    Resource {
        plural: &'a str,
        version: Option<&'a str>,
    },
}

/// Maps names of kinds and resources to where they are served: [`Client::mapper`].
///
/// ```no_run
/// # async fn example(client: reeve_controller::Client) -> Result<(), reeve_controller::client::Error> {
/// use kube_core::GroupVersionKind;
/// use kube_core::params::ListParams;
/// use reeve_controller::client::GroupKind;
///
/// // In the version the server prefers.
/// let widget = client.mapper().kind(&GroupKind::new("example.com", "Widget")).await?;
/// let widgets = client.dynamic(&widget).list(None, &ListParams::default()).await?;
/// // Or in a certain version, both steps in one.
/// let widget = GroupVersionKind::gvk("example.com", "v1beta1", "Widget");
/// let widgets = client.discovered(&widget).await?.list(None, &ListParams::default()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mapper {
    client: Client,
}

impl Client {
    /// Maps names of kinds to where they are served. Clones of a client share what was discovered.
    #[must_use]
    pub fn mapper(&self) -> Mapper {
        let mut client = self.clone();
        // Discovery is not a call about objects.
        client.intercepted = None;
        Mapper { client }
    }

    /// The objects of a kind known by name only.
    ///
    /// # Errors
    /// As [`Mapper::version`].
    pub async fn discovered(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<Objects<DynamicObject>, Error> {
        Ok(self.dynamic(&self.mapper().version(kind).await?))
    }
}

// === impl Mapper ===

impl Mapper {
    /// The kind in the first of the group's versions, in the server's order of preference, that has it.
    ///
    /// # Errors
    /// [`Error::NoMatch`] when the server has no such kind, naming what it has; or when it cannot be asked.
    pub async fn kind(&self, kind: &GroupKind) -> Result<Kind, Error> {
        let wanted = Wanted::Kind {
            kind: &kind.kind,
            version: None,
        };
        self.find(&kind.group, wanted).await
    }

    /// The kind in this version.
    ///
    /// # Errors
    /// As [`Mapper::kind`].
    pub async fn version(&self, kind: &GroupVersionKind) -> Result<Kind, Error> {
        let wanted = Wanted::Kind {
            kind: &kind.kind,
            version: Some(&kind.version),
        };
        self.find(&kind.group, wanted).await
    }

    /// The kind of a resource, called by its plural: `deployments` of `apps`.
    ///
    /// # Errors
    /// As [`Mapper::kind`].
    pub async fn resource(&self, group: &str, plural: &str) -> Result<Kind, Error> {
        let wanted = Wanted::Resource {
            plural,
            version: None,
        };
        self.find(group, wanted).await
    }

    pub(super) async fn resource_in(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Kind, Error> {
        let wanted = Wanted::Resource {
            plural,
            version: Some(version),
        };
        self.find(group, wanted).await
    }

    /// Forgets everything: the next lookup asks the server.
    pub fn invalidate(&self) {
        let mut state = self.client.known.state.lock();
        state.groups.clear();
        state.legacy.clear();
    }

    async fn find(&self, group: &str, wanted: Wanted<'_>) -> Result<Kind, Error> {
        let seen = {
            let state = self.client.known.state.lock();
            if let Some(kind) = state.find(group, &wanted) {
                return Ok(kind);
            }
            state.asked
        };
        let _asking = self.client.known.asking.lock().await;
        if self.client.known.state.lock().lacks(group) {
            self.add_legacy(group).await?;
        }
        let stale = {
            let state = self.client.known.state.lock();
            // Somebody may have asked while this one waited.
            state.asked == seen && state.find(group, &wanted).is_none()
        };
        if stale {
            let fresh = self.discover(group).await?;
            let mut state = self.client.known.state.lock();
            let asked = state.asked + 1;
            *state = State { asked, ..fresh };
        }
        let state = self.client.known.state.lock();
        state
            .find(group, &wanted)
            .ok_or_else(|| state.no_match(group, &wanted))
    }

    /// Everything, or of a server without aggregated discovery the groups, and the kinds of `group`.
    async fn discover(&self, group: &str) -> Result<State, Error> {
        let mut state = State::default();
        for form in [Form::Core, Form::Groups] {
            discovery::read(&self.client, form, &mut state).await?;
        }
        if state.lacks(group) {
            let versions = state.legacy[group].clone();
            let found = discovery::legacy(&self.client, group, &versions).await?;
            state.groups.insert(group.to_owned(), Some(found));
        }
        Ok(state)
    }

    /// The kinds of one more group.
    async fn add_legacy(&self, group: &str) -> Result<(), Error> {
        let versions = self.client.known.state.lock().legacy.get(group).cloned();
        let Some(versions) = versions else {
            return Ok(());
        };
        let found = discovery::legacy(&self.client, group, &versions).await?;
        let mut state = self.client.known.state.lock();
        state.groups.insert(group.to_owned(), Some(found));
        Ok(())
    }
}

impl Wanted<'_> {
    fn version(&self) -> Option<&str> {
        match self {
            Self::Kind { version, .. } | Self::Resource { version, .. } => *version,
        }
    }
}

// === impl Known ===

impl Known {
    /// What was known of the group is wrong.
    pub(super) fn forget(&self, group: &str) {
        self.state.lock().groups.remove(group);
    }
}

// === impl State ===

impl State {
    /// Whether the group is there, and its kinds were not asked for.
    fn lacks(&self, group: &str) -> bool {
        matches!(self.groups.get(group), Some(None))
    }

    fn find(&self, group: &str, wanted: &Wanted<'_>) -> Option<Kind> {
        let group = self.groups.get(group)?.as_ref()?;
        group.versions.iter().find_map(|(name, kinds)| {
            if wanted.version().is_some_and(|version| version != name) {
                return None;
            }
            let is_wanted = |kind: &&Kind| match wanted {
                Wanted::Kind { kind: wanted, .. } => kind.resource().kind == *wanted,
                Wanted::Resource { plural, .. } => kind.resource().plural == *plural,
            };
            kinds.iter().find(is_wanted).cloned()
        })
    }

    /// What was looked for, and what there is instead.
    fn no_match(&self, group: &str, wanted: &Wanted<'_>) -> Error {
        let name = match wanted {
            Wanted::Kind { kind: name, .. } | Wanted::Resource { plural: name, .. } => *name,
        };
        let place = match (group, wanted.version()) {
            ("", None) => "the core group".to_owned(),
            ("", Some(version)) => version.to_owned(),
            (group, None) => group.to_owned(),
            (group, Some(version)) => format!("{group}/{version}"),
        };
        let is_named = |kind: &Kind| {
            let resource = kind.resource();
            name.eq_ignore_ascii_case(&resource.kind) || name.eq_ignore_ascii_case(&resource.plural)
        };
        let all = || {
            let groups = self.groups.iter();
            groups.flat_map(|(name, group)| {
                let versions = group.iter().flat_map(|group| &group.versions);
                let kinds = versions.flat_map(|(_, kinds)| kinds);
                kinds.map(move |kind| (name.as_str(), kind))
            })
        };
        let mut there: Vec<String> = all()
            .filter(|(_, kind)| is_named(kind))
            .map(|(_, kind)| kind.to_string())
            .collect();
        let mut what = "there are of that name";
        if there.is_empty() {
            what = "the group has";
            let kinds = all().filter(|(found, _)| *found == group);
            there = kinds
                .map(|(_, kind)| kind.resource().kind.clone())
                .collect();
        }
        if there.is_empty() {
            what = "there are the groups";
            let named = self.groups.keys().filter(|name| !name.is_empty());
            there = named.cloned().collect();
        }
        there.sort_unstable();
        there.dedup();
        Error::NoMatch {
            wanted: name.to_owned(),
            place,
            found: format!("{what} {}", there.join(", ")),
        }
    }
}
