//! A list in pieces: one is made when the one before is sent.
//!
//! A list of 100,000 objects has hundreds of megabytes. As a whole it would need new memory for all of them, and occupy a worker
//! thread until it is encoded.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use reeve_wire::List;

use super::{ListMeta, Presenter};
use crate::http::media::Shape;
use crate::store::Object;

/// The length of a piece in bytes, to which its last object is added.
const PIECE: usize = 64 * 1024;

/// The cells of so many objects of a resource are kept for the next list at most. More would take the place of all other forms,
/// and of each other before they are used.
const KEPT_ROWS: usize = 4_000;

/// The pieces of a list.
pub(crate) struct Pieces {
    /// Appends items until the piece is full; `false` once none is left.
    fill: Box<dyn FnMut(&mut BytesMut) -> bool + Send>,
    /// What follows the last item; `None` once the list is written.
    tail: Option<Bytes>,
    out: BytesMut,
}

// === impl Pieces ===

impl Pieces {
    /// A list in JSON: `head` is the text up to the first object, `tail` that after the last one.
    pub(super) fn json(
        presenter: Presenter,
        head: BytesMut,
        objects: Vec<Arc<Object>>,
        meta: &ListMeta,
        tail: &'static [u8],
    ) -> Self {
        let kept = meta.stored <= KEPT_ROWS;
        let mut objects = objects.into_iter();
        let mut comma: &[u8] = b"";
        Self::new(head, Bytes::from_static(tail), move |out| {
            let rows = match presenter.shape {
                Shape::Table(version) => Some((presenter.rows(), version)),
                _ => None,
            };
            while out.len() < PIECE {
                let Some(object) = objects.next() else {
                    return false;
                };
                out.extend_from_slice(std::mem::replace(&mut comma, b","));
                match &rows {
                    Some((rows, version)) => presenter.write_row(rows, &object, version, kept, out),
                    // Items of lists of built-ins carry no type.
                    None => presenter.write_one(&object, presenter.info.custom, true, out),
                }
            }
            true
        })
    }

    /// A list in protobuf.
    pub(super) fn protobuf(list: List, messages: Vec<Bytes>) -> Self {
        let tail = Bytes::copy_from_slice(list.tail());
        let mut messages = messages.into_iter();
        Self::new(BytesMut::from(list.head()), tail, move |out| {
            while out.len() < PIECE {
                let Some(message) = messages.next() else {
                    return false;
                };
                out.extend_from_slice(&list.before_item(message.len()));
                out.extend_from_slice(&message);
            }
            true
        })
    }

    fn new(
        head: BytesMut,
        tail: Bytes,
        fill: impl FnMut(&mut BytesMut) -> bool + Send + 'static,
    ) -> Self {
        Self {
            fill: Box::new(fill),
            tail: Some(tail),
            out: head,
        }
    }

    /// Whether no piece is left.
    pub(crate) fn is_over(&self) -> bool {
        self.tail.is_none()
    }

    /// All pieces as one.
    pub(crate) fn whole(self) -> Bytes {
        let mut whole = BytesMut::new();
        for piece in self {
            whole.extend_from_slice(&piece);
        }
        whole.freeze()
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over() {
            return None;
        }
        // The memory of the piece before, if that is sent, with room for its last object.
        self.out.reserve(PIECE + PIECE / 4);
        if !(self.fill)(&mut self.out)
            && let Some(tail) = self.tail.take()
        {
            self.out.extend_from_slice(&tail);
        }
        Some(self.out.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::builtin;
    use crate::table::IncludeObject;

    fn pieces(count: usize, shape: Shape) -> Vec<Bytes> {
        let mut all = builtin().into_iter();
        let info = all.find(|info| info.kind == "ConfigMap").unwrap();
        let include = IncludeObject::Metadata;
        let presenter = Presenter::new(&info.into(), shape, include, Timestamp::UNIX_EPOCH);
        let object = |at: usize| {
            let value =
                json!({"metadata": {"name": format!("c{at:03}")}, "data": {"a": "x".repeat(1000)}});
            Arc::new(Object::new(value, 7))
        };
        let list = presenter.list((0..count).map(object).collect(), &ListMeta::default());
        list.collect()
    }

    #[test]
    fn rows_are_kept_if_the_resource_has_few_objects_and_the_object_is_stored() {
        let mut all = builtin().into_iter();
        let info = Arc::new(all.find(|info| info.kind == "ConfigMap").unwrap());
        let value = json!({"metadata": {"name": "a"}, "data": {"a": "1"}});
        let include = IncludeObject::None;
        for (stored, converted, kept) in [
            (KEPT_ROWS, false, true),
            (KEPT_ROWS + 1, false, false),
            (1, true, false),
        ] {
            let object = Arc::new(Object::new(value.clone(), 7));
            let object = match converted {
                true => Arc::new(Object::converted(&object, "v2", value.clone())),
                false => object,
            };
            // Other tests of this process keep forms, too.
            let _held = object.hold_rows();
            let now = Timestamp::UNIX_EPOCH;
            let presenter = Presenter::new(&info, Shape::Table("v1"), include, now);
            let meta = ListMeta {
                stored,
                ..ListMeta::default()
            };
            let list = presenter.clone().list(vec![Arc::clone(&object)], &meta);
            let list: Value = serde_json::from_slice(&list.whole()).unwrap();
            assert_eq!(list["rows"][0]["cells"], json!(["a", 1, "<unknown>"]));
            assert_eq!(presenter.has_cells(&object), kept, "{stored} {converted}");
        }
    }

    #[test]
    fn pieces_are_a_list_and_none_is_large() {
        for (shape, items) in [
            (Shape::Whole, "items"),
            (Shape::Metadata("v1"), "items"),
            (Shape::Table("v1"), "rows"),
        ] {
            for count in [0, 1, 900] {
                let pieces = pieces(count, shape);
                assert!(pieces.iter().all(|piece| piece.len() < PIECE + 2000));
                assert_eq!(pieces.len() > 1, count == 900, "{shape:?}");
                let list: Value = serde_json::from_slice(&pieces.concat()).unwrap();
                let found = list[items].as_array().map_or(0, Vec::len);
                assert_eq!(found, count, "{shape:?}");
                let last = &list[items][count.max(1) - 1];
                let last = last.get("object").unwrap_or(last);
                if count > 0 {
                    assert_eq!(last["metadata"]["name"], format!("c{:03}", count - 1));
                }
            }
        }
    }
}
