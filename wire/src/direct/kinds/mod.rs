//! The messages of the kinds that are read directly. A test compares them with the table.

mod core;
mod pods;
mod volumes;
mod workloads;

/// Every message.
#[cfg(test)]
pub(super) fn described() -> impl Iterator<Item = &'static super::described::Described> {
    [
        core::DESCRIBED,
        pods::DESCRIBED,
        volumes::DESCRIBED,
        workloads::DESCRIBED,
    ]
    .into_iter()
    .flatten()
}
