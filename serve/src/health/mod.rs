//! `/healthz` and `/readyz`, answered as controller-runtime's healthz package does.
//!
//! Each is a set of named checks. When all pass, the answer is `200 ok`, or the list of checks with `?verbose`. A failure is
//! `500` with the list; it names the failed checks and withholds their reasons, since the paths are open to all. The path
//! of one check (`/readyz/informers`) does give its reason. `?exclude=name` leaves a check out.
//!
//! ```
//! use reeve_serve::health::Health;
//! use reeve_serve::http::Server;
//! # async fn example() -> std::io::Result<()> {
//! let health = Health::new();
//! health.ready().add("queue", || Ok(()));
//! let server = Server::bind("health", ([0, 0, 0, 0], 8081).into(), health.handler()).await?;
//! # Ok(())
//! # }
//! ```

mod checks;
mod endpoints;

pub use checks::{CHECK_TIMEOUT, Checks};
pub use endpoints::Health;
