//! Model tests: three candidates against one server, each behind a network of its own, with faults of networks, of the
//! server, of processes and of clocks. At no moment may the fences of two let a write through. What others do to the lease
//! (a deletion, an empty holder, a second process of one identity) has tests of its own: the guarantee is weaker there.
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
