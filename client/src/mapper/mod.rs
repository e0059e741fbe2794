//! Maps the name of a kind to its endpoint, by discovery (controller-runtime: `apiutil.NewDynamicRESTMapper`).
//!
//! Two requests read all kinds where the server offers aggregated discovery (1.26 and later), else two and one for each
//! version of the requested group. Results are cached; a lookup that misses repeats the discovery, so definitions that
//! are added at run time are found at once. When the server answers that it does not serve a path, the results of that
//! group are dropped, so a removed version is not offered again.

mod discovery;
mod known;
mod lookup;
#[cfg(test)]
mod tests;

pub(crate) use known::Known;
pub use lookup::Mapper;
