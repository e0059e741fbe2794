//! The plugin as a process, against an API server, with the operator in this process.
//! The tests run on the built-in server; the commands of the guide also run on kube-apiserver with etcd.

mod ban;
mod files;
mod guide;
mod kubectl;
mod questions;
mod rights;
mod world;
