//! The program as its users run it, on the built-in API server under paused time, with a cloud in memory.

mod effects;
mod world;

mod contract;
mod crashes;
mod defects;
mod deletion;
mod drift;
mod elbv2;
mod explored;
mod faults;
mod kubectl;
mod nodes;
mod process;
mod readme;
mod reuse;
mod rights;
mod slb;
mod surplus;
mod sync;
