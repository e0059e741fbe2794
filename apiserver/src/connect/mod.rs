//! Connections to Pods, Services and nodes: `exec`, `attach`, `portforward` and `proxy`.
//!
//! A real server asks admission about the options of such a request, with the operation CONNECT, and then passes the request
//! on to a kubelet or a Pod. This server does the same up to there: routes, rights, options, admission and the refusals of
//! targets that cannot be reached. It has no network to nodes, so a request that gets that far fails as on a real
//! server whose node does not answer.

mod options;
mod run;
mod target;

pub(crate) use options::{Kind, decode};
pub(crate) use run::answer;
