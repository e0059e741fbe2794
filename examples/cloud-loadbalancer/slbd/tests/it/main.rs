//! The cloud over HTTP and as a process, its data plane, and the vendor's SDKs.

mod api;
mod dataplane;
mod killed;
mod process;
mod sdk;
