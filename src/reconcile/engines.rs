//! Engines by place: the configured one, and those that blocks were banned at before.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::{EngineStatus, Place};
use crate::config::EngineConfig;
use crate::decide::{Call, Failure, Operation};
use crate::engine::{self, Ban, Endpoint, Engine, GuardSettings, Guarded, Kind, Remaining};
use crate::mounted::{MountedFile, Stamp};
use crate::outbound::{AddressPolicy, Http, Limits};
use crate::secret::Secret;
use crate::sets::Sets;

/// How many engines are kept connected: there are never more than a handful of gateways at once, and edited annotations
/// cannot add others.
const KEPT: usize = 8;

/// Why there is no engine for a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// This program has no such engine.
    #[error(transparent)]
    Engine(#[from] engine::UnknownEngine),
    /// The gateway's address cannot be used.
    #[error(transparent)]
    Endpoint(#[from] engine::ParseEndpointError),
    /// A mounted file cannot be read.
    #[error("cannot read {path}: {message}")]
    File {
        /// The file.
        path: String,
        /// The error of the system.
        message: String,
    },
    /// The HTTP client cannot be made.
    #[error("{0}")]
    Client(String),
}

/// Makes engines. The seam between the shell and the network.
pub trait Connector: Send + Sync + fmt::Debug {
    /// The engine of `place`, with the settings of `config` if that is its place.
    ///
    /// # Errors
    /// When it cannot be made. The gateway is not called.
    fn connect(
        &self,
        place: &Place,
        config: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError>;

    /// The files that [`connect`](Self::connect) would read: when they differ from the last time, the engine is made
    /// again.
    fn credentials(&self, _: &Place, _: Option<&EngineConfig>) -> Credentials {
        Credentials::default()
    }
}

/// The mounted files an engine is made from, as they are now: time of change and length of each, `None` when
/// it cannot be read. A Secret that is rotated changes the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials(Vec<Stamp>);

/// Connects to gateways over HTTP.
#[derive(Clone, Debug)]
pub struct Gateways {
    /// Loopback gateways may be called.
    pub allow_loopback: bool,
    /// Calls at once, and when to stop calling.
    pub guard: GuardSettings,
    /// What is counted.
    pub metrics: engine::Metrics,
}

/// Engines that were connected, by place.
#[derive(Debug)]
pub struct Engines {
    connector: Arc<dyn Connector>,
    /// The latest used at the back.
    kept: Mutex<VecDeque<Kept>>,
    /// The engines that follow the set of bans.
    sets: Option<Arc<Sets>>,
}

/// A call that succeeded.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// The result of a ban.
    pub(crate) ban: Option<Ban>,
    /// The engines that follow the set, if there are any, and what they do about a ban.
    pub(crate) engines: Vec<EngineStatus>,
}

/// When credentials that could not be used are tried again although their files did not change.
const AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Kept {
    place: Place,
    engine: Arc<dyn Engine>,
    credentials: Credentials,
    /// Credentials that could not be used, and when that was tried.
    unusable: Option<(Credentials, Instant)>,
}

// === impl Credentials ===

impl Credentials {
    fn of<'a>(files: impl IntoIterator<Item = &'a MountedFile>) -> Self {
        Self(files.into_iter().map(MountedFile::stamp).collect())
    }
}

// === impl Gateways ===

impl Connector for Gateways {
    fn connect(
        &self,
        place: &Place,
        config: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        let kind: Kind = place.engine.parse()?;
        // A former gateway never gets the credentials of the configured one.
        let config = config.filter(|config| config.place == *place);
        let mut limits = Limits::default();
        let mut http = Http::builder().policy(AddressPolicy {
            allow_loopback: self.allow_loopback,
        });
        let mut bearer = None;
        if let Some(config) = config {
            limits.connect = config.connect_timeout;
            limits.total = config.request_timeout;
            if let Some(file) = &config.authority_file {
                http = http.authority(read(file)?);
            }
            if let Some(file) = &config.bearer_token_file {
                let token = String::from_utf8_lossy(&read(file)?).trim().to_owned();
                bearer = Some(Secret::new(token));
            }
        }
        let http = http
            .limits(limits)
            .build()
            .map_err(|error| ConnectError::Client(error.to_string()))?;
        let endpoint = || -> Result<Endpoint, ConnectError> {
            let endpoint = Endpoint::parse(&place.endpoint)?;
            Ok(match bearer {
                Some(token) => endpoint.with_bearer(token),
                None => endpoint,
            })
        };
        let engine = kind.connect(endpoint, Arc::new(http))?;
        Ok(Arc::new(Guarded::new(
            engine,
            self.guard,
            self.metrics.clone(),
        )))
    }

