//! A filter by bearer token, as controller-runtime's `WithAuthenticationAndAuthorization` is one.
//!
//! [`Access`] requests two reviews from a [`Reviewer`]: the user of a token, and whether that user may send the
//! request's method to its path. In a cluster the reviewer is an API server: a TokenReview, and a SubjectAccessReview
//! of the path. The account of the program needs `create` on `tokenreviews` and `subjectaccessreviews`; a scraper needs
//! `get` on the path, such as `nonResourceURLs: ["/metrics"]`.
//!
//! | case | result |
//! |---|---|
//! | no token, or a token without a user | 401 (controller-runtime: 500 for a wrong one) |
//! | not allowed | 403 |
//! | the reviewer fails | 500 |
//! | the user of a token, or that it has none | is cached for 1 minute |
//! | a review that finds no user and reports an error | is cached for 2 seconds (apiserver: not at all, `cacheErrs` is off). An authenticator that fails for a moment is reported in the same way as a wrong token |
//! | allowed | is cached for 5 minutes; not allowed, for 30 seconds |
//! | a review | has 10 s; after that it is not tried again |
//! | a review that fails with a transient error | is tried five times: after 0.5 s, then 1.5 times as long each, and up to a fifth more |
//!
//! At most 4096 tokens and 4096 decisions are cached, by digest; at most 16 reviews run at once.

mod cache;
mod filter;
mod refusal;
mod reviewer;
mod user;

pub use filter::Access;
pub use refusal::Refusal;
pub use reviewer::{AccessReview, ReviewError, Reviewer, TokenReview};
pub use user::User;
