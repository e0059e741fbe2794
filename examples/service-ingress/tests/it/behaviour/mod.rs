//! Both forms of the program on the built-in API server under paused time. The program runs as the ServiceAccount of
//! the manifests, so every case also shows that the rights suffice.

/// Makes two tests of each case: one by hand, one with the builder.
macro_rules! on_both_forms {
    ($($case:ident),+ $(,)?) => {
        mod raw {
            $(#[test] fn $case() { $crate::behaviour::world::run(service_ingress::Form::Raw, super::$case); })+
        }
        mod managed {
            $(#[test] fn $case() { $crate::behaviour::world::run(service_ingress::Form::Managed, super::$case); })+
        }
    };
}

mod world;

mod annotation;
mod defects;
mod explored;
mod failures;
mod rights;
mod scale;
mod scenarios;
