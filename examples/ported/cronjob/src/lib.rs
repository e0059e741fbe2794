//! A [`CronJob`] starts Jobs on a schedule: the port of the kubebuilder book's tutorial, an example of controller-runtime.
//!
//! [`plan`] decides and is pure: it gets the CronJob, its Jobs and the time. `reconcile` reads the caches and writes.
//!
//! `controller/guide/from-controller-runtime.md` walks through the port.

mod cron_job;
pub mod plan;
mod reconcile;
mod schedule;

pub use cron_job::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus};
pub use reconcile::{Error, add};
pub use schedule::{InvalidSchedule, Schedule};

/// The name of the controller in logs, metrics and Events.
pub const NAME: &str = "cronjob";

/// The annotation of a Job with the time of its run, in RFC 3339.
pub const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";
