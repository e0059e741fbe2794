//! Webhooks as their handlers, the API server and a client over TLS see them.

mod admission;
mod client;
mod conversion;
mod migration;
mod rollout;
mod rotation;
mod server;
