//! A load balancer cloud in one process, for controllers of load balancers and their tests.
//!
//! The wire is the RPC API that Alibaba Cloud publishes for its classic load balancers (SLB, version 2014-05-15), so the
//! vendor's SDKs are its clients. The rules are the awkward ones: client tokens, deletion protection, a load balancer that is not ready
//! when its creation is answered, lists that lag behind, paging, throttling, quotas, refusals of what is in use.
//!
//! | part | module |
//! |---|---|
//! | the rules, a pure function of state, time and call | [`cloud`] |
//! | HTTP: signatures, error bodies, faults, the admin port | [`server`] |
//! | the state in one file that survives `kill -9` | [`store`] |
//! | HAProxy on loopback addresses | [`dataplane`] |
//! | simulated nodes with node ports, and Pod processes | [`nodesim`] |
//! | a client with both signatures | [`client`] |
//! | shares of the files that the process may open | [`files`] |
//! | the texts of `slbctl` | [`ctl`] |

pub mod client;
pub mod cloud;
pub mod ctl;
pub mod dataplane;
pub mod files;
pub mod nodesim;
pub mod parameters;
pub mod server;
pub mod signature;
pub mod store;
