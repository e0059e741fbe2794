//! Lookup of a kind in the results of discovery.

use kube_core::GroupVersionKind;

use super::discovery::{self, Form};
use super::known::{Lookup, State};
use crate::client::Client;
use crate::endpoint::GroupKind;
use crate::error::Error;
use crate::kind::Kind;

/// Maps names of kinds and resources to their endpoints: [`Client::mapper`].
///
/// ```no_run
/// # async fn example(client: reeve_client::Client) -> Result<(), reeve_client::Error> {
/// use kube_core::GroupVersionKind;
/// use kube_core::params::ListParams;
/// use reeve_client::GroupKind;
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
    /// A mapper of names of kinds. Clones of a client share the results of discovery.
    #[must_use]
    pub fn mapper(&self) -> Mapper {
        let mut client = self.clone();
        // Discovery is not a call about objects.
        client.intercepted = None;
        Mapper { client }
    }
}

// === impl Mapper ===

impl Mapper {
    /// The kind in the first of the group's versions, in the server's order of preference, that has it.
    ///
    /// # Errors
    /// [`Error::NoMatch`] when the server has no such kind, with the existing kinds; or when discovery fails.
    pub async fn kind(&self, kind: &GroupKind) -> Result<Kind, Error> {
        let wanted = Lookup::Kind {
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
        let wanted = Lookup::Kind {
            kind: &kind.kind,
            version: Some(&kind.version),
        };
        self.find(&kind.group, wanted).await
    }

    /// The kind of a resource, by its plural: `deployments` of `apps`.
    ///
    /// # Errors
    /// As [`Mapper::kind`].
    pub async fn resource(&self, group: &str, plural: &str) -> Result<Kind, Error> {
        let wanted = Lookup::Resource {
            plural,
            version: None,
        };
        self.find(group, wanted).await
    }

    pub(crate) async fn resource_in(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Kind, Error> {
        let wanted = Lookup::Resource {
            plural,
            version: Some(version),
        };
        self.find(group, wanted).await
    }

    /// Drops all results: the next lookup starts a discovery.
    pub fn invalidate(&self) {
        let mut state = self.client.known.state.lock();
        state.groups.clear();
        state.legacy.clear();
    }

    async fn find(&self, group: &str, wanted: Lookup<'_>) -> Result<Kind, Error> {
        let seen = {
            let state = self.client.known.state.lock();
            if let Some(kind) = state.find(group, &wanted) {
                return Ok(kind);
            }
            state.discoveries
        };
        let _discovering = self.client.known.discovering.lock().await;
        if self.client.known.state.lock().lacks(group) {
            self.add_legacy(group).await?;
        }
        let stale = {
            let state = self.client.known.state.lock();
            // Another lookup may have completed a discovery meanwhile.
            state.discoveries == seen && state.find(group, &wanted).is_none()
        };
        if stale {
            let fresh = self.discover(group).await?;
            let mut state = self.client.known.state.lock();
            let discoveries = state.discoveries + 1;
            *state = State {
                discoveries,
                ..fresh
            };
        }
        let state = self.client.known.state.lock();
        state
            .find(group, &wanted)
            .ok_or_else(|| state.no_match(group, &wanted))
    }

    /// Requests all kinds, or from a server without aggregated discovery the groups and the kinds of `group`.
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
