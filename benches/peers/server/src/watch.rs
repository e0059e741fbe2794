//! A watch that is written while it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

use crate::format::{Form, What};
use crate::list::CHUNK;
use crate::template::Object;
use crate::world::{Watching, at_place};

/// The body of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    watching: Watching,
    form: Form,
    epoch: u64,
    stage: Stage,
}

/// The progress of a watch.
#[derive(Debug)]
enum Stage {
    /// The existing objects come first, and then a bookmark: a streamed list.
    Initial {
        objects: std::sync::Arc<Vec<Object>>,
        version: u64,
        next: usize,
    },
    /// Changes, from this one on.
    Changes(usize),
    /// The version to begin with was too old.
    Expired,
    Ended,
}

/// The next data to send.
enum Found {
    Changes(Vec<Object>),
    Expired,
    End,
}

// === impl Watch ===

impl Watch {
    /// Changes after `version`; with `None`, all objects and then all changes.
    pub(crate) fn new(watching: Watching, form: Form, version: Option<u64>) -> Self {
        let (epoch, stage) = watching.stage().read(|state| {
            let stage = match version {
                None => Stage::Initial {
                    objects: std::sync::Arc::clone(&state.objects),
                    version: state.version,
                    next: 0,
                },
                Some(version) => state.after(version).map_or(Stage::Expired, Stage::Changes),
            };
            (state.epoch, stage)
        });
        Self {
            watching,
            form,
            epoch,
            stage,
        }
    }

    /// The next bytes; `None` at the end.
    fn chunk(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let formats = &self.watching.world().formats;
        let format = formats
            .get(self.watching.kind(), self.form)
            .expect("a form that was looked up");
        let mut out = BytesMut::with_capacity(CHUNK + format.event_len());
        match &mut self.stage {
            Stage::Initial {
                objects,
                version,
                next,
            } => {
                while *next < objects.len() && out.len() < CHUNK {
                    let object = objects[at_place(*next, objects.len())];
                    format.write_event(What::Added, object, &mut out);
                    *next += 1;
                }
                if *next == objects.len() {
                    format.write_end(*version, &mut out);
                    let version = *version;
                    let after = self.watching.stage().read(|state| state.after(version));
                    self.stage = after.map_or(Stage::Expired, Stage::Changes);
                }
            }
            Stage::Changes(cursor) => {
                let (epoch, from) = (self.epoch, *cursor);
                let most = CHUNK / format.event_len() + 1;
                let found = self.watching.stage().read_or_wait(cx.waker(), |state| {
                    if state.epoch != epoch {
                        return Some(if state.expired {
                            Found::Expired
                        } else {
                            Found::End
                        });
                    }
                    let end = state.changes.len().min(from + most);
                    (from < end).then(|| Found::Changes(state.changes[from..end].to_vec()))
                });
                match found {
                    None => return Poll::Pending,
                    Some(Found::Changes(changes)) => {
                        *cursor += changes.len();
                        for object in changes {
                            format.write_event(What::Modified, object, &mut out);
                        }
                    }
                    Some(Found::Expired) => {
                        format.write_expired(&mut out);
                        self.stage = Stage::Ended;
                    }
                    Some(Found::End) => return Poll::Ready(None),
                }
            }
            Stage::Expired => {
                format.write_expired(&mut out);
                self.stage = Stage::Ended;
            }
            Stage::Ended => return Poll::Ready(None),
        }
        Poll::Ready(Some(out.freeze()))
    }
}

impl Body for Watch {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.chunk(cx)
            .map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;
    use http_body_util::BodyExt;
    use serde_json::Value;

    use super::*;
    use crate::format::Kind;
    use crate::world::World;

    const JSON: Form = Form {
        protobuf: false,
        metadata: false,
    };

    fn world(count: usize) -> Arc<World> {
        let world = Arc::new(World::new());
        world
            .stage(Kind::ConfigMap)
            .update(|state| state.reset(count));
        world
    }

    fn watch(world: &Arc<World>, version: Option<u64>) -> Watch {
        Watch::new(Watching::new(world, Kind::ConfigMap), JSON, version)
    }

    /// The bytes that are available without a wait.
    fn ready(watch: &mut Watch) -> (Vec<Value>, bool) {
        let (mut bytes, mut ended) = (Vec::new(), false);
        while let Some(frame) = watch.frame().now_or_never() {
            match frame {
                Some(frame) => bytes.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => {
                    ended = true;
                    break;
                }
            }
        }
        let lines = bytes
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty());
        (
            lines
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect(),
            ended,
        )
    }

    #[test]
    fn a_streamed_list_ends_with_a_bookmark_and_goes_on() {
        let world = world(300);
        let mut watch = watch(&world, None);
        let (events, ended) = ready(&mut watch);
        assert_eq!((events.len(), ended), (301, false));
        assert_eq!(events[300]["type"], "BOOKMARK");
        world
            .stage(Kind::ConfigMap)
            .update(|state| state.change(5, 2));
        let (events, _) = ready(&mut watch);
        assert_eq!(events.len(), 2);
        assert_eq!(events[1]["object"]["metadata"]["name"], "name-0000000006");
    }

    #[test]
    fn an_expired_watch_ends_with_410_and_so_does_one_from_before() {
        let world = world(3);
        let version = world.stage(Kind::ConfigMap).read(|state| state.version);
        let mut watching = watch(&world, Some(version));
        assert_eq!(ready(&mut watching), (Vec::new(), false));
        world
            .stage(Kind::ConfigMap)
            .update(|state| state.expire(true));
        for mut watch in [watching, watch(&world, Some(version))] {
            let (events, ended) = ready(&mut watch);
            assert_eq!((events.len(), ended), (1, true));
            assert_eq!(events[0]["object"]["code"], 410);
        }
    }

    #[test]
    fn a_reset_ends_watches_and_they_are_counted() {
        let world = world(3);
        let mut watching = watch(&world, None);
        assert_eq!(world.stage(Kind::ConfigMap).watches(), 1);
        ready(&mut watching);
        world.stage(Kind::ConfigMap).update(|state| state.reset(3));
        assert_eq!(ready(&mut watching), (Vec::new(), true));
        drop(watching);
        assert_eq!(world.stage(Kind::ConfigMap).watches(), 0);
    }
}
