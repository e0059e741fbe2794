//! The cloud over HTTP and as a process, its data plane, and the vendor's SDKs.

mod api;
mod client;
mod dataplane;
mod killed;
mod left_out;
mod process;
mod sdk;
mod site;
mod tls;
