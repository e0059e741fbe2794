//! Ownership of fields: what each write makes of `metadata.managedFields`, and the merges of server-side apply.
//!
//! Every write comes here once: creations, updates and patches with the object as it was decoded and defaulted
//! ([`Writer::update`]), applies with the applied object ([`Writer::apply`]). The rules are in `apply`.

mod admitted;
mod built_in;
mod conversions;
mod ignored;
mod kinds;
mod scale;
mod times;
mod writer;

pub(crate) use admitted::{as_decoded, leave_shared};
pub(crate) use conversions::Conversions;
pub(crate) use kinds::schema;
pub(crate) use scale::ScaleWriter;
pub(crate) use times::keep_times;
pub(crate) use writer::{API_SERVER, CONTROLLERS, Writer};
