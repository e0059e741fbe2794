//! The set as objects of a network plugin, through the API server alone: Cilium's CIDR groups, Calico's network sets.
//!
//! The leader writes them. A ban is confirmed when the API server has it; the plugin follows within its own time. The
//! plugin goes on without the operator, but has no ends: a lift needs the operator.
//!
//! | step | why in this order |
//! |---|---|
//! | groups that changed | a policy must not name a group that is not there |
//! | the policy, if the groups that it names changed | |
//! | groups that are empty are deleted | a policy must not name a group that is gone |
//!
//! Objects carry the label `ops.yiiong.top/engine`, by which they are listed after a start, each resync interval and
//! after a failure, and removed when the engine is not configured any more.

mod compare;
mod plugin;
mod shards;

use std::collections::{BTreeMap, BTreeSet};

use kube_client::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube_client::{Api, Client, Error as ClientError};
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

use self::compare::is_as_wanted;
use self::plugin::{LABEL, ServedKind};
use self::shards::Shards;
use super::kind::{Capabilities, Change, Error, SetEngine};
use super::set::TargetSet;
use crate::outbound::BoxFuture;

pub use self::plugin::{Keeper, Plugin, Settings};

/// The manager that the objects name.
const MANAGER: &str = "ipblock-operator";

/// Objects listed at once.
const PAGE: u32 = 50;

/// Keeps the objects of one engine.
pub(super) struct ObjectEngine {
    name: String,
    settings: Settings,
    client: Client,
    leading: watch::Receiver<bool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shards: Shards,
    /// The versions of the groups that are there.
    versions: BTreeMap<usize, String>,
    /// The groups that the policy names; `None`: it has to be written.
    named: Option<Vec<String>>,
}

// === impl ObjectEngine ===

impl ObjectEngine {
    pub(super) fn new(
        name: &str,
        settings: Settings,
        client: Client,
        leading: watch::Receiver<bool>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            settings,
            client,
            leading,
            state: Mutex::default(),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        [
            (LABEL.to_owned(), self.name.clone()),
            (
                "app.kubernetes.io/managed-by".to_owned(),
                MANAGER.to_owned(),
            ),
        ]
        .into()
    }

    fn object(&self, name: String, resource: &ApiResource, spec: Value) -> DynamicObject {
        let mut object = DynamicObject::new(&name, resource).data(json!({ "spec": spec }));
        object.metadata.labels = Some(self.labels());
        object
    }

