//! A cloud controller manager for Services of type LoadBalancer: each gets a load balancer of a cloud, with listeners for
//! its ports and the nodes or Pods behind them.
//!
//! | layer | module |
//! |---|---|
//! | the cloud's calls, one for each attribute | [`provider`] |
//! | load balancers as the cluster wants them and as the cloud has them | [`model`], [`annotations`], [`backends`], [`desired`] |
//! | the difference of the two, as a list of calls | [`diff`], [`plan`] |
//! | the calls, and their failures as one error | [`applier`] |
//! | the marks of ownership, and the hash that saves comparisons | [`identity`], [`hash`] |

pub mod annotations;
pub mod applier;
pub mod backends;
pub mod desired;
pub mod diff;
pub mod hash;
pub mod identity;
pub mod model;
pub mod plan;
pub mod provider;
