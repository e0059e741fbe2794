//! The plugin as a process, against managers with the built-in API server, with a scripted kubectl, and against answers
//! that no manager gives.

mod answers;
mod plugin;
mod pods;
mod program;
