//! What the program does, in both of its forms, on the built-in API server under paused time: as the ServiceAccount of
//! the manifests, so that every case also shows that its rights suffice.

/// Makes two tests of each case: one of the form by hand, one of that on the builder.
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
mod failures;
mod rights;
mod scale;
mod seed;
