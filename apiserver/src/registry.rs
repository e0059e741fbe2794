//! The registry of served resources: the built-in ones, and those of definitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::connect;
use crate::field::quote;
use crate::kinds::data::Data;
use crate::resource::ResourceInfo;
use crate::status::SCHEME;

/// The served resources, by group, version and plural.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    served: RwLock<Arc<Served>>,
    /// Held by the watches of the resource of a storage: dropped when they end.
    definitions: Mutex<HashMap<String, watch::Sender<()>>>,
}

/// One state of the registry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// Groups in the order of discovery; the empty one is core.
    pub(crate) groups: Vec<Group>,
    /// Storage versions that are not served, by storage.
    pub(crate) unserved: BTreeMap<String, Arc<ResourceInfo>>,
}

/// The served versions of one group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Its name; empty for core.
    pub(crate) name: String,
    /// Preferred version first.
    pub(crate) versions: Vec<Version>,
}

/// The resources of one version of a group.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Its name.
    pub(crate) name: String,
    /// By plural.
    pub(crate) resources: BTreeMap<String, Arc<ResourceInfo>>,
}

// === impl Registry ===

impl Registry {
    /// A registry that serves this.
    pub(crate) fn of(served: Arc<Served>) -> Self {
        Self {
            served: RwLock::new(served),
            definitions: Mutex::default(),
        }
    }

    /// A receiver that fails when [`Registry::end_watches`] is called for `storage`.
    pub(crate) fn follow(&self, storage: &str) -> watch::Receiver<()> {
        let mut definitions = self.definitions.lock();
        // Those of definitions that are gone.
        definitions.retain(|_, sender| sender.receiver_count() > 0);
        let sender = definitions.entry(storage.to_owned()).or_default();
        sender.subscribe()
    }

    /// Ends the watches of the resource of `storage`: what is served of it has changed.
    pub(crate) fn end_watches(&self, storage: &str) {
        self.definitions.lock().remove(storage);
    }

    /// The current state.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.read().clone()
    }

    /// One resource.
    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<Arc<ResourceInfo>> {
        self.served.read().find(group, version, plural)
    }

    /// The resource of this storage, served or not.
    pub(crate) fn of_storage(&self, storage: &str) -> Option<Arc<ResourceInfo>> {
        self.served.read().of_storage(storage)
    }

    /// Replaces all versions of the resource of `storage` with `resources` (none: removes it).
    pub(crate) fn set(&self, storage: &str, resources: Vec<ResourceInfo>) {
        let mut guard = self.served.write();
        let mut served = Served::clone(&guard);
        for group in &mut served.groups {
            for version in &mut group.versions {
                version
                    .resources
                    .retain(|_, info| !(info.storage == storage && info.custom));
            }
        }
        served.unserved.remove(storage);
        for info in resources {
            if info.served {
                served.add(info);
            } else {
                served.unserved.insert(storage.to_owned(), Arc::new(info));
            }
        }
        served.settle();
        *guard = Arc::new(served);
    }
}

// === impl Served ===

impl Served {
    /// One resource.
    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<Arc<ResourceInfo>> {
        self.version(group, version)?.resources.get(plural).cloned()
    }

    /// One version of a group.
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?
            .versions
            .iter()
            .find(|found| found.name == version)
    }

    /// One group.
    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// All resources, in the order of discovery.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.groups
            .iter()
            .flat_map(|group| &group.versions)
            .flat_map(|version| version.resources.values())
    }

    /// The resource of this storage, in its storage version. The core form of Events
    /// wins.
    pub(crate) fn of_storage(&self, storage: &str) -> Option<Arc<ResourceInfo>> {
        let mut all = self.all().filter(|info| !info.storage.is_empty());
        all.find(|info| info.storage == storage && info.storage_version)
            .or_else(|| self.unserved.get(storage))
            .cloned()
    }

    /// The served version of `kind`, in `group` and `version`.
    pub(crate) fn of_kind(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Option<&Arc<ResourceInfo>> {
        self.version(group, version)?
            .resources
            .values()
            .find(|info| info.kind == kind)
    }

    /// Why an object of the type `api_version` and `kind` is not one of the built-in resource `info`, in the words of Go's
    /// decoder: whether the type is known, and the text.
    pub(crate) fn other_type(
        &self,
        info: &ResourceInfo,
        expected: &str,
        api_version: &str,
        kind: &str,
    ) -> (bool, String) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let known = self
            .of_kind(group, version, kind.strip_suffix("List").unwrap_or(kind))
            .is_some_and(|known| !known.custom)
            || (api_version == "v1" && connect::Kind::named(kind).is_some());
        if !known {
            let (kind, version) = (quote(kind), quote(api_version));
            let why = format!("no kind {kind} is registered for version {version} in {SCHEME}");
            return (false, why);
        }
        let package = match info.group.as_str() {
            "" => "core",
            group => group.split('.').next().unwrap_or_default(),
        };
        let why =
            format!("converting ({version}.{kind}) to ({package}.{expected}): unknown conversion");
        (true, why)
    }

    fn add(&mut self, info: ResourceInfo) {
        let at = match self
            .groups
            .iter()
            .position(|group| group.name == info.group)
        {
            Some(at) => at,
            None => {
                self.groups.push(Group {
                    name: info.group.clone(),
                    versions: Vec::new(),
                });
                self.groups.len() - 1
            }
        };
        let versions = &mut self.groups[at].versions;
        let at = match versions
            .iter()
            .position(|version| version.name == info.version)
        {
            Some(at) => at,
            None => {
                versions.push(Version {
                    name: info.version.clone(),
                    resources: BTreeMap::new(),
                });
                versions.len() - 1
            }
        };
        versions[at]
            .resources
            .insert(info.plural.clone(), Arc::new(info));
    }

    /// Drops empty groups and versions, sorts groups as a real server and versions by preference.
    fn settle(&mut self) {
        for group in &mut self.groups {
            group
                .versions
                .retain(|version| !version.resources.is_empty());
            group.versions.sort_by(|one, other| {
                version_rank(&other.name)
                    .cmp(&version_rank(&one.name))
                    .then_with(|| one.name.cmp(&other.name))
            });
        }
        self.groups.retain(|group| !group.versions.is_empty());
        self.groups.sort_by_cached_key(|group| {
            // Those of definitions follow by name.
            let built_in = &Data::get().versions;
            let place = built_in.iter().position(|one| one.group == group.name);
            (place.unwrap_or(built_in.len()), group.name.clone())
        });
    }
}

/// Kubernetes' order of versions: GA before beta before alpha, higher numbers first.
pub(crate) fn version_rank(version: &str) -> (u8, u32, u32) {
    let parse = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let rest = &rest[digits..];
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        let (stage, number) = rest
            .strip_prefix("beta")
            .map(|number| (2, number))
            .or_else(|| rest.strip_prefix("alpha").map(|number| (1, number)))?;
        Some((stage, major, number.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_kubernetes_prefers_them() {
        let mut versions = vec!["v1alpha1", "v2", "v1beta2", "foo", "v1", "v1beta10", "v11"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_rank(version)));
        assert_eq!(
            versions,
            ["v11", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]
        );
    }
}
