//! The IPBlock kind, `ops.yiiong.top/v1`: the spec that users write, the status that the operator writes. Beside it
//! BlockList, for many bans in one object.
//!
//! Group, version, kind, field names, phases and results are those of the original operator, so that
//! its objects, clients and dashboards keep working. What is new is optional. Reading is lenient
//! (an unknown phase is kept as text), writing is strict; the rules that the API server enforces
//! (CEL, Kubernetes 1.31) are checked again by [`crate::decide`].

mod annotation;
mod ipblock;
mod list;
mod schema;
mod status;

pub use annotation::{
    ALERT_ANNOTATION, ALERTS, Alert, FINALIZER, INTENT, Intent, Place, RELEASE_ANNOTATION,
    RESOLVED, RETENTION_ANNOTATION, Standing, TRIGGER_ANNOTATION,
};
pub use ipblock::{IPBlock, IPBlockSpec};
pub use list::{
    BlockList, BlockListSpec, BlockListStatus, EngineShare, EntryRefusal, LAST_END, ListEntry,
    MOST_ENTRIES, SOURCE_LABEL,
};
pub use schema::{crd, crd_without_rules, crds, crds_without_rules};
pub(crate) use status::write as write_time;
pub use status::{
    Condition, ConditionStatus, EngineStatus, Escalated, IPBlockStatus, Phase, ResultCode,
    UNBLOCKED, condition,
};

/// The API group.
pub const GROUP: &str = "ops.yiiong.top";
/// The API version.
pub const VERSION: &str = "v1";
