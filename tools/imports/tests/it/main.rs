//! What cargo reports about the packages of the workspace.

mod packages;
