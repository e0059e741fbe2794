//! Measurements of an informer: counters and durations. Gauges are read from its health instead
//! ([`Gauges`](crate::Gauges)).

mod measurement;
mod recorder;

pub use measurement::{InformerMetrics, Measurement};
pub(crate) use recorder::Recorder;
