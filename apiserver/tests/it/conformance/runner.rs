//! Starts a server, prepares the shared kinds, and runs the cases, some at a time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use reeve_apiserver::assets;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::rbac::{MASTERS, User};
use reeve_apiserver::{ApiServer, Serving};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::conformance::case::Case;
use crate::conformance::cases;
use crate::conformance::client::Client;
use crate::conformance::recorded;

/// The administrator's token of the built-in server.
const ADMIN: &str = "conformance-administrator";
/// So many cases run at once.
const AT_ONCE: usize = 12;
const CASE_WITHIN: Duration = Duration::from_secs(60);

/// One case.
#[derive(Clone, Copy)]
pub struct Entry {
    pub section: &'static str,
    pub rules: &'static str,
    pub name: &'static str,
    pub run: for<'a> fn(&'a mut Case) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

/// What all cases of a run share.
pub struct Shared {
    pub client: Client,
    /// Tells this run's names from those of others.
    pub run: String,
    /// The group of the shared kinds.
    pub group: String,
    /// Forgets history up to a version.
    pub compact: Compact,
}

/// How history is made to be forgotten.
pub enum Compact {
    BuiltIn(ApiServer),
    /// Asks etcd, over its own HTTP.
    Etcd(Client),
}

/// A server to be asked.
pub struct Target {
    shared: Arc<Shared>,
    real: bool,
}

#[derive(Default)]
pub struct Outcome {
    pub passed: usize,
    pub expected: usize,
    pub failures: Vec<String>,
}

// === impl Entry ===

impl Entry {
    /// `rules: name`, as in the record.
    pub fn title(&self) -> String {
        format!("{}: {}", self.rules, self.name)
    }
}

// === impl Target ===

impl Target {
    pub async fn built_in() -> (Serving, Self) {
        let server = ApiServer::builder()
            .rbac()
            .token(ADMIN, User::new("reeve-admin", [MASTERS]))
            .start()
            .await
            .expect("the built-in server starts");
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let serving = server.serve(address).await.expect("it listens");
        let client = Client::with_token(serving.local_addr(), ADMIN);
        let target = Self::new(client, Compact::BuiltIn(server), false);
        prepare(&target.shared).await;
        (serving, target)
    }

    pub async fn real() -> Option<(ControlPlane, Self)> {
        let mut control_plane = assets::control_plane()?
            .controller_manager(true)
            // It would put a ConfigMap into every namespace.
            .controller_manager_argument(
                "--controllers=*,-root-ca-certificate-publisher-controller",
            )
            .start()
            .await
            .expect("the control plane starts");
        let address = control_plane
            .url()
            .trim_start_matches("https://")
            .parse()
            .expect("an address");
        let client = Client::with_tls(
            address,
            control_plane.certificate_authority(),
            control_plane.admin_token(),
        );
        let etcd = control_plane
            .etcd_url()
            .trim_start_matches("http://")
            .parse()
            .expect("an address");
        let target = Self::new(client, Compact::Etcd(Client::plain(etcd)), true);
        prepare(&target.shared).await;
        // Its garbage collector looks for new kinds only every 30 s, but at the start too.
        control_plane.stop_controller_manager();
        control_plane
            .start_controller_manager()
            .await
            .expect("the controller manager starts again");
        Some((control_plane, target))
    }

    /// The document at `path`.
    pub async fn document(&self, path: &str) -> Value {
        let client = &self.shared.client;
        let reply = client
            .send(&Method::GET, path, &HeaderMap::new(), Bytes::new())
            .await;
        serde_json::from_slice(&reply.body).expect("a document is JSON")
    }

    fn new(client: Client, compact: Compact, real: bool) -> Self {
        let unique = reeve_clock::Clock::system().random().next_u64() & 0xff_ffff;
        let run = format!("{unique:06x}");
        let group = format!("conf-{run}.example.com");
        let shared = Arc::new(Shared {
            client,
            run,
            group,
            compact,
        });
        Self { shared, real }
    }
}

