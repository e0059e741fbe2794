//! The verbs: the effects of GET, LIST, WATCH, POST, PUT, PATCH and DELETE on stored objects.

mod apply;
pub(crate) mod assignment;
pub(crate) mod continuation;
pub(crate) mod conversion;
pub(crate) mod create;
pub(crate) mod delete;
mod frames;
pub(crate) mod list;
pub(crate) mod metadata;
pub(crate) mod patch;
pub(crate) mod pipeline;
pub(crate) mod prepare;
pub(crate) mod present;
pub(crate) mod read;
mod replicas;
pub(crate) mod scale;
pub(crate) mod selection;
pub(crate) mod update;
pub(crate) mod watch;
mod written;

pub(crate) use written::{Content, Written};
