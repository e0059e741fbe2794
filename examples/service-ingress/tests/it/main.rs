//! The program as its users run it, one test binary.

mod behaviour;
mod kubectl;
