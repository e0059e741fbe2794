//! The reconciler of the ConfigMap: reads it, puts it in force, keeps the last good one.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_controller::cache::ReadError;
use reeve_controller::events::EventType;
use reeve_controller::source::{Sender, Wanted};
use reeve_controller::{Context, Outcome, Reconciler, Request, reconcile};
use reeve_workqueue::LOW_PRIORITY;

use super::block::request_of;
use super::engines::Engines;
use super::live::{Live, State};
use crate::api::IPBlock;
use crate::config::{self, Changes, Config, NotifyConfig, Options, Text};
use crate::metrics::Metrics;
use crate::notify::{Lark, LarkSettings, Notifications, Notifier, Templates};
use crate::outbound::Outbound;
use crate::policy::Protected;
use crate::secret::Secret;
use crate::target::Target;
use crate::trigger::{self, Triggers};

/// How soon a listener that could not be bound is tried again.
const LISTEN_AGAIN: Duration = Duration::from_secs(10);

/// How long the name of a gateway may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(2);

/// What a gateway is called in a refusal.
const GATEWAY: &str = "the gateway";

/// Who is told of a new configuration.
#[derive(Debug)]
pub struct Consumers {
    /// Everybody who reads it when they need it.
    pub live: Live,
    /// The engines, which are connected anew.
    pub engines: Arc<Engines>,
    /// The HTTP servers for alerts.
    pub triggers: Arc<Triggers>,
    /// Notifications.
    pub notifications: Notifications,
    /// How hooks are called.
    pub outbound: Arc<dyn Outbound>,
    /// Requests for every block.
    pub blocks: Sender<Request>,
    /// What is counted.
    pub metrics: Metrics,
}

/// Reads the ConfigMap `request` and puts it in force. Runs on every replica.
#[derive(Debug)]
pub struct ConfigurationReconciler {
    request: Request,
    options: Options,
    /// The namespace of blocks that triggers make.
    namespace: String,
    consumers: Consumers,
    known: Mutex<Known>,
}

/// What was made of the ConfigMap so far.
#[derive(Debug, Default)]
struct Known {
    /// The version that was read last.
    version: Option<String>,
    /// The version of the first configuration, which may have parts left out.
    first: Option<String>,
    /// What could not be put in force the last time.
    problems: Vec<String>,
    /// The notifier could not be made: its files have to be read again.
    unheard: bool,
    /// The last edit was refused.
    refused: bool,
}

// === impl Known ===

impl Known {
    /// Whether this is the version that was put in force first.
    fn is_first(&self, version: Option<&str>) -> bool {
        self.first.is_some() && self.first.as_deref() == version
    }

    /// Whether this version of the ConfigMap was not read before.
    fn reads(&mut self, version: Option<&str>, first: bool) -> bool {
        if first {
            self.first = version.map(str::to_owned);
        }
        let new = self.version.is_none() || self.version.as_deref() != version;
        self.version = version.map(str::to_owned);
        new
    }

    /// The changes to put in force, with what failed the last time.
    fn again(&self, mut changes: Changes) -> Changes {
        changes.notify |= self.unheard;
        changes
    }

    /// What was read is right. Whether the edit before it was not, which is news though nothing changes with it.
    fn mends(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Whether `problems` are others than the last time: what is tried again and again is told once.
    fn tells(&mut self, problems: &[String]) -> bool {
        let news = self.problems != problems;
        self.problems = problems.to_vec();
        news
    }
}

// === impl ConfigurationReconciler ===

impl ConfigurationReconciler {
    /// Reads the ConfigMap named `request`.
    #[must_use]
    pub fn new(
        request: Request,
        options: Options,
        namespace: String,
        consumers: Consumers,
    ) -> Self {
        Self {
            request,
            options,
            namespace,
            consumers,
            known: Mutex::default(),
        }
    }

