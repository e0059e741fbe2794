//! The rules a client depends upon, asked of the server in process, mostly under paused time.

mod access;
mod answers;
mod autoscalers;
mod clients;
mod connections;
mod control;
mod conversions;
mod definitions;
mod deletions;
mod faults;
mod histories;
mod kinds;
mod lists;
mod protobuf;
mod raw;
mod restarts;
mod restores;
mod shared_conversions;
mod storage_versions;
mod valid;
mod watches;
mod writes;
