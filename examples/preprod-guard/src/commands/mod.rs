//! The commands beside `run`. Each returns its output.

mod certs;
mod check;
mod doctor;
mod kubeconfig;
mod rights;
mod signing;
mod tail;
mod times;
mod uninstall;

pub use certs::{Names, authority_and_leaf, client, write_key};
pub use check::check;
pub use doctor::{Finding, doctor, version};
pub use kubeconfig::{Access, Credentials, access_of, kubeconfig, token, verify};
pub use signing::signed;
pub use tail::{Filter, Tail};
pub use uninstall::{Removal, Scope, uninstall};