    fn group_name(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// The number in the name of a group; `None`: the engine does not give this name.
    fn number(&self, name: &str) -> Option<usize> {
        let rest = name.strip_prefix(&self.name)?.strip_prefix('-')?;
        let number = rest.parse().ok()?;
        (self.group_name(number) == name).then_some(number)
    }

    /// A process that lost its lease writes nothing more.
    fn check_lead(&self) -> Result<(), Error> {
        if *self.leading.borrow() {
            Ok(())
        } else {
            Err(Error("this replica does not lead".into()))
        }
    }

    /// The kind in the first version that the server has.
    async fn served(&self, kind: ServedKind) -> Result<ApiResource, Error> {
        for version in kind.versions {
            let listed = self.client.list_api_group_resources(version).await;
            match listed {
                Ok(list) if list.resources.iter().any(|it| it.name == kind.plural) => {
                    let (group, version) = version.split_once('/').unwrap_or_default();
                    return Ok(ApiResource {
                        group: group.to_owned(),
                        version: version.to_owned(),
                        api_version: format!("{group}/{version}"),
                        kind: kind.kind.to_owned(),
                        plural: kind.plural.to_owned(),
                    });
                }
                Ok(_) => {}
                Err(error) if is(&error, 404) => {}
                Err(error) => return Err(failed("discover", kind.plural, &error)),
            }
        }
        let (plugin, plural) = (self.settings.plugin.name(), kind.plural);
        Err(Error(format!(
            "{ABSENT}{plural}; install {plugin}, or remove the engine"
        )))
    }

    /// Reads the groups that are there. Their numbers are in their names; others are not touched.
    async fn list(&self, api: &Api<DynamicObject>) -> Result<State, Error> {
        let mut state = State::default();
        let selector = format!("{LABEL}={}", self.name);
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let page = api.list(&params).await;
            let page = page.map_err(|error| failed("list", "its groups", &error))?;
            for object in page.items {
                let name = object.metadata.name.unwrap_or_default();
                let Some(number) = self.number(&name) else {
                    continue;
                };
                let targets = self.settings.plugin.targets(&object.data["spec"]);
                let targets: BTreeSet<_> = targets.into_iter().collect();
                if !targets.is_empty() {
                    state.shards.0.insert(number, targets);
                }
                let version = object.metadata.resource_version.unwrap_or_default();
                state.versions.insert(number, version);
            }
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(state),
            }
        }
    }

    /// Writes or deletes the group `number`.
    async fn write(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        state: &mut State,
        number: usize,
    ) -> Result<(), Error> {
        self.check_lead()?;
        let name = self.group_name(number);
        let targets = state.shards.0.get(&number).into_iter().flatten();
        let spec = self.settings.plugin.group_spec(targets);
        let mut object = self.object(name.clone(), resource, spec);
        let params = PostParams::default();
        let version = state.versions.get(&number);
        let written = match version {
            Some(version) => {
                object.metadata.resource_version = Some(version.clone());
                api.replace(&name, &params, &object).await
            }
            None => api.create(&params, &object).await,
        };
        if version.is_none()
            && let Err(error) = &written
            && is(error, 409)
        {
            let present = api.get_opt(&name).await;
            let present = present.map_err(|error| failed("read", &name, &error))?;
            if let Some(present) = present {
                self.check_own(&present, resource)?;
            }
        }
        let written = written.map_err(|error| failed("write", &name, &error))?;
        let version = written.metadata.resource_version.unwrap_or_default();
        state.versions.insert(number, version);
        Ok(())
    }

    /// Deletes the object `name` as it was at `version`: one that another client changed or made since stays.
    async fn delete(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        version: Option<String>,
    ) -> Result<(), Error> {
        self.check_lead()?;
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: version,
                uid: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(name, &params).await {
            Err(error) if !is(&error, 404) => Err(failed("delete", name, &error)),
            _ => Ok(()),
        }
    }

    async fn delete_group(
        &self,
        api: &Api<DynamicObject>,
        state: &mut State,
        number: usize,
    ) -> Result<(), Error> {
        let version = state.versions.get(&number).cloned();
        self.delete(api, &self.group_name(number), version).await?;
        state.versions.remove(&number);
        Ok(())
    }

    /// Deletes the policy, if there is one of this engine.
    async fn delete_policy(&self, api: &Api<DynamicObject>) -> Result<(), Error> {
        let present = match api.get_opt(&self.name).await {
            // An engine without a policy may lack the right to read one.
            Err(error) if !self.settings.policy && is(&error, 403) => None,
            present => present.map_err(|error| failed("read", "its policy", &error))?,
        };
        match present.filter(|present| self.owns(present)) {
            Some(present) => {
                let version = present.metadata.resource_version;
                self.delete(api, &self.name, version).await
            }
            None => Ok(()),
        }
    }

    fn owns(&self, object: &DynamicObject) -> bool {
        let labels = object.metadata.labels.as_ref();
        let label = |key: &String| labels.and_then(|labels| labels.get(key));
        self.labels()
            .iter()
            .all(|(key, value)| label(key) == Some(value))
    }

    /// An object of another client keeps its name and its content.
    fn check_own(&self, object: &DynamicObject, resource: &ApiResource) -> Result<(), Error> {
        if self.owns(object) {
            return Ok(());
        }
        let (plural, name) = (&resource.plural, object.metadata.name.as_deref());
        let name = name.unwrap_or_default();
        Err(Error(format!(
            "cannot write {plural} {name}: the object exists, and it is not this engine's (it has no label {LABEL}={}); delete it, or give the engine another name",
            self.name
        )))
    }

    /// Brings the policy in line with the groups. Without groups there is none, and none with `policy: false` either: the one
    /// of earlier settings goes.
    async fn write_policy(&self, state: &mut State) -> Result<(), Error> {
        let wanted = self.settings.policy;
        let groups = state.shards.0.keys().filter(|_| wanted);
        let groups: Vec<String> = groups.map(|it| self.group_name(*it)).collect();
        if state.named.as_ref() == Some(&groups) {
            return Ok(());
        }
        let resource = match self.served(self.settings.plugin.policy()).await {
            Err(error) if !wanted && error.0.starts_with(ABSENT) => {
                state.named = Some(groups);
                return Ok(());
            }
            served => served?,
        };
        let api = Api::all_with(self.client.clone(), &resource);
        if groups.is_empty() {
            self.delete_policy(&api).await?;
            state.named = Some(groups);
            return Ok(());
        }
        let present = api.get_opt(&self.name).await;
        let present: Option<DynamicObject> =
            present.map_err(|error| failed("read", "its policy", &error))?;
        if let Some(present) = &present {
            self.check_own(present, &resource)?;
        }
        let spec = self.settings.policy_spec(&self.name, &groups);
        let mut policy = self.object(self.name.clone(), &resource, spec);
        let trial = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let written = match &present {
            Some(present) if is_as_wanted(&present.data["spec"], &policy.data["spec"]) => Ok(None),
            Some(present) => {
                policy.metadata.resource_version = present.metadata.resource_version.clone();
                self.check_lead()?;
                self.trial(api.replace(&self.name, &trial, &policy).await)?;
                let params = PostParams::default();
                api.replace(&self.name, &params, &policy).await.map(Some)
            }
            None => {
                self.check_lead()?;
                self.trial(api.create(&trial, &policy).await)?;
                api.create(&PostParams::default(), &policy).await.map(Some)
            }
        };
        written.map_err(|error| failed("write", "its policy", &error))?;
        state.named = Some(groups);
        Ok(())
    }

    /// Checks what the server would have made of the policy.
    fn trial(&self, answer: Result<DynamicObject, ClientError>) -> Result<(), Error> {
        let answer = answer.map_err(|error| failed("write", "its policy", &error))?;
        self.settings.plugin.check(&answer.data).map_err(Error)
    }

    async fn try_apply(&self, change: &Change) -> Result<(), Error> {
        let resource = self.served(self.settings.plugin.group()).await?;
        let api = Api::all_with(self.client.clone(), &resource);
        let mut state = self.state.lock().await;
        let touched = state.shards.apply(change, self.settings.shard);
        let (full, empty): (Vec<usize>, Vec<usize>) = touched
            .into_iter()
            .partition(|number| state.shards.0.contains_key(number));
        for number in full {
            self.write(&api, &resource, &mut state, number).await?;
        }
        self.write_policy(&mut state).await?;
        for number in empty {
            self.delete_group(&api, &mut state, number).await?;
        }
        Ok(())
    }

    async fn try_snapshot(&self) -> Result<TargetSet, Error> {
        let resource = self.served(self.settings.plugin.group()).await?;
        let api = Api::all_with(self.client.clone(), &resource);
        let mut state = self.state.lock().await;
        *state = self.list(&api).await?;
        let empty = state.versions.keys().copied();
        let empty: Vec<usize> = empty
            .filter(|number| !state.shards.0.contains_key(number))
            .collect();
        // A policy that another client changed or deleted is drift too.
        self.write_policy(&mut state).await?;
        for number in empty {
            self.delete_group(&api, &mut state, number).await?;
        }
        Ok(state.shards.set())
    }

    async fn try_clear(&self) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let plugin = self.settings.plugin;
        let policies = match self.served(plugin.policy()).await {
            Ok(resource) => Some(Api::<DynamicObject>::all_with(
                self.client.clone(),
                &resource,
            )),
            // The plugin was removed, and its objects with it.
            Err(error) if error.0.starts_with(ABSENT) => None,
            Err(error) => return Err(error),
        };
        if let Some(policies) = policies {
            self.delete_policy(&policies).await?;
        }
        let resource = match self.served(plugin.group()).await {
            Ok(resource) => resource,
            Err(error) if error.0.starts_with(ABSENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        let api = Api::all_with(self.client.clone(), &resource);
        *state = self.list(&api).await?;
        let numbers: Vec<usize> = state.versions.keys().copied().collect();
        for number in numbers {
            self.delete_group(&api, &mut state, number).await?;
        }
        *state = State::default();
        Ok(())
    }
}

