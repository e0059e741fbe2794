//! Invalid uses of a builder, each proven not to compile by a documentation test.

/// Code that does not compile, each beside code that differs in one thing and compiles.
///
/// ```compile_fail,E0599
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use reeve_controller::Controller;
/// let _ = Controller::builder("twice").for_kind::<ConfigMap>().for_kind::<Secret>();
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use reeve_controller::Controller;
/// let _ = Controller::builder("once").for_kind::<ConfigMap>().owns::<Secret>();
/// ```
/// ```compile_fail,E0599
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use reeve_controller::Controller;
/// let _ = Controller::builder("no kind").owns::<Secret>();
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use reeve_controller::Controller;
/// let _ = Controller::builder("its").for_kind::<ConfigMap>().owns::<Secret>();
/// ```
/// ```compile_fail,E0599
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::Request;
/// let _ = Controller::typed::<String>("texts").for_kind::<ConfigMap>();
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::Request;
/// let _ = Controller::typed::<Request>("keys").for_kind::<ConfigMap>();
/// ```
/// ```compile_fail,E0599
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::handler::map;
/// let texts = Controller::typed::<String>("texts").watches(map(texts));
/// # fn texts(_: &ConfigMap) -> Vec<String> { Vec::new() }
/// let _ = texts.owns::<ConfigMap>();
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::handler::map;
/// let texts = Controller::typed::<String>("texts").watches(map(texts));
/// # fn texts(_: &ConfigMap) -> Vec<String> { Vec::new() }
/// let _ = texts.warm_up(true);
/// ```
/// ```compile_fail,E0599
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// let _ = Controller::builder("too soon").optional().for_kind::<ConfigMap>();
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// let _ = Controller::builder("in time").for_kind::<ConfigMap>().optional();
/// ```
/// ```compile_fail,E0599
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::predicate::generation_changed;
/// let _ = Controller::builder("too soon").with_predicate(generation_changed()).for_kind::<ConfigMap>();
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::predicate::generation_changed;
/// let _ = Controller::builder("in time").for_kind::<ConfigMap>().with_predicate(generation_changed());
/// ```
/// ```compile_fail,E0631
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use reeve_controller::Controller;
/// # use reeve_informer::Event;
/// let all = |_: &Event<Secret>| true;
/// let _ = Controller::builder("another's").for_kind::<ConfigMap>().with_predicate(all);
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use reeve_controller::Controller;
/// # use reeve_informer::Event;
/// let all = |_: &Event<ConfigMap>| true;
/// let _ = Controller::builder("its").for_kind::<ConfigMap>().with_predicate(all);
/// ```
/// ```compile_fail,E0599
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::controller::BuildError;
/// # use reeve_controller::reconcile::{Error, function};
/// # use reeve_controller::{Context, Outcome, Request};
/// # let nothing = || function(|_: Context, _: Request| async { Ok::<_, Error>(Outcome::done()) });
/// let builder = Controller::builder("twice").for_kind::<ConfigMap>();
/// let _ = builder.complete(nothing())?.complete(nothing());
/// # Ok::<(), BuildError>(())
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::controller::BuildError;
/// # use reeve_controller::reconcile::{Error, function};
/// # use reeve_controller::{Context, Outcome, Request};
/// # let nothing = || function(|_: Context, _: Request| async { Ok::<_, Error>(Outcome::done()) });
/// let builder = Controller::builder("once").for_kind::<ConfigMap>();
/// let _ = builder.complete(nothing())?;
/// # Ok::<(), BuildError>(())
/// ```
/// ```compile_fail,E0308
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::controller::BuildError;
/// # use reeve_controller::reconcile::{Error, function};
/// # use reeve_controller::{Context, Manager, Outcome, Request};
/// # let nothing = || function(|_: Context, _: Request| async { Ok::<_, Error>(Outcome::done()) });
/// let builder = Controller::builder("none").for_kind::<ConfigMap>();
/// let controller = builder;
/// # let _ = |manager: &Manager| {
/// let _ = manager.add_controller(controller);
/// # };
/// # Ok::<(), BuildError>(())
/// ```
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::Controller;
/// # use reeve_controller::controller::BuildError;
/// # use reeve_controller::reconcile::{Error, function};
/// # use reeve_controller::{Context, Manager, Outcome, Request};
/// # let nothing = || function(|_: Context, _: Request| async { Ok::<_, Error>(Outcome::done()) });
/// let builder = Controller::builder("one").for_kind::<ConfigMap>();
/// let controller = builder.complete(nothing())?;
/// # let _ = |manager: &Manager| {
/// let _ = manager.add_controller(controller);
/// # };
/// # Ok::<(), BuildError>(())
/// ```
#[cfg(doctest)]
struct WhatDoesNotCompile;
