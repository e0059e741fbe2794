//! Presentation of objects in protobuf: whole, or as metadata. There are no tables in protobuf.

use std::sync::Arc;

use bytes::Bytes;
use reeve_wire::{Cause, Error, List, Message, watch};
use serde_json::Value;

use super::{ListMeta, Pieces, Presenter};
use crate::http::media::Shape;
use crate::status::Status;
use crate::store::Object;

// === impl Presenter ===

impl Presenter {
    /// One object in its envelope.
    ///
    /// # Errors
    /// 500 for an object that its kind cannot hold.
    pub(crate) fn one_in_protobuf(&self, object: &Object) -> Result<Vec<u8>, Status> {
        let (api_version, kind) = self.kind();
        let message = self.message(object).map_err(internal)?;
        Ok(reeve_wire::envelope(&api_version, kind, &message))
    }

    /// A list of objects in its envelope.
    ///
    /// # Errors
    /// 500 for an object that its kind cannot hold.
    pub(crate) fn list_in_protobuf(
        &self,
        objects: &[Arc<Object>],
        meta: &ListMeta,
    ) -> Result<Pieces, Status> {
        let messages = objects.iter().map(|object| self.message(object));
        let messages: Result<Vec<Bytes>, Error> = messages.collect();
        let (api_version, kind) = match self.shape {
            Shape::Metadata(_) => (self.kind().0, "PartialObjectMetadataList"),
            _ => (self.info.api_version(), self.info.list_kind.as_str()),
        };
        let messages = messages.map_err(internal)?;
        let lengths = messages.iter().map(Bytes::len);
        let list = List::new(&api_version, kind, &meta.to_value(), lengths).map_err(internal)?;
        Ok(Pieces::protobuf(list, messages))
    }

    /// The frame of an event in a watch.
    ///
    /// # Errors
    /// 500 for an object that its kind cannot hold.
    pub(crate) fn frame_in_protobuf(
        &self,
        event: &str,
        object: &Object,
    ) -> Result<Vec<u8>, Status> {
        let (api_version, kind) = self.kind();
        let message = self.message(object).map_err(internal)?;
        Ok(watch::frame(event, &api_version, kind, &message))
    }

    /// Group version and kind of one object in this shape.
    fn kind(&self) -> (String, &str) {
        match self.shape {
            Shape::Metadata(version) => (format!("meta.k8s.io/{version}"), "PartialObjectMetadata"),
            _ => (self.info.api_version(), &self.info.kind),
        }
    }

    /// The message of an object, without an envelope.
    fn message(&self, object: &Object) -> Result<Bytes, Error> {
        let (api_version, kind) = self.kind();
        let Some(message) = Message::of(&api_version, kind) else {
            let kind = kind.to_owned();
            return Err(Cause::UnknownKind { api_version, kind }.into());
        };
        let encoded = match self.shape {
            Shape::Whole => return object.encoded_as(message),
            // The message has no field except the metadata.
            _ => reeve_wire::encode(message, &object.value()),
        };
        encoded.map(Bytes::from)
    }
}

/// The frame of an event whose object is a document: a bookmark or an error.
pub(crate) fn document_frame(event: &str, document: &Value) -> Result<Vec<u8>, Status> {
    let text = |name: &str| document[name].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = Message::of(api_version, kind).ok_or_else(|| {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        internal(Cause::UnknownKind { api_version, kind }.into())
    })?;
    let object = reeve_wire::encode(message, document).map_err(internal)?;
    Ok(watch::frame(event, api_version, kind, &object))
}

fn internal(error: Error) -> Status {
    Status::internal_text(format!("the object cannot be written in protobuf: {error}"))
}
