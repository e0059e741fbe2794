//! A real control plane for tests: etcd and kube-apiserver, and kube-controller-manager if enabled.
//!
//! The binaries come from the directory in the environment variable `KUBEBUILDER_ASSETS`
//! (`tools/kube-apiserver/build.sh` builds them and prints the line that sets it). Everything runs on
//! free loopback ports with its data in a directory of its own, and ends with the [`ControlPlane`]:
//! also when the test panics, and when the test process is killed.
//!
//! It has the same interface as the built-in server, so that one test runs against either:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use reeve_apiserver::control_plane::ControlPlane;
//! let Some(control_plane) = ControlPlane::from_assets().await? else {
//!     return Ok(()); // skipped, see `reeve_apiserver::assets`
//! };
//! let client = control_plane.client()?;
//! println!("{}", client.apiserver_version().await?.git_version);
//! # Ok(())
//! # }
//! ```
//!
//! # Time
//! These are processes on the machine's clock: a runtime with paused time cannot wait for them.

mod builder;
mod credentials;
mod directory;
mod error;
mod plane;
mod process;
mod reset;

pub use builder::Builder;
pub use credentials::ADMIN_USER;
pub use error::{ASSETS_VARIABLE, Error};
pub use plane::ControlPlane;