    async fn read(&self, ctx: &Context) -> Result<Outcome, reconcile::Error> {
        let Some(map) = ctx.lister::<ConfigMap>()?.get(&self.request)? else {
            self.missing();
            return Ok(Outcome::done());
        };
        let data = map.data.clone().unwrap_or_default();
        let version = map.metadata.resource_version.as_deref();
        let first = self.consumers.live.config().is_none() || self.known.lock().is_first(version);
        let read = if first {
            config::parse_first(&data, &self.options)
        } else {
            config::parse(&data, &self.options)
        };
        let mut config = match read {
            Ok(config) => config,
            Err(errors) => {
                self.refuse(ctx, &map, &errors.to_string());
                return Ok(Outcome::done());
            }
        };
        let before = self.consumers.live.config();
        let unresolved = protect_gateway(&mut config, before.as_deref()).await;
        let config = Arc::new(config);
        if self.known.lock().reads(version, before.is_none()) {
            self.consumers.metrics.config_read(true);
        }
        let changes = before
            .as_ref()
            .map_or_else(Changes::all, |before| config.changes(before));
        let mut problems = self.put_in_force(ctx, &config, changes).await?;
        problems.extend(unresolved);
        let news = self.known.lock().tells(&problems);
        for problem in problems.iter().filter(|_| news) {
            tracing::warn!("{problem}");
            ctx.events().event(
                &*map,
                EventType::Warning,
                "ConfigPartly",
                "Configure",
                problem.as_str(),
            );
        }
        let mended = self.known.lock().mends();
        if !changes.is_empty() || mended {
            for dropped in &config.dropped {
                tracing::warn!(configmap = %self.request, "left out: {dropped}");
                ctx.events().event(
                    &*map,
                    EventType::Warning,
                    "ConfigPartly",
                    "Configure",
                    format!("left out, and the next edit must mend it: {dropped}"),
                );
            }
            for warning in &config.warnings {
                tracing::warn!(configmap = %self.request, "{warning}");
            }
            tracing::info!(configmap = %self.request, ?changes, "the configuration is in force");
            if before.is_some() {
                ctx.events().event(
                    &*map,
                    EventType::Normal,
                    "ConfigLoaded",
                    "Configure",
                    "the configuration is in force",
                );
            }
        }
        if problems.is_empty() {
            Ok(Outcome::done())
        } else {
            Ok(Outcome::requeue_after(LISTEN_AGAIN))
        }
    }

    /// No ConfigMap: at first there is no configuration, later the last one stays. Protection is never dropped
    /// because an object was deleted.
    fn missing(&self) {
        let live = &self.consumers.live;
        if live.config().is_some() {
            tracing::warn!(configmap = %self.request, "the ConfigMap is gone; its last content stays in force");
            return;
        }
        let why = format!(
            "the ConfigMap {} does not exist; create it with engine and gatewayHost",
            self.request
        );
        tracing::warn!("{why}");
        live.set(State::Missing(why.into()));
    }

    fn refuse(&self, ctx: &Context, map: &ConfigMap, errors: &str) {
        self.known.lock().refused = true;
        self.consumers.metrics.config_read(false);
        let live = &self.consumers.live;
        let note = if live.config().is_some() {
            format!("the configuration is wrong, the last good one stays in force: {errors}")
        } else {
            let why = format!("the ConfigMap {} is wrong: {errors}", self.request);
            live.set(State::Missing(why.as_str().into()));
            format!("the configuration is wrong, and there was none before: {errors}")
        };
        tracing::error!(configmap = %self.request, "{note}");
        ctx.events()
            .event(map, EventType::Warning, "ConfigInvalid", "Configure", note);
    }

    /// Returns what could not be put in force, and is tried again.
    async fn put_in_force(
        &self,
        ctx: &Context,
        config: &Arc<Config>,
        changes: Changes,
    ) -> Result<Vec<String>, reconcile::Error> {
        let consumers = &self.consumers;
        let mut problems = Vec::new();
        if changes.engine
            && let Ok(engine) = &config.engine
        {
            consumers.engines.forget(&engine.place);
        }
        consumers.live.set(State::Loaded(Arc::clone(config)));
        if changes.triggers {
            consumers.triggers.set(trigger::Settings {
                namespace: self.namespace.clone(),
                place: config.place().ok().cloned(),
                default_duration: config.default_duration,
                max_duration: config.max_duration,
            });
        }
        // Also without a change: it tries again what could not listen.
        let failed = consumers.triggers.apply(&config.triggers).await;
        problems.extend(failed.iter().map(ToString::to_string));
        consumers
            .live
            .serves((!problems.is_empty()).then(|| problems.join("; ")));
        if self.known.lock().again(changes).notify {
            let notifier = match &config.notify {
                None => None,
                Some(notify) => self.notifier(ctx, notify, &mut problems),
            };
            self.known.lock().unheard = notifier.is_none() && config.notify.is_some();
            consumers.notifications.set(notifier);
        }
        // The first time too: blocks may have been looked at while there was none.
        if changes.blocks {
            let blocks = match ctx.lister::<IPBlock>()?.list() {
                // Each is looked at when the cache is filled.
                Err(ReadError::NotSynced { .. }) => Vec::new(),
                read => read?,
            };
            for block in blocks {
                let wanted = Wanted::with_priority(request_of(&block), LOW_PRIORITY);
                consumers.blocks.send(wanted).await?;
            }
        }
        Ok(problems)
    }

