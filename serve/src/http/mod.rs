//! A small HTTP server with a limit on everything, and the parts for its handlers.
//!
//! ```no_run
//! use reeve_serve::http::{CancellationToken, Router, Server, StatusCode, text};
//! # async fn example(stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! let router = Router::new().route("/hello", |_| async { text(StatusCode::OK, "hello\n") })?;
//! let server = Server::bind("hello", ([0, 0, 0, 0], 8082).into(), router.into_handler()).await?;
//! server.run(stop).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Limits`] bounds the connections, the headers, the times and the HTTP/2 requests. The body of a request is left to the
//! handler, which reads it within a [`Budget`]: a request without credentials can be answered before its body is read.

mod activity;
mod answer;
mod body;
mod budget;
mod client_certificate;
mod connection;
mod driven;
mod limits;
mod router;
mod running;
mod server;
mod tls;

pub use ::http::{Method, StatusCode};
pub use hyper::body::Incoming;
pub use tokio_util::sync::CancellationToken;

pub use answer::{Answer, Handler, Peer, Request, answer, hang_up, text};
pub use body::Body;
pub use budget::{BodyError, Budget, WholeBody};
pub use client_certificate::ClientCertificate;
pub use limits::Limits;
pub use router::{RouteError, Router};
pub use running::Running;
pub use server::{Server, listen};
