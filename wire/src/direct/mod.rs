//! Reading: types of k8s-openapi in place, without serde.
//!
//! Serde passes each field by its name, moves each value several times, and a time as a text. Here a field is found by its
//! number, and its value is read where it stays.
//!
//! Only the form that encoders write is read: fields in ascending order, with the zeros that Go writes. Fields that the
//! table does not have are skipped, as serde skips them. Anything else, an error too, is left to the serde deserializer,
//! which reads the object from its beginning. So the results and the errors are the same, and the two differ in time alone.

mod cursor;
#[cfg(test)]
mod described;
mod kinds;
mod message;
#[cfg(test)]
mod tests;
mod values;

use std::any::{Any, TypeId};

use k8s_openapi::Resource;
use k8s_openapi::api::{apps, batch, coordination, core, discovery};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::limits::Limits;
use crate::table::Message;
use crate::trim::Rule;
use cursor::Cursor;
use values::Value;

/// The objects that are read here are less deep, with the JSON texts in them.
const DEPTH: usize = 64;

/// Passes the kinds that are read here to a macro: the message and the type of each.
macro_rules! kinds {
    ($then:ident) => {
        $then! {
            "core.v1.Pod" core::v1::Pod,
            "core.v1.Node" core::v1::Node,
            "core.v1.Event" core::v1::Event,
            "core.v1.Service" core::v1::Service,
            "core.v1.Endpoints" core::v1::Endpoints,
            "core.v1.ConfigMap" core::v1::ConfigMap,
            "core.v1.Secret" core::v1::Secret,
            "core.v1.Namespace" core::v1::Namespace,
            "core.v1.ServiceAccount" core::v1::ServiceAccount,
            "core.v1.PersistentVolume" core::v1::PersistentVolume,
            "core.v1.PersistentVolumeClaim" core::v1::PersistentVolumeClaim,
            "apps.v1.Deployment" apps::v1::Deployment,
            "apps.v1.ReplicaSet" apps::v1::ReplicaSet,
            "apps.v1.StatefulSet" apps::v1::StatefulSet,
            "apps.v1.DaemonSet" apps::v1::DaemonSet,
            "batch.v1.Job" batch::v1::Job,
            "batch.v1.CronJob" batch::v1::CronJob,
            "coordination.v1.Lease" coordination::v1::Lease,
            "discovery.v1.EndpointSlice" discovery::v1::EndpointSlice,
        }
    };
}

/// Whether objects of the type are read here, with every field that it has.
pub(crate) fn has<T: 'static>() -> bool {
    macro_rules! is_one {
        ($($name:literal $type:path,)*) => {
            [$(TypeId::of::<$type>()),*].contains(&TypeId::of::<T>())
        };
    }
    // The table has the fields of Kubernetes 1.36. All fields of earlier versions are among them but `workloadRef` of
    // version 1.35, which every template of a Pod has.
    k8s_openapi::k8s_if_le_1_36! {
        const HAS_EVERY_FIELD: bool = true;
    }
    k8s_openapi::k8s_if_ge_1_37! {
        const HAS_EVERY_FIELD: bool = false;
    }
    k8s_openapi::k8s_if_1_35! {
        macro_rules! has_template {
            ($($type:path,)*) => {
                [$(TypeId::of::<$type>()),*].contains(&TypeId::of::<T>())
            };
        }
        let lacks_a_field = has_template! {
            core::v1::Pod, apps::v1::Deployment, apps::v1::ReplicaSet, apps::v1::StatefulSet,
            apps::v1::DaemonSet, batch::v1::Job, batch::v1::CronJob,
        };
        if lacks_a_field {
            return false;
        }
    }
    HAS_EVERY_FIELD && kinds!(is_one)
}

/// An object without its envelope.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a> {
    pub(crate) message: &'static Message,
    pub(crate) bytes: &'a [u8],
    pub(crate) limits: Limits,
    /// `apiVersion` and `kind`, if they are known.
    pub(crate) kind: Option<(&'a str, &'a str)>,
    /// What is left out of it.
    pub(crate) rule: Option<&'a Rule>,
}

// === impl Object ===

impl Object<'_> {
    /// Reads the object or its metadata, if `T` is one of the types that are known here and the bytes have the usual form.
    #[inline]
    pub(crate) fn read<T: 'static>(self) -> Option<T> {
        macro_rules! read_as {
            ($($name:literal $type:path,)*) => {
                $(if TypeId::of::<T>() == TypeId::of::<$type>() {
                    let mut object = None::<T>;
                    let place = (&mut object as &mut dyn Any).downcast_mut::<Option<$type>>()?;
                    let kind = (<$type>::API_VERSION, <$type>::KIND);
                    self.kind.is_none_or(|known| known == kind).then_some(())?;
                    self.read_into($name, place.insert(Value::fresh()), false)?;
                    return object;
                })*
            };
        }
        kinds!(read_as);
        if self.kind.is_none() && TypeId::of::<T>() == TypeId::of::<ObjectMeta>() {
            let mut metadata = None::<T>;
            let place = (&mut metadata as &mut dyn Any).downcast_mut::<Option<ObjectMeta>>()?;
            self.read_into("meta.v1.ObjectMeta", place.insert(Value::fresh()), false)?;
            return metadata;
        }
        None
    }

    /// The same, over another object, whose texts and lists are used again where their sizes fit. After `None` it has any
    /// content.
    pub(crate) fn read_over<T: 'static>(self, object: &mut T) -> Option<()> {
        macro_rules! read_as {
            ($($name:literal $type:path,)*) => {
                $(if let Some(place) = (object as &mut dyn Any).downcast_mut::<$type>() {
                    let kind = (<$type>::API_VERSION, <$type>::KIND);
                    self.kind.is_none_or(|known| known == kind).then_some(())?;
                    return self.read_into($name, place, true);
                })*
            };
        }
        kinds!(read_as);
        if self.kind.is_none()
            && let Some(place) = (object as &mut dyn Any).downcast_mut::<ObjectMeta>()
        {
            return self.read_into("meta.v1.ObjectMeta", place, true);
        }
        None
    }

    fn read_into<K: Value>(self, name: &str, place: &mut K, over: bool) -> Option<()> {
        let is_limited = self.limits.values != usize::MAX || self.limits.depth < DEPTH;
        if self.message.name != name || is_limited {
            return None;
        }
        let mut cursor = Cursor::at(self.bytes, self.rule, over);
        place.read(&mut cursor)?.then_some(())
    }
}