    fn notifier(
        &self,
        ctx: &Context,
        notify: &NotifyConfig,
        problems: &mut Vec<String>,
    ) -> Option<Arc<dyn Notifier>> {
        let mut secret = |path: &Path| match std::fs::read_to_string(path) {
            Ok(text) => Some(Secret::new(text.trim())),
            Err(error) => {
                problems.push(format!("cannot read {}: {error}", path.display()));
                None
            }
        };
        let hook = match &notify.hook {
            Text::Plain(hook) => hook.clone(),
            Text::File(path) => secret(path)?,
        };
        let signing = match &notify.signing {
            None => None,
            Some(path) => Some(secret(path)?),
        };
        let files = notify
            .templates
            .iter()
            .map(|(event, path)| (*event, path.as_path()));
        let (templates, unread) = Templates::from_files(files);
        for error in unread {
            // The built-in card is used instead.
            tracing::warn!(%error, "the built-in card is used instead");
        }
        let settings = LarkSettings {
            hook,
            signing,
            templates,
            zone: notify.zone,
        };
        let outbound = Arc::clone(&self.consumers.outbound);
        Some(Arc::new(Lark::new(settings, outbound, ctx.clock().clone())))
    }
}

/// Protects the addresses behind a gateway that is given by name; by number it is protected already. Returns
/// why they are not known; then those known before stay.
async fn protect_gateway(config: &mut Config, before: Option<&Config>) -> Option<String> {
    let shown = config
        .engine
        .as_ref()
        .ok()?
        .endpoint
        .as_ref()?
        .as_str()
        .to_owned();
    let (host, port) = shown
        .strip_prefix("https://")
        .unwrap_or(&shown)
        .rsplit_once(':')?;
    if host.starts_with('[') || host.parse::<IpAddr>().is_ok() {
        return None;
    }
    match resolve(host, port.parse().ok()?).await {
        Ok(addresses) => {
            let addresses = addresses.into_iter().map(|address| Protected {
                target: Target::host(address),
                what: GATEWAY.into(),
            });
            config.policy.protected.extend(addresses);
            None
        }
        Err(error) => {
            let known = before
                .filter(|before| before.place() == config.place())
                .map(|before| before.policy.protected.iter());
            let known = known
                .into_iter()
                .flatten()
                .filter(|entry| entry.what == GATEWAY);
            config.policy.protected.extend(known.cloned());
            Some(format!(
                "the gateway {host} has no known address to protect from bans: {error}"
            ))
        }
    }
}

/// The addresses of `host`, sorted. Takes two seconds at most.
pub(crate) async fn resolve(host: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let found = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|_| "its name was not resolved in time".to_owned())?
        .map_err(|error| error.to_string())?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

impl Reconciler for ConfigurationReconciler {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
        if request != self.request {
            return Ok(Outcome::done());
        }
        self.read(&ctx).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_put_in_force_again_is_no_new_reading() {
        let mut known = Known::default();
        assert!(!known.is_first(Some("1")) && !known.is_first(None));
        assert!(known.reads(Some("1"), true));
        assert!(known.is_first(Some("1")), "and it stays as lenient");
        assert!(!known.reads(Some("1"), false), "a listener is tried again");
        assert!(known.reads(Some("2"), false));
        assert!(!known.is_first(Some("2")));
    }

    fn behind(gateway: &str) -> Config {
        let data = [("engine", "xdp"), ("gatewayHost", gateway)]
            .map(|(key, text)| (key.to_owned(), text.to_owned()));
        config::parse(&data.into(), &Options::default()).unwrap()
    }

    #[tokio::test]
    async fn the_addresses_behind_a_gateways_name_are_protected_and_stay_when_it_is_not_resolved() {
        let mut config = behind("localhost:8080");
        assert_eq!(protect_gateway(&mut config, None).await, None);
        let of = |config: &Config| config.policy.protected.clone();
        assert!(!of(&config).is_empty());
        assert!(
            of(&config)
                .iter()
                .all(|entry| entry.what == GATEWAY && entry.target.to_string() != "localhost")
        );

        let mut before = behind("gateway.invalid:8080");
        before.policy.protected = of(&config);
        let mut lost = behind("gateway.invalid:8080");
        let why = protect_gateway(&mut lost, Some(&before)).await.unwrap();
        assert!(why.contains("gateway.invalid"), "{why}");
        assert_eq!(of(&lost), of(&before));
        let mut other = behind("other.invalid:8080");
        assert!(
            protect_gateway(&mut other, Some(&before)).await.is_some() && of(&other).is_empty()
        );
    }

    #[test]
    fn the_way_back_from_a_wrong_edit_is_told_once() {
        let mut known = Known::default();
        assert!(!known.mends());
        known.refused = true;
        assert!(known.mends());
        assert!(!known.mends());
    }

    #[test]
    fn what_cannot_be_put_in_force_is_told_once_until_it_changes() {
        let mut known = Known::default();
        let busy = ["address in use".to_owned()];
        assert!(!known.tells(&[]));
        assert!(known.tells(&busy));
        assert!(!known.tells(&busy));
        assert!(known.tells(&[]));
        assert!(known.tells(&busy), "it came back");
    }

    #[test]
    fn a_notifier_whose_secret_could_not_be_read_is_made_again_without_an_edit() {
        let mut known = Known::default();
        let nothing = Changes::default();
        assert_eq!(known.again(nothing), nothing);
        known.unheard = true;
        assert!(known.again(nothing).notify);
    }
}
