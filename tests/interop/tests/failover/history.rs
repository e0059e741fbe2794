//! Every change of the Lease and of the object that the leader writes, in the order of etcd, and when it was seen.

use std::fmt;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_core::params::{PostParams, WatchParams};
use kube_core::{Request, Resource, WatchEvent};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// The holder of the lease from a version on.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    version: u64,
    pub(crate) holder: String,
    pub(crate) seen: Instant,
}

/// One write of the object.
#[derive(Clone, Debug)]
struct Written {
    version: u64,
    leader: String,
}

/// The events so far. Ends when dropped.
pub(crate) struct History {
    held: watch::Sender<Vec<Held>>,
    written: Arc<Mutex<Vec<Written>>>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// How many writes there were, and which of them under the lease of another.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub(crate) ours: usize,
    pub(crate) go: usize,
    pub(crate) ours_stray: Vec<String>,
    pub(crate) go_stray: usize,
}

// === impl History ===

impl History {
    /// Makes the object, and begins to watch it and the lease.
    pub(crate) async fn begin(client: Client) -> Self {
        let object = json!({"metadata": {"name": "work", "namespace": "default"}, "data": {}});
        let create = Request::new(ConfigMap::url_path(&(), Some("default")))
            .create(&PostParams::default(), serde_json::to_vec(&object).unwrap());
        let made: ConfigMap = client.request(create.unwrap()).await.unwrap();
        let version = made.metadata.resource_version.unwrap();
        let held = watch::channel(Vec::new()).0;
        let written = Arc::new(Mutex::new(Vec::new()));
        let leases = {
            let held = held.clone();
            follow::<Lease>(client.clone(), "contended", version.clone(), move |lease| {
                let holder = lease.spec.and_then(|spec| spec.holder_identity);
                let change = Held {
                    version: number(lease.metadata.resource_version.as_deref()),
                    holder: holder.unwrap_or_default(),
                    seen: Instant::now(),
                };
                held.send_modify(|all: &mut Vec<Held>| all.push(change));
            })
        };
        let objects = {
            let written = Arc::clone(&written);
            follow::<ConfigMap>(client, "work", version, move |map| {
                let leader = map.data.and_then(|mut data| data.remove("leader"));
                written.lock().push(Written {
                    version: number(map.metadata.resource_version.as_deref()),
                    leader: leader.unwrap_or_default(),
                });
            })
        };
        Self {
            held,
            written,
            _tasks: [leases, objects],
        }
    }

    /// Waits until the latest change of the lease is as `wanted`, and returns the first that was so.
    pub(crate) async fn until(&self, wanted: impl Fn(&Held) -> bool) -> Held {
        let mut changes = self.held.subscribe();
        let all = changes.wait_for(|all| all.last().is_some_and(&wanted));
        let all = all.await.expect("the history goes on").clone();
        let first = all.iter().rev().take_while(|held| wanted(held)).last();
        first.expect("there is one").clone()
    }

    /// When `identity` renewed the lease for the last time, or released it.
    pub(crate) fn last_word_of(&self, identity: &str, released: bool) -> Instant {
        let all = self.held.borrow();
        let last = all.iter().rposition(|held| held.holder == identity);
        let last = last.expect("it has led");
        if !released {
            return all[last].seen;
        }
        let next = all.get(last + 1).expect("another change");
        assert_eq!(next.holder, "", "{identity} released the lease");
        next.seen
    }

    /// Compares each write with the holder of the lease when it was accepted. Unless `complete`, writes after the last
    /// change of the lease that was seen are left for later.
    pub(crate) fn audit(&self, complete: bool) -> Audit {
        let held = self.held.borrow();
        let mut audit = Audit::default();
        let last = held.last().map_or(0, |held| held.version);
        for write in self.written.lock().iter() {
            if write.version > last && !complete {
                continue;
            }
            let at = held.partition_point(|held| held.version < write.version);
            let holder = at.checked_sub(1).map_or("", |at| held[at].holder.as_str());
            let stray = holder != write.leader;
            if write.leader.starts_with("ours") {
                audit.ours += 1;
                if stray {
                    let text = format!(
                        "version {} by {} under {holder:?}",
                        write.version, write.leader
                    );
                    audit.ours_stray.push(text);
                }
            } else {
                audit.go += 1;
                audit.go_stray += usize::from(stray);
            }
        }
        audit
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, go, stray) = (self.ours, self.go, self.go_stray);
        write!(
            f,
            "writes accepted: {ours} of ours, {} of them from a deposed leader; {go} of client-go's, {stray} of them",
            self.ours_stray.len()
        )?;
        for stray in self.ours_stray.iter().take(10) {
            write!(f, "\n  {stray}")?;
        }
        Ok(())
    }
}

fn number(version: Option<&str>) -> u64 {
    let version = version.expect("a resourceVersion");
    version.parse().expect("etcd's revision")
}

/// Shows every change of the object `name` after `version`, none left out: a watch that ends goes on where it was.
fn follow<K>(
    client: Client,
    name: &'static str,
    mut version: String,
    mut show: impl FnMut(K) + Send + 'static,
) -> AbortOnDropHandle<()>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(async move {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        loop {
            let path = K::url_path(&(), Some("default"));
            let request = Request::new(path).watch(&params, &version).unwrap();
            let events = client.request_events::<K>(request).await.unwrap();
            let mut events = events.boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                        let next = object.meta().resource_version.clone();
                        version = next.expect("a resourceVersion");
                        show(object);
                    }
                    Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                    Ok(WatchEvent::Deleted(_)) => panic!("{name} was deleted"),
                    Ok(WatchEvent::Error(status)) => panic!("{name}: {}", status.message),
                    Err(error) => {
                        eprintln!("watching {name} goes on after: {error}");
                        break;
                    }
                }
            }
        }
    }))
}
