//! Starts a server, prepares the shared kinds, and runs the cases, some at a time.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_apiserver::assets;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::{ApiServer, Serving};
use reeve_serve::http::Running;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::conformance::case::Case;
use crate::conformance::cases;
use crate::conformance::client::Client;
use crate::conformance::differences::Difference;
use crate::conformance::recorded;

/// The number of cases that run at once.
const AT_ONCE: usize = 12;
const CASE_WITHIN: Duration = Duration::from_secs(240);

/// One case.
#[derive(Clone, Copy)]
pub struct Entry {
    pub section: &'static str,
    pub rules: &'static str,
    pub name: &'static str,
    pub run: for<'a> fn(&'a mut Case) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

/// The shared state of all cases of a run.
pub struct Shared {
    pub client: Client,
    /// Distinguishes the names of this run from those of other runs.
    pub run: String,
    /// The group of the shared kinds.
    pub group: String,
    /// Drops history up to a version.
    pub compact: Compact,
    /// The webhooks that outlive their cases.
    pub kept: Mutex<Vec<Arc<Running>>>,
}

/// The way to drop history.
pub enum Compact {
    BuiltIn(ApiServer),
    /// A compaction of etcd, through its own HTTP interface.
    Etcd(Client),
}

/// A server for the requests.
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
        let (server, serving, client) = Client::built_in().await;
        let target = Self::new(client, Compact::BuiltIn(server), false);
        prepare(&target.shared).await;
        (serving, target)
    }

    pub async fn real() -> Option<(ControlPlane, Self)> {
        let mut control_plane = assets::control_plane()?
            .controller_manager(true)
            // This controller would create a ConfigMap in every namespace.
            .controller_manager_argument(
                "--controllers=*,-root-ca-certificate-publisher-controller",
            )
            .start()
            .await
            .expect("the control plane starts");
        let client = Client::real(&control_plane);
        let etcd = control_plane
            .etcd_url()
            .trim_start_matches("http://")
            .parse()
            .expect("an address");
        let target = Self::new(client, Compact::Etcd(Client::plain(etcd)), true);
        prepare(&target.shared).await;
        // Its garbage collector checks for new kinds at the start, and then every 30 s.
        control_plane.stop_controller_manager();
        control_plane
            .start_controller_manager()
            .await
            .expect("the controller manager starts again");
        Some((control_plane, target))
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
            kept: Mutex::default(),
        });
        Self { shared, real }
    }
}

/// The reason why a case does not match the record.
#[derive(Debug)]
enum Problem {
    /// The case panicked, took too long, or has no record.
    Broke(String),
    /// The differences from the record.
    Differs(Vec<String>),
}

impl Problem {
    fn text(&self) -> String {
        match self {
            Self::Broke(text) => text.clone(),
            Self::Differs(lines) => lines.join("\n"),
        }
    }
}

/// The cases whose title contains `wanted`.
pub fn select(wanted: &str) -> Result<Vec<Entry>, String> {
    let mut entries = cases::all();
    entries.retain(|entry| entry.title().contains(wanted));
    if entries.is_empty() {
        return Err(format!(
            "REEVE_CASE={wanted}: no case has this in its title"
        ));
    }
    Ok(entries)
}

/// Runs all cases. Those in `differences` must fail as listed; all others must pass.
pub async fn run(target: &Target, differences: &[Difference]) -> Outcome {
    let wanted = std::env::var("REEVE_CASE").unwrap_or_default();
    let entries = select(&wanted).unwrap_or_else(|problem| panic!("{problem}"));
    let heard = converse(target, &entries).await;
    if target.real && std::env::var_os("REEVE_RECORD").is_some() {
        assert!(
            wanted.is_empty(),
            "cannot record only some cases: unset REEVE_CASE"
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
            (Err(panic), _) => Some(Problem::Broke(panic.clone())),
            (Ok(heard), None) => Some(Problem::Broke(format!(
                "no record: run with REEVE_RECORD=1 and KUBEBUILDER_ASSETS; received:\n{}",
                heard.join("\n")
            ))),
            (Ok(heard), Some(recorded)) => {
                let difference = recorded::difference(recorded, heard);
                (!difference.is_empty()).then_some(Problem::Differs(difference))
            }
        };
        let listed = differences.iter().find(|listed| listed.case == title);
        match judge(&title, problem.as_ref(), listed) {
            Ok(()) if problem.is_none() => outcome.passed += 1,
            Ok(()) => outcome.expected += 1,
            Err(failure) => outcome.failures.push(failure),
        }
    }
    outcome
}

/// Checks that a case matches its record, or differs as listed.
fn judge(
    title: &str,
    problem: Option<&Problem>,
    listed: Option<&Difference>,
) -> Result<(), String> {
    match (problem, listed) {
        (None, None) => Ok(()),
        (Some(problem), None) => Err(format!("FAILED {title}\n{}", problem.text())),
        (None, Some(listed)) => Err(format!(
            "PASSES {title}\nthe table of differences lists it ({}): remove it there",
            listed.reason
        )),
        (Some(Problem::Differs(lines)), Some(listed)) if listed.explains(lines) => Ok(()),
        (Some(problem), Some(listed)) => Err(format!(
            "FAILED {title}\nnot as in the table of differences ({}), which expects {:?}:\n{}",
            listed.reason,
            listed.expected,
            problem.text()
        )),
    }
}

#[test]
fn a_listed_difference_passes_only_exactly_as_listed() {
    let listed = Difference {
        case: "A-1: x",
        reason: "why",
        expected: &["+ < 415", ".managedFields"],
    };
    let judge = |problem: &Problem| judge("A-1: x", Some(problem), Some(&listed)).is_ok();
    let differs =
        |lines: &[&str]| Problem::Differs(lines.iter().map(|&line| line.to_owned()).collect());
    let pair = "- .managedFields: 1\n+ .managedFields: (absent)";
    let code = "- < 201\n+ < 415";
    let body = "- .kind: \"ConfigMap\"\n+ .kind: \"Status\"";
    let says = "- .message: (absent)\n+ .message: \"oh\"";
    let next = "  > GET /";
    assert!(judge(&differs(&[next, code, next, pair])));
    assert!(judge(&differs(&[next, code, body, next, pair])));
    assert!(!judge(&differs(&[next, code])), "one is missing");
    assert!(
        !judge(&differs(&[next, code, next, pair, body])),
        "one is new"
    );
    assert!(
        !judge(&differs(&[next, code, says, next, pair])),
        "another text"
    );
    for broke in ["took longer than 60s", "+ < 415 .managedFields"] {
        assert!(!judge(&Problem::Broke(broke.to_owned())), "{broke}");
    }
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
    // These make the server drop history that other cases still need.
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

/// Creates the shared kinds, and waits until each accepts objects.
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