    fn credentials(&self, place: &Place, config: Option<&EngineConfig>) -> Credentials {
        let config = config.filter(|config| config.place == *place);
        Credentials::of(config.into_iter().flat_map(|config| {
            config
                .authority_file
                .iter()
                .chain(&config.bearer_token_file)
        }))
    }
}

fn read(file: &MountedFile) -> Result<Vec<u8>, ConnectError> {
    file.read().map_err(|error| ConnectError::File {
        path: file.to_string(),
        message: error.to_string(),
    })
}

// === impl Engines ===

impl Engines {
    /// No engine yet; they are made by `connector` when first used.
    #[must_use]
    pub fn new(connector: Arc<dyn Connector>) -> Self {
        Self {
            connector,
            kept: Mutex::default(),
            sets: None,
        }
    }

    /// Takes each call into the set of `sets` too, and has it confirmed by their engines.
    #[must_use]
    pub fn with_sets(mut self, sets: Arc<Sets>) -> Self {
        self.sets = Some(sets);
        self
    }

    /// The engine of `place`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn get(
        &self,
        place: &Place,
        config: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        let credentials = self.connector.credentials(place, config);
        let mut kept = self.kept.lock();
        let position = kept.iter().position(|known| known.place == *place);
        if let Some(mut known) = position.and_then(|position| kept.remove(position)) {
            let tried = known.unusable.as_ref();
            let tried = tried.is_some_and(|(it, at)| *it == credentials && at.elapsed() < AGAIN);
            if known.credentials != credentials && !tried {
                // While a file is being replaced the earlier credentials are still the best.
                match self.connector.connect(place, config) {
                    Ok(engine) => {
                        tracing::info!(%place, "took the gateway's new credentials");
                        known.engine = engine;
                        known.credentials = credentials;
                        known.unusable = None;
                    }
                    Err(error) => {
                        tracing::warn!(%place, %error, "could not use the gateway's new credentials; keeping the earlier ones");
                        known.unusable = Some((credentials, Instant::now()));
                    }
                }
            }
            let engine = Arc::clone(&known.engine);
            kept.push_back(known);
            return Ok(engine);
        }
        let engine = self.connector.connect(place, config)?;
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(Kept {
            place: place.clone(),
            engine: Arc::clone(&engine),
            credentials,
            unusable: None,
        });
        Ok(engine)
    }

    /// Makes `call`, with the credentials of the `configured` gateway if it goes there, while the set engines follow.
    pub(crate) async fn call(
        &self,
        call: &Call,
        configured: Option<&EngineConfig>,
    ) -> Result<Answered, Failure> {
        let Some(sets) = &self.sets else {
            let ban = self.call_one(call, configured).await?;
            let engines = Vec::new();
            return Ok(Answered { ban, engines });
        };
        let changed = sets.record(call);
        let limit = configured.map_or(Limits::default().total, |config| config.request_timeout);
        let confirmed = sets.confirm(&changed, limit);
        let place = &call.standing.place;
        let own = place.engine != Kind::Sets.name();
        // What the gateway cannot express is left to the set engines.
        let refusal = place.engine.parse::<Kind>().ok();
        let refusal = refusal.and_then(|kind| kind.capabilities().refusal(&call.standing.target));
        let called = async {
            match &refusal {
                None => self.call_one(call, configured).await,
                Some(_) => Ok(None),
            }
        };
        let (called, followed) = tokio::join!(called, confirmed);
        let (mut engines, followed) = match followed {
            Ok(engines) => (engines, None),
            Err(mut failure) => (std::mem::take(&mut failure.engines), Some(failure)),
        };
        let bans = matches!(call.operation, Operation::Ban(_));
        let enforced = own && refusal.is_none();
        let nowhere = bans && !enforced && followed.is_none();
        if nowhere && engines.iter().all(|engine| !engine.enforced) {
            return Err(nowhere_taken(engines));
        }
        if own && !engines.is_empty() {
            let failed = called.as_ref().err();
            let first = EngineStatus {
                name: place.engine.clone(),
                // A ban that could not be lifted may stand.
                enforced: enforced && bans == failed.is_none(),
                message: failed.map_or(refusal, |failure| Some(failure.message.clone())),
            };
            engines.insert(0, first);
        }
        match (called, followed) {
            (Ok(ban), None) => Ok(Answered { ban, engines }),
            (Err(failure), _) | (Ok(_), Some(failure)) => Err(Failure { engines, ..failure }),
        }
    }

    async fn call_one(
        &self,
        call: &Call,
        configured: Option<&EngineConfig>,
    ) -> Result<Option<Ban>, Failure> {
        let engine = self.get(&call.standing.place, configured);
        let engine = engine.map_err(|error| Failure {
            reason: "EngineUnusable".into(),
            message: error.to_string(),
            ..Failure::default()
        })?;
        let (target, place) = (&call.standing.target, &call.standing.place);
        let is_configured = configured.is_some_and(|config| config.place == *place);
        let answer = match call.operation {
            Operation::Ban(left) => engine.ban(target, left.map(Remaining::new)).await.map(Some),
            Operation::Unban => engine.unban(target).await.map(|_| None),
        };
        let shown = |error: engine::Error| {
            if is_configured {
                error
            } else {
                error.without_answer()
            }
        };
        answer.map_err(shown).map_err(|error| Failure {
            reason: error.reason().into(),
            message: error.to_string(),
            may_have_happened: error.may_have_happened(),
            engines: Vec::new(),
        })
    }

    /// Connects `place` again when it is next used: its time-outs or credentials changed.
    pub fn forget(&self, place: &Place) {
        self.kept.lock().retain(|known| known.place != *place);
    }
}

