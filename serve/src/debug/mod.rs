//! The frame of debug pages: their queries, their formats and their access.
//!
//! | query | means |
//! |---|---|
//! | `format=json`, `text` or `html` | the format; by default the first of them that `Accept` names, else text |
//! | `limit=N` | the most items of a list: 100 by default, at most 1000 |
//! | `name=X` | only the reports of this name |
//! | `refresh=N` | a browser loads the HTML page again every N seconds, at least 2 |
//!
//! HTML pages have no script and load nothing: their policy (`Content-Security-Policy`) allows the one style sheet in them, by
//! its hash.
//!
//! Debug pages name objects and show errors. A server behind the filter of [`access`](crate::access) shows them to every user
//! that may get their path. A server without it shows them only to clients of the same network namespace, which
//! `kubectl port-forward` is one of. See [`Pages`].

mod control;
mod document;
mod page;
mod query;

pub use control::{Change, Control};
pub use document::{Link, POLICY, document, escaped};
pub use page::{Page, Pages, links, routes};
pub use query::{Format, Query, Shown};
