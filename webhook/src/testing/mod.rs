//! A kit for tests of webhooks: calls without a server, and round trips of conversions.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use reeve_webhook::Webhook;
//! use reeve_webhook::admission::{Request, Verdict};
//! use reeve_webhook::testing::Call;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let locked = Webhook::validating("locked.example.com", |request: Request<ConfigMap>| async move {
//!     if request.either(|map| map.immutable == Some(true)) && request.user.username != "admin" {
//!         return Verdict::deny("the map is locked");
//!     }
//!     Verdict::allow()
//! });
//! let open = ConfigMap::default();
//! let closed = ConfigMap { immutable: Some(true), ..ConfigMap::default() };
//! for (call, allowed) in [
//!     (Call::create(&open), true),
//!     (Call::create(&closed), false),
//!     (Call::update(&closed, &open), false),
//!     (Call::delete(&closed), false),
//!     (Call::delete(&closed).user("admin"), true),
//! ] {
//!     assert_eq!(call.to(&locked).await.allowed(), allowed, "{call}");
//! }
//! # }
//! ```

mod call;
mod filled;
mod in_process;
mod reply;
mod round_trips;

pub use call::Call;
pub use filled::filled;
pub use in_process::InProcess;
pub use reply::Reply;
pub use round_trips::{Loss, RoundTrips};
