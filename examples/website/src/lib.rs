//! Websites: a kind of its own and the controller for it.

pub mod api;
pub mod controller;
