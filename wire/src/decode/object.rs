//! The deserializer of one object.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Visitor};
use serde::forward_to_deserialize_any;

use super::members::{Members, TypeMeta};
use super::stack::{Context, Frame};
use crate::error::Error;
use crate::limits::Limits;
use crate::table::Message;
use crate::trim::{Rule, Trim};

/// A serde `Deserializer` over the bytes of one object, for any type that reads the object's JSON.
///
/// It borrows texts from the bytes, and makes no copy of the object. Times, quantities and bytes are passed as they are in
/// JSON. Envelopes are read by [`Envelope`](crate::Envelope), which makes this deserializer.
#[derive(Debug)]
pub struct Deserializer<'de> {
    message: &'static Message,
    bytes: &'de [u8],
    limits: Limits,
    kind: Option<TypeMeta<'de>>,
    rule: Option<&'de Rule>,
}

/// Whether [`Deserializer::read`] reads objects of the type in place, which takes less time than to read them from JSON. False
/// without the feature `k8s-openapi`, and for types of a Kubernetes version that has fields which the table has not.
#[must_use]
pub fn is_read_in_place<T: 'static>() -> bool {
    #[cfg(feature = "k8s-openapi")]
    let is_known = crate::direct::has::<T>();
    #[cfg(not(feature = "k8s-openapi"))]
    let is_known = false;
    is_known
}

// === impl Deserializer ===

impl<'de> Deserializer<'de> {
    /// Reads `bytes`, a `message` without its envelope.
    #[must_use]
    pub fn new(message: &'static Message, bytes: &'de [u8]) -> Self {
        Self {
            message,
            bytes,
            limits: Limits::default(),
            kind: None,
            rule: None,
        }
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Leaves parts of the object out. `trim` is one of the same message; one of another message has no effect.
    #[must_use]
    pub fn with_trim(mut self, trim: &'de Trim) -> Self {
        let is_same = std::ptr::eq(trim.message(), self.message);
        self.rule = trim.rule().filter(|_| is_same);
        self
    }

    /// Adds `apiVersion` and `kind`, which are in the envelope, in front of the members.
    #[must_use]
    pub fn with_type(
        mut self,
        api_version: impl Into<Cow<'de, str>>,
        kind: impl Into<Cow<'de, str>>,
    ) -> Self {
        self.kind = Some(TypeMeta {
            api_version: api_version.into(),
            kind: kind.into(),
        });
        self
    }

    /// Reads the object as `T`, as `T::deserialize` does. With the feature `k8s-openapi` the common kinds of that crate
    /// are read in about a third of the time.
    ///
    /// # Errors
    /// For an invalid object, for one beyond the limits, and for one that is not a `T`.
    pub fn read<T: DeserializeOwned + 'static>(&mut self) -> Result<T, Error> {
        #[cfg(feature = "k8s-openapi")]
        if let Some(read) = self.directly().read() {
            return Ok(read);
        }
        T::deserialize(self)
    }

    /// Reads the object as [`Deserializer::read`] does, over another object, which need not be like it: nothing of that is left.
    /// With the feature `k8s-openapi` the common kinds use its texts and lists again where their sizes fit. Most of a change
    /// of a large object is as before, and takes no memory from the allocator then.
    ///
    /// # Errors
    /// As [`Deserializer::read`]. The object has any content then.
    pub fn read_over<T: DeserializeOwned + 'static>(
        &mut self,
        object: &mut T,
    ) -> Result<(), Error> {
        #[cfg(feature = "k8s-openapi")]
        if self.directly().read_over(object).is_some() {
            return Ok(());
        }
        *object = T::deserialize(self)?;
        Ok(())
    }

    #[cfg(feature = "k8s-openapi")]
    fn directly(&self) -> crate::direct::Object<'_> {
        let kind = self.kind.as_ref();
        crate::direct::Object {
            message: self.message,
            bytes: self.bytes,
            limits: self.limits,
            kind: kind.map(|TypeMeta { api_version, kind }| (&**api_version, &**kind)),
            rule: self.rule,
        }
    }
}

impl<'de> serde::Deserializer<'de> for &mut Deserializer<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let context = Context::new(self.bytes, self.limits);
        let frame = Frame::open(
            &context,
            self.message,
            self.rule,
            std::iter::once(self.bytes),
        )?;
        visitor.visit_map(Members::new(&context, frame, 0, self.kind.clone()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        bytes byte_buf unit unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
