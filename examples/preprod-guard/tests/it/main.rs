//! The answers of the webhook: behaviours, defects of the original (A) and bypasses (B).

mod behaviours;
mod bypasses;
mod scenario;
