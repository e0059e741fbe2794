//! The HTTP layer: paths, queries, media types, bodies, answers.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod duration;
pub(crate) mod media;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod warnings;
