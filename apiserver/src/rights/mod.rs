//! The rights that recorded requests need, and their comparison with roles in YAML.
//!
//! A test runs a program with all rights, takes the rights that its requests needed, and compares them with the roles
//! that the program is installed with:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_client::{Api, api::ListParams};
//! use reeve_apiserver::ApiServer;
//! use reeve_apiserver::rights::Rights;
//!
//! let server = ApiServer::builder().start().await?;
//! // The program under test.
//! let maps: Api<ConfigMap> = Api::namespaced(server.client(), "shop");
//! maps.list(&ListParams::default()).await?;
//! maps.get_opt("settings").await?;
//!
//! let rights = Rights::of(&server.requests().all());
//! rights.check("
//! apiVersion: rbac.authorization.k8s.io/v1
//! kind: Role
//! metadata: {name: program, namespace: shop}
//! rules:
//!   - apiGroups: [\"\"]
//!     resources: [configmaps]
//!     verbs: [get, list]
//! ");
//! # Ok(())
//! # }
//! ```
//!
//! [`Rights::check`] panics when a request is not allowed. Its message has the rules to add, as YAML to paste, and the
//! role to add them to:
//!
//! ```text
//! the requests need more than the roles allow
//! add to Role shop/program:
//!   # for delete /api/v1/namespaces/shop/configmaps/settings
//!   - apiGroups: [""]
//!     resources: [configmaps]
//!     verbs: [delete]
//! ```
//!
//! [`Rights::check_exactly`] also panics when a part of a rule was not used. [`Rights::compare`] returns both lists.
//!
//! # What counts
//! * Every request counts, also one that was refused or had no answer. A rule allows it as in the real authorizer
//!   ([`Policy::authorize`](crate::rbac::Policy::authorize)): wildcards and aggregated ClusterRoles count.
//! * A watch that begins with a list (`sendInitialEvents`) needs `list`, too: the client lists when the server refuses
//!   it.
//! * Requests that every authenticated user may send do not count: discovery, the version, reviews of own rights.
//! * Rules with `resourceNames` are compared by name. The rules to add name objects only where a rule of the roles
//!   restricts that resource by name.
//!
//! # What the requests do not show
//! * Rights of code that the test did not run. One test should run a whole life: create, change, failures, delete,
//!   restart, election.
//! * Rights in other namespaces. Create the objects of the test in another namespace than that of the program;
//!   otherwise a Role of that namespace suffices where the cluster needs a ClusterRole.
//! * Rights that only an admission plugin checks. An owner reference with `blockOwnerDeletion` needs `update` of the
//!   owner's `finalizers` where the plugin `OwnerReferencesPermissionEnforcement` is on (OpenShift).

mod comparison;
mod manifest;
mod needed;
mod rules;

pub use comparison::{Comparison, Part};
pub use manifest::{Manifest, ManifestError};
pub use needed::Rights;

#[cfg(test)]
mod tests;
