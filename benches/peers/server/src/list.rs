//! A list that is written while it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use crate::format::{Form, Format, Kind};
use crate::template::Object;
use crate::world::{World, at_place};

/// The number of bytes written in one step.
pub(crate) const CHUNK: usize = 64 << 10;

/// The body of a list, from a state that does not change any more.
#[derive(Debug)]
pub(crate) struct List {
    world: Arc<World>,
    kind: Kind,
    form: Form,
    objects: Arc<Vec<Object>>,
    head: Option<Vec<u8>>,
    tail: Option<Vec<u8>>,
    first: usize,
    next: usize,
    end: usize,
    left: u64,
}

// === impl List ===

impl List {
    /// At most `limit` objects from number `first` on, in the order of their keys.
    pub(crate) fn new(
        world: &Arc<World>,
        kind: Kind,
        form: Form,
        first: usize,
        limit: usize,
    ) -> Self {
        let (objects, version) = world
            .stage(kind)
            .read(|state| (Arc::clone(&state.objects), state.version));
        let first = first.min(objects.len());
        let end = first.saturating_add(limit).min(objects.len());
        let remaining = objects.len() - end;
        let token = if remaining > 0 {
            end.to_string()
        } else {
            String::new()
        };
        let format = world
            .formats
            .get(kind, form)
            .expect("a form that was looked up");
        let (head, tail) = format.list(end - first, version, &token, remaining);
        let left = head.len() + format.items_len(end - first) + tail.len();
        Self {
            world: Arc::clone(world),
            kind,
            form,
            objects,
            head: Some(head),
            tail: Some(tail),
            first,
            next: first,
            end,
            left: left as u64,
        }
    }

    fn format(&self) -> &Format {
        self.world
            .formats
            .get(self.kind, self.form)
            .expect("a form that was looked up")
    }

    fn chunk(&mut self) -> Bytes {
        let mut out = BytesMut::with_capacity(CHUNK + self.format().item_len());
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
        }
        while self.next < self.end && out.len() < CHUNK {
            let object = self.objects[at_place(self.next, self.objects.len())];
            self.format()
                .write_item(object, self.next == self.first, &mut out);
            self.next += 1;
        }
        if self.next == self.end
            && let Some(tail) = self.tail.take()
        {
            out.extend_from_slice(&tail);
        }
        out.freeze()
    }
}

impl Body for List {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let chunk = self.chunk();
        self.left -= chunk.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn pages_make_up_the_whole() {
        let world = Arc::new(World::new());
        world
            .stage(Kind::ConfigMap)
            .update(|state| state.reset(1001));
        let form = Form {
            protobuf: false,
            metadata: false,
        };
        let mut names = Vec::new();
        for first in [0, 500, 1000] {
            let list = List::new(&world, Kind::ConfigMap, form, first, 500);
            let length = list.size_hint().exact().unwrap();
            let bytes = list.collect().await.unwrap().to_bytes();
            assert_eq!(bytes.len() as u64, length);
            let page: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            for item in page["items"].as_array().unwrap() {
                names.push(item["metadata"]["name"].as_str().unwrap().to_owned());
            }
            assert_eq!(page["metadata"].get("continue").is_some(), first < 1000);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1001);
    }
}
