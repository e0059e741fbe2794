//! Certificates that a program makes and renews by itself: an authority and a certificate in a Secret, and the bundles of the
//! configurations that trust them.
//!
//! [`Rotation`] runs on every replica, without leader election. Each look, every 10 s, reads the configurations and the
//! Secret; a pure function decides, and a write names the version that it was decided on. Of two replicas that write at
//! once, one conflicts and decides again.
//!
//! # The steps
//! | step | when | then |
//! |---|---|---|
//! | create | there is no Secret | an authority and a certificate |
//! | confirm | a replica has seen an authority in every configuration for [`Lifetimes::propagation`] | the Secret records it |
//! | announce | the authority is at two thirds of its life | another one joins the bundle, and signs from now on |
//! | issue | the certificate is at two thirds of its life, or not for all names, or of a replaced authority; if the signer is another one than before, every configuration has trusted it for [`Lifetimes::propagation`] | another certificate |
//! | retire | [`Lifetimes::overlap`] after that | the bundle has the newest authority alone |
//!
//! A replica that starts is ready at its first look, if every configuration has the authority and the Secret confirms it
//! for each of them. Otherwise it waits for [`Lifetimes::propagation`]: at a first installation, and after a configuration
//! was added or lost its bundle.
//!
//! A replica serves a certificate of another authority only when every configuration trusts it, unless its own has ended. The
//! bundle of the Secret is written into each entry of a configuration that leads to the Service. A manifest that is applied
//! again without a bundle gets it back at the next look. Other entries are not changed.
//!
//! # Faults
//! | fault | answer |
//! |---|---|
//! | the Secret is deleted, damaged or emptied | a replica restores its content from memory; if no replica has it, another one is made after [`Lifetimes::patience`] |
//! | the Secret is rolled back | its content is older than the memory of a replica, by a number that grows with each write: restored, and the authorities of both stay trusted |
//! | a crash at any point | any replica goes on, because the state is in the Secret |
//! | the API server cannot be reached | the certificate in use stays; a warning comes before it ends |
//! | the clock jumps | times of certificates are compared at each look; waits are measured with the time since boot |
//! | clocks of replicas differ | up to an hour from the API server's, which a certificate's beginning allows for; a certificate of the future is replaced |
//!
//! Each fault is a [`Notice`] for the log and for a [`Journal`].
//!
//! # Rights
//! `get`, `create` and `update` of Secrets in the namespace; `get` and `patch` of the configurations that were named.

mod contents;
mod issue;
mod lifetimes;
mod machine;
mod material;
mod metrics;
mod notice;
mod rotation;
mod targets;

pub use lifetimes::Lifetimes;
pub use metrics::RotationMetrics;
pub use notice::{Journal, Notice};
pub use rotation::{LOOK_EVERY, Rotation};