/// Runs all cases. `differences` must fail, all others must not.
pub async fn run(target: &Target, differences: &[(&str, &str)]) -> Outcome {
    let wanted = std::env::var("REEVE_CASE").unwrap_or_default();
    let entries: Vec<Entry> = cases::all()
        .into_iter()
        .filter(|entry| entry.title().contains(&wanted))
        .collect();
    let heard = converse(target, &entries).await;
    if target.real && std::env::var_os("REEVE_RECORD").is_some() {
        assert!(
            wanted.is_empty(),
            "a part cannot be recorded: unset REEVE_CASE"
        );
        return record(&entries, heard);
    }
    let mut sections = BTreeMap::new();
    let mut outcome = Outcome::default();
    for entry in &entries {
        let title = entry.title();
        let recorded = sections
            .entry(entry.section)
            .or_insert_with(|| recorded::read(entry.section));
        let problem = match (&heard[&title], recorded.get(&title)) {
            (Err(panic), _) => Some(panic.clone()),
            (Ok(heard), None) => Some(format!(
                "nothing is recorded: run with REEVE_RECORD=1 and KUBEBUILDER_ASSETS; heard:\n{}",
                heard.join("\n")
            )),
            (Ok(heard), Some(recorded)) => {
                let difference = recorded::difference(recorded, heard);
                (!difference.is_empty()).then(|| difference.join("\n"))
            }
        };
        let reason = differences
            .iter()
            .find(|(name, _)| *name == title)
            .map(|(_, reason)| *reason);
        match (problem, reason) {
            (None, None) => outcome.passed += 1,
            (Some(_), Some(_)) => outcome.expected += 1,
            (Some(problem), None) => outcome.failures.push(format!("FAILED {title}\n{problem}")),
            (None, Some(reason)) => outcome.failures.push(format!(
                "PASSES {title}\nthe table of differences says that it does not ({reason}): remove it there"
            )),
        }
    }
    outcome
}

fn record(entries: &[Entry], mut heard: BTreeMap<String, Result<Vec<String>, String>>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut sections: BTreeMap<&str, Vec<(String, Vec<String>)>> = BTreeMap::new();
    for entry in entries {
        let title = entry.title();
        match heard.remove(&title) {
            Some(Ok(lines)) => {
                sections
                    .entry(entry.section)
                    .or_default()
                    .push((title, lines));
                outcome.passed += 1;
            }
            Some(Err(problem)) => outcome.failures.push(format!("FAILED {title}\n{problem}")),
            None => {}
        }
    }
    for (section, blocks) in sections {
        recorded::write(section, &blocks);
    }
    outcome
}

async fn converse(
    target: &Target,
    entries: &[Entry],
) -> BTreeMap<String, Result<Vec<String>, String>> {
    let (last, first): (Vec<_>, Vec<_>) = entries
        .iter()
        .copied()
        .enumerate()
        .partition(|(_, entry)| entry.section == "history");
    let mut heard = converse_at_once(target, &first, AT_ONCE).await;
    // These make the server forget what others would still ask for.
    heard.extend(converse_at_once(target, &last, 1).await);
    heard
}

async fn converse_at_once(
    target: &Target,
    entries: &[(usize, Entry)],
    at_once: usize,
) -> BTreeMap<String, Result<Vec<String>, String>> {
    let permits = Arc::new(Semaphore::new(at_once));
    let mut tasks = JoinSet::new();
    let mut titles = BTreeMap::new();
    for (number, entry) in entries.iter().copied() {
        let (permits, shared) = (Arc::clone(&permits), Arc::clone(&target.shared));
        let handle = tasks.spawn(async move {
            let _permit = permits.acquire_owned().await.expect("never closed");
            let conversation = async {
                let mut case = Case::new(shared, number).await;
                (entry.run)(&mut case).await;
                case.transcript()
            };
            timeout(CASE_WITHIN, conversation)
                .await
                .map_err(|_| format!("took longer than {CASE_WITHIN:?}"))
        });
        titles.insert(handle.id(), entry.title());
    }
    let mut heard = BTreeMap::new();
    while let Some(result) = tasks.join_next_with_id().await {
        let (id, lines) = match result {
            Ok((id, lines)) => (id, lines),
            Err(error) => (error.id(), Err(panic_text(error))),
        };
        heard.insert(titles[&id].clone(), lines);
    }
    heard
}

fn panic_text(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "cancelled".to_owned();
    };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panicked".to_owned())
}

/// Creates the kinds that many cases use, and waits until each takes objects.
async fn prepare(shared: &Arc<Shared>) {
    let case = Case::new(Arc::clone(shared), 999).await;
    for definition in cases::kinds::shared() {
        case.setup(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            definition,
        )
        .await;
    }
    for (plural, kind, namespaced) in cases::kinds::SHARED {
        let collection = if *namespaced {
            format!("/apis/{{group}}/v1/namespaces/{{ns}}/{plural}")
        } else {
            format!("/apis/{{group}}/v1/{plural}")
        };
        case.until(&collection, |answer| answer.code == 200).await;
        let object: Value =
            json!({"apiVersion": "{group}/v1", "kind": kind, "metadata": {"name": "{me}"}});
        case.setup("POST", &collection, object).await;
        case.setup("DELETE", &format!("{collection}/{{me}}"), Value::Null)
            .await;
    }
}