/// Empties the engine `keeper`, whatever its settings.
///
/// # Errors
/// When a part of it may stand.
pub(crate) async fn clear(client: Client, keeper: &Keeper) -> Result<(), Error> {
    // It is called when no replica runs any more.
    let leading = watch::Sender::new(true);
    let settings = Settings::former(keeper.plugin);
    let engine = ObjectEngine::new(&keeper.name, settings, client, leading.subscribe());
    engine.try_clear().await
}

/// How the error of a kind that is not served begins.
const ABSENT: &str = "the API server has no ";

impl SetEngine for ObjectEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            v6: true,
            ranges: true,
            ttl: false,
            most: Some(self.settings.most),
        }
    }

    fn collect(&self) -> std::time::Duration {
        std::time::Duration::from_millis(500)
    }

    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.try_apply(change))
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Option<TargetSet>, Error>> {
        Box::pin(async move { self.try_snapshot().await.map(Some) })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.try_clear())
    }
}

impl std::fmt::Debug for ObjectEngine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ObjectEngine")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn is(error: &ClientError, code: u16) -> bool {
    matches!(error, ClientError::Api(status) if status.code == code)
}

/// A failure in words that do not change from one attempt to the next.
fn failed(what: &str, name: &str, error: &ClientError) -> Error {
    let why = match error {
        ClientError::Api(status) if status.code == 409 => {
            "another client changed it; trying again".to_owned()
        }
        ClientError::Api(status) if status.code == 403 => {
            format!("{}; apply the access rules of the engine", status.message)
        }
        ClientError::Api(status) => status.message.clone(),
        _ => "the API server does not answer".to_owned(),
    };
    Error(format!("cannot {what} {name}: {why}"))
}

#[cfg(test)]
pub(super) mod tests;
