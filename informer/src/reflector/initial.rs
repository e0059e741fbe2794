//! The state of a streaming list that is not complete yet: [`Initial`].

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::{Equivalent, IndexMap, IndexSet};

use crate::decode::{Frame, Undecodable};
use crate::object::Stored;
use reeve_client::ResourceVersion;
use reeve_client::transport::Error;
use reeve_client::{KeyRef, ObjectKey};

/// The state after the initial events so far. Updates and deletions before the end belong to it (client-go: the temporary
/// store of `watchList`).
pub(super) struct Initial<S: ?Sized> {
    objects: IndexSet<Keyed<S>, RandomState>,
    undecodable: IndexMap<Identity, Undecodable>,
}

/// The identity of an object that cannot be read.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Named(ObjectKey),
    /// An object without a name, by its version.
    Nameless(Option<String>),
}

/// An object in a set, identified by its key.
struct Keyed<S: ?Sized>(Arc<S>);

// === impl Initial ===

impl<S: Stored + ?Sized> Initial<S> {
    pub(super) fn new() -> Self {
        Self {
            objects: IndexSet::default(),
            undecodable: IndexMap::new(),
        }
    }

    /// Takes the next frame. Returns the version of the state if that was its end.
    ///
    /// # Errors
    /// The error that the frame holds.
    pub(super) fn take(&mut self, frame: Frame<S>) -> Result<Option<ResourceVersion>, Error> {
        match frame {
            Frame::Added(object) | Frame::Modified(object) => {
                if !self.undecodable.is_empty() {
                    self.undecodable.swap_remove(&Identity::Named(object.key()));
                }
                self.objects.replace(Keyed(object));
            }
            Frame::Deleted(object) => {
                self.undecodable.swap_remove(&Identity::Named(object.key()));
                self.objects.swap_remove(&object.key_ref());
            }
            Frame::Undecodable { object, deleted } => {
                if let Some(key) = &object.key {
                    self.objects.swap_remove(&key.as_ref());
                }
                let identity = Identity::of(&object);
                if deleted {
                    self.undecodable.swap_remove(&identity);
                } else {
                    self.undecodable.insert(identity, object);
                }
            }
            Frame::Bookmark {
                resource_version,
                initial_events_end: true,
            } => return Ok(Some(resource_version.into())),
            Frame::Error(status) => return Err(Error::from_status(status)),
            Frame::Bookmark { .. } | Frame::Unknown => {}
        }
        Ok(None)
    }

    /// The objects, and those that cannot be read.
    pub(super) fn finish(self) -> (Vec<Arc<S>>, Vec<Undecodable>) {
        let objects = self.objects.into_iter().map(|Keyed(object)| object);
        (objects.collect(), self.undecodable.into_values().collect())
    }
}

// === impl Identity ===

impl Identity {
    fn of(object: &Undecodable) -> Self {
        let nameless = || Self::Nameless(object.resource_version.clone());
        object.key.clone().map_or_else(nameless, Self::Named)
    }
}

// === impl Keyed ===

impl<S: Stored + ?Sized> PartialEq for Keyed<S> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key_ref() == other.0.key_ref()
    }
}

impl<S: Stored + ?Sized> Eq for Keyed<S> {}

impl<S: Stored + ?Sized> Hash for Keyed<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key_ref().hash(state);
    }
}

impl<S: Stored + ?Sized> Equivalent<Keyed<S>> for KeyRef<'_> {
    fn equivalent(&self, keyed: &Keyed<S>) -> bool {
        *self == keyed.0.key_ref()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::Status;

    use super::*;
    use crate::sample::{map, text};

    fn unreadable(name: &str, deleted: bool) -> Frame<ConfigMap> {
        let object = Undecodable {
            key: Some(ObjectKey::namespaced("n", name)),
            uid: None,
            resource_version: None,
            error: String::new(),
            outline: String::new(),
        };
        Frame::Undecodable { object, deleted }
    }

    fn bookmark(initial_events_end: bool) -> Frame<ConfigMap> {
        Frame::Bookmark {
            resource_version: "9".to_owned(),
            initial_events_end,
        }
    }

    /// The state after the frames: `a@1 c?`, with a question mark for an object that cannot be read.
    fn state(frames: impl IntoIterator<Item = Frame<ConfigMap>>) -> String {
        let mut initial = Initial::new();
        for frame in frames {
            assert_eq!(initial.take(frame).unwrap(), None);
        }
        assert_eq!(initial.take(bookmark(true)).unwrap(), Some("9".into()));
        let (objects, undecodable) = initial.finish();
        let mut names: Vec<_> = objects.iter().map(|object| text(object)).collect();
        let unreadable = undecodable.into_iter().filter_map(|object| object.key);
        names.extend(unreadable.map(|key| format!("{}?", key.name)));
        names.sort();
        names.join(" ")
    }

    #[test]
    fn the_last_event_of_each_object_counts() {
        use Frame::{Added, Deleted, Modified, Unknown};
        let cases = [
            (vec![], ""),
            (vec![Added(map("a@1")), bookmark(false), Unknown], "a@1"),
            (vec![Added(map("a@1")), Modified(map("a@2"))], "a@2"),
            (
                vec![Added(map("a@1")), Added(map("b@2")), Deleted(map("a@3"))],
                "b@2",
            ),
            (vec![Added(map("a@1")), unreadable("a", false)], "a?"),
            (vec![unreadable("a", false), Modified(map("a@2"))], "a@2"),
            (vec![unreadable("a", false), Deleted(map("a@2"))], ""),
            (vec![Added(map("a@1")), unreadable("a", true)], ""),
            (vec![unreadable("a", false), unreadable("a", true)], ""),
        ];
        for (number, (frames, expected)) in cases.into_iter().enumerate() {
            assert_eq!(state(frames), expected, "case {number}");
        }
    }

    #[test]
    fn an_error_in_the_stream_is_returned() {
        let status = Box::new(Status {
            code: 410,
            ..Status::default()
        });
        let error = Initial::<ConfigMap>::new().take(Frame::Error(status));
        assert!(error.unwrap_err().is_expired());
    }
}
