//! The operator as its users run it, end to end: a process with the Deployment's arguments and its ServiceAccount's
//! token, an API server, a gateway process, kubectl.
//!
//! Every case runs against the built-in API server, and, when `KUBEBUILDER_ASSETS` names the binaries
//! (`eval "$(tools/kube-apiserver/build.sh)"`), against kube-apiserver + etcd + kube-controller-manager with RBAC.
//! Without them those cases are skipped or fail, see `reeve_apiserver::assets`.

/// Makes two tests of each async case: one on the built-in server, one on a real control plane.
macro_rules! on_both_servers {
    ($($case:ident),+ $(,)?) => {
        mod builtin {
            $(#[test] fn $case() { $crate::world::run($crate::cluster::Kind::Builtin, super::$case); })+
        }
        mod real {
            $(#[test] fn $case() { $crate::world::run($crate::cluster::Kind::Real, super::$case); })+
        }
    };
}

mod bouncer;
mod builtin;
mod cluster;
mod gateway;
mod kubectl;
mod namespace;
mod process;
mod recorder;
mod world;

mod audit;
mod config;
mod edge;
mod faults;
mod installed;
mod lifecycle;
mod reload;
mod rendered;
mod restart;
mod senders;
mod sets;
mod takeover;
mod triggers;
