//! Model tests: three candidates against one server, each behind a network of its own, with every fault of the crate's
//! documentation. At no moment may the fences of two let a write through.
//!
//! * [`machine`] runs the state machine alone, in a simulated world without tasks and timers: thousands of histories;
//! * [`shell`] runs whole electors against the scripted API server under paused time: few histories, but every line.
//!
//! A process can be paused in the middle (SIGSTOP) and resumed. The network is separate: a request that has left a process
//! arrives whatever happens to the process.

mod faults;
mod machine;
mod network;
mod process;
mod server;
mod shell;
mod shell_world;
mod world;