/// No engine can take a ban.
fn nowhere_taken(engines: Vec<EngineStatus>) -> Failure {
    let why = engines.iter().filter_map(|it| it.message.as_deref());
    let why: Vec<&str> = why.collect();
    let why = if why.is_empty() {
        "none is configured".to_owned()
    } else {
        why.join("; ")
    };
    Failure {
        reason: "Unsupported".into(),
        message: format!("no set engine can take the ban: {why}"),
        may_have_happened: false,
        engines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Counting(Mutex<Vec<Place>>, Mutex<Credentials>);

    impl Connector for Counting {
        fn connect(
            &self,
            place: &Place,
            _: Option<&EngineConfig>,
        ) -> Result<Arc<dyn Engine>, ConnectError> {
            self.0.lock().push(place.clone());
            Ok(Arc::new(engine::DryRun::new()))
        }

        fn credentials(&self, _: &Place, _: Option<&EngineConfig>) -> Credentials {
            self.1.lock().clone()
        }
    }

    #[test]
    fn a_rotated_secret_makes_the_engine_again_and_an_unchanged_one_does_not() {
        let connector = Arc::new(Counting::default());
        let engines = Engines::new(Arc::clone(&connector) as Arc<dyn Connector>);
        let place = Place::new("dry-run", "");
        let calls = || {
            engines.get(&place, None).unwrap();
            connector.0.lock().len()
        };
        assert_eq!((calls(), calls()), (1, 1));
        *connector.1.lock() = Credentials(vec![None]);
        assert_eq!((calls(), calls()), (2, 2));
    }

    /// Connects the first time only.
    #[derive(Debug, Default)]
    struct Once(Counting);

    impl Connector for Once {
        fn connect(
            &self,
            place: &Place,
            config: Option<&EngineConfig>,
        ) -> Result<Arc<dyn Engine>, ConnectError> {
            let engine = self.0.connect(place, config)?;
            if self.0.0.lock().len() == 1 {
                return Ok(engine);
            }
            Err(ConnectError::File {
                path: "/s/token".into(),
                message: "no such file".into(),
            })
        }

        fn credentials(&self, place: &Place, config: Option<&EngineConfig>) -> Credentials {
            self.0.credentials(place, config)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_cannot_be_used_are_tried_again_after_a_while() {
        let connector = Arc::new(Once::default());
        let engines = Engines::new(Arc::clone(&connector) as Arc<dyn Connector>);
        let place = Place::new("dry-run", "");
        let calls = || {
            for _ in 0..100 {
                engines.get(&place, None).unwrap();
            }
            connector.0.0.lock().len()
        };
        assert_eq!(calls(), 1);
        *connector.0.1.lock() = Credentials(vec![None]);
        assert_eq!(calls(), 2, "one try of the new ones");
        tokio::time::sleep(AGAIN).await;
        assert_eq!(calls(), 3);
        *connector.0.1.lock() = Credentials(Vec::new());
        assert_eq!(calls(), 3, "the earlier ones are back");
    }

    /// Every gateway answers each lift with a text.
    #[derive(Debug)]
    struct Talkative;

    impl Connector for Talkative {
        fn connect(
            &self,
            place: &Place,
            _: Option<&EngineConfig>,
        ) -> Result<Arc<dyn Engine>, ConnectError> {
            let outbound = crate::outbound::InProcess::new(|_| async {
                let text = r#"{"status":"failed","error":"canary"}"#;
                Ok(http::Response::new(bytes::Bytes::from(text)))
            });
            let kind: Kind = place.engine.parse()?;
            Ok(kind.connect(
                || engine::Endpoint::parse(&place.endpoint),
                Arc::new(outbound),
            )?)
        }
    }

    #[tokio::test]
    async fn the_text_of_a_gateway_that_is_not_configured_reaches_no_status() {
        let data = [("engine", "iptables"), ("gatewayHost", "192.0.2.250:9521")]
            .map(|(key, text)| (key.to_owned(), text.to_owned()));
        let config = crate::config::parse(&data.into(), &crate::config::Options::default());
        let config = config.unwrap().engine.unwrap();
        let engines = Engines::new(Arc::new(Talkative));
        let message = async |endpoint: &str, configured: Option<&EngineConfig>| {
            let call = Call {
                standing: crate::api::Standing {
                    target: "192.0.2.7".parse().unwrap(),
                    place: Place::new("iptables", endpoint),
                },
                operation: Operation::Unban,
                required: true,
            };
            let failure = engines.call(&call, configured).await.unwrap_err();
            assert_eq!(failure.reason, "GatewayFailed");
            failure.message
        };
        let here = "192.0.2.250:9521";
        let text = format!("gateway {here} failed: canary");
        assert_eq!(message(here, Some(&config)).await, text);
        for (endpoint, configured) in [("192.0.2.251:9521", Some(&config)), (here, None)] {
            let text = format!("gateway {endpoint} failed");
            assert_eq!(message(endpoint, configured).await, text);
        }
    }

    #[test]
    fn credentials_follow_the_files() {
        let path = std::env::temp_dir().join(format!("token-{}", std::process::id()));
        let files = [MountedFile::alone(&path)];
        let missing = Credentials::of(&files);
        std::fs::write(&path, "one").unwrap();
        let one = Credentials::of(&files);
        assert_eq!(one, Credentials::of(&files));
        std::fs::write(&path, "three").unwrap();
        let three = Credentials::of(&files);
        std::fs::remove_file(&path).unwrap();
        assert!(missing != one && one != three);
        assert_eq!(Credentials::of(&files), missing);
    }

    #[test]
    fn a_place_is_connected_once_and_the_number_kept_is_bounded() {
        let connector = Arc::new(Counting::default());
        let engines = Engines::new(Arc::clone(&connector) as Arc<dyn Connector>);
        let place = |number: usize| Place::new("dry-run", number.to_string());
        for _ in 0..3 {
            engines.get(&place(0), None).unwrap();
        }
        assert_eq!(connector.0.lock().len(), 1);
        for number in 1..=KEPT {
            engines.get(&place(number), None).unwrap();
        }
        assert_eq!(engines.kept.lock().len(), KEPT);
        engines.get(&place(0), None).unwrap();
        assert_eq!(
            connector.0.lock().len(),
            KEPT + 2,
            "the one longest unused was dropped"
        );
    }

    #[tokio::test]
    async fn an_annotation_cannot_aim_the_operator_at_itself_or_at_a_metadata_service() {
        let gateways = Gateways {
            allow_loopback: false,
            guard: GuardSettings::default(),
            metrics: engine::Metrics::new(),
        };
        for endpoint in ["127.0.0.1:80", "169.254.169.254:80"] {
            let engine = gateways
                .connect(&Place::new("iptables", endpoint), None)
                .unwrap();
            let error = engine
                .unban(&"192.0.2.7".parse().unwrap())
                .await
                .unwrap_err();
            assert_eq!(error.reason(), "GatewayForbidden", "{endpoint}");
        }
        for endpoint in ["http://u@h", "h:1/path?x", ""] {
            assert!(
                gateways
                    .connect(&Place::new("xdp", endpoint), None)
                    .is_err(),
                "{endpoint}"
            );
        }
    }
}
