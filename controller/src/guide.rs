//! The guides: a controller from nothing to its tests, and what each part of it can do.
//!
//! | guide | about |
//! |---|---|
//! | [`tutorial`] | the first hour: a kind of your own, its controller, its tests, its manifests |
//! | [`controller`] | a controller in a hundred lines, its `Cargo.toml`, and what follows from its rules |
//! | [`small_programs`] | a kind without a type, and a source outside of the cluster |
//! | [`cache_options`] | what is cached, in which form, and how it is read |
//! | [`sharing_caches`] | the users of one cache: controllers, views, handlers, clusters, processes |
//! | [`find_the_bug`] | a controller with a bug, the explorer that finds it, and the fix |
//! | [`scaling`] | what bounds a controller, and what to change |
//! | [`security`] | rights, input, two leaders, servers, the image |
//! | [`servers`] | probes, metrics, debug pages, and access to them |
//! | [`monitoring`] | a Grafana dashboard and alerts for any program, and what to do about each |
//! | [`from_controller_runtime`] | the names of controller-runtime, its CronJob ported, and the differences |
//! | [`from_kube_rs`] | the names of kube-rs, its example ported, and the differences |
//!
//! The queue has [a guide of its own](https://docs.rs/reeve-workqueue/latest/reeve_workqueue/guide/), and so has the informer, in `reeve_informer::guide`,
//! with the page for client-go.

#[doc = "[server_side_apply]: https://docs.rs/crate/reeve-controller/latest/source/examples/server_side_apply.rs\n[external_source]: https://docs.rs/crate/reeve-controller/latest/source/examples/external_source.rs\n[multi_queue]: https://docs.rs/crate/reeve-controller/latest/source/examples/multi_queue.rs\n[predicate]: crate::predicate\n[finalizer]: crate::finalizer\n[resync]: crate::guide::scaling#when-to-switch-on-a-resync\n[servers]: crate::guide::servers\n\n"]
#[doc = include_str!("../guide/controller.md")]
pub mod controller {}

#[doc = include_str!("../guide/cache-options.md")]
pub mod cache_options {}

#[doc = "[tutorial]: crate::guide::tutorial\n\n"]
#[doc = include_str!("../guide/small-programs.md")]
pub mod small_programs {}

#[doc = "[cache_options]: crate::guide::cache_options\n\n"]
#[doc = include_str!("../guide/sharing-caches.md")]
pub mod sharing_caches {}

#[cfg(feature = "testing")]
#[doc = "[Explorer]: crate::testing::explore::Explorer\n[first]: crate::testing::explore::Explorer::first\n[remember]: crate::testing::explore::Explorer::remember\n\n"]
#[doc = include_str!("../guide/find-the-bug.md")]
pub mod find_the_bug {}

#[doc = "[cache_options]: crate::guide::cache_options\n[monitoring]: crate::guide::monitoring\n\n"]
#[doc = include_str!("../guide/scaling.md")]
pub mod scaling {}

#[doc = "[ship_it]: crate::guide::tutorial::ship_it\n[servers]: crate::guide::servers\n[election]: https://docs.rs/reeve-election\n\n"]
#[doc = include_str!("../guide/security.md")]
pub mod security {}

#[doc = "[options]: crate::options::Options\n\n"]
#[doc = include_str!("../guide/servers.md")]
pub mod servers {}

#[doc = "[servers]: crate::guide::servers\n[files]: https://docs.rs/crate/reeve-controller/latest/source/monitoring/\n\n"]
#[doc = include_str!("../guide/monitoring.md")]
pub mod monitoring {}

#[doc = "[controller]: crate::guide::controller\n[servers]: crate::guide::servers\n[informer]: https://docs.rs/reeve-informer/latest/reeve_informer/guide/from_client_go/\n[queue]: https://docs.rs/reeve-workqueue/latest/reeve_workqueue/guide/\n\n"]
#[doc = include_str!("../guide/from-controller-runtime.md")]
pub mod from_controller_runtime {}

#[doc = "[controller]: crate::guide::controller\n[servers]: crate::guide::servers\n\n"]
#[doc = include_str!("../guide/from-kube-rs.md")]
pub mod from_kube_rs {}

#[doc = "[your_own_kind]: crate::guide::tutorial::your_own_kind\n[reconcile]: crate::guide::tutorial::reconcile\n[test_it]: crate::guide::tutorial::test_it\n[ship_it]: crate::guide::tutorial::ship_it\n[look_at_it]: crate::guide::tutorial::look_at_it\n\n"]
#[doc = include_str!("../guide/tutorial/README.md")]
pub mod tutorial {
    #[doc = "[reconcile]: crate::guide::tutorial::reconcile\n\n"]
    #[doc = include_str!("../guide/tutorial/1-your-own-kind.md")]
    pub mod your_own_kind {}

    #[doc = "[test_it]: crate::guide::tutorial::test_it\n[cache_options]: crate::guide::cache_options\n\n"]
    #[doc = include_str!("../guide/tutorial/2-reconcile.md")]
    pub mod reconcile {}

    #[doc = "[ship_it]: crate::guide::tutorial::ship_it\n\n"]
    #[doc = include_str!("../guide/tutorial/3-test-it.md")]
    pub mod test_it {}

    #[doc = "[look_at_it]: crate::guide::tutorial::look_at_it\n\n"]
    #[doc = include_str!("../guide/tutorial/4-ship-it.md")]
    pub mod ship_it {}

    #[doc = "[cache_options]: crate::guide::cache_options\n[servers]: crate::guide::servers\n[monitoring]: crate::guide::monitoring\n[controller]: crate::guide::controller\n[from_controller_runtime]: crate::guide::from_controller_runtime\n[from_kube_rs]: crate::guide::from_kube_rs\n\n"]
    #[doc = include_str!("../guide/tutorial/5-look-at-it.md")]
    pub mod look_at_it {}
}
