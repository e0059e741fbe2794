//! Who may ask a server: the API server is asked who a token belongs to (TokenReview) and what they may
//! (SubjectAccessReview of the path and the method), as controller-runtime's
//! `WithAuthenticationAndAuthorization` does.
//!
//! The program's own account needs `create` on `tokenreviews` and `subjectaccessreviews`; whoever scrapes needs
//! `get` on the path, such as `nonResourceURLs: ["/metrics"]`.
//!
//! | | |
//! |---|---|
//! | no token, or one that nobody has | 401 (controller-runtime says 500 to a wrong one) |
//! | not allowed | 403 |
//! | the API server cannot be asked | 500 |
//! | the user of a token | is remembered for 1 minute, also that there is none |
//! | a review that finds no user and reports an error | is remembered for 2 seconds (apiserver: not at all, `cacheErrs` is off). An authenticator that is away for a moment is reported that way, and so is a wrong token |
//! | that somebody may | is remembered for 5 minutes; that they may not, for 30 seconds |
//! | a review | has 10 s; when those are over it is not tried again |
//! | a review that the API server fails | is tried five times: after 0.5 s, then 1.5 times as long each, and up to a fifth more |
//!
//! At most 4096 tokens and 4096 decisions are remembered, by digest; at most 16 reviews are under way.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use lru::LruCache;
use parking_lot::Mutex;
use reeve_clock::Clock;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{self, Client};
use crate::server::{Answer, Handler, text};

/// How long it is remembered who a token belongs to.
const TOKEN_TTL: Duration = Duration::from_secs(60);
/// How long it is remembered that a review found no user and reported an error: long enough that a wrong token costs few
/// reviews, and short enough for a good one whose issuer was away.
const UNSURE_TTL: Duration = Duration::from_secs(2);
/// How long it is remembered that somebody may.
const ALLOWED_TTL: Duration = Duration::from_secs(5 * 60);
/// How long it is remembered that somebody may not.
const DENIED_TTL: Duration = Duration::from_secs(30);
/// How long one review may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PAUSE_FACTOR: f64 = 1.5;
const PAUSE_JITTER: f64 = 0.2;

/// How many tokens, and how many decisions, are remembered.
const REMEMBERED: usize = 4096;
/// How many reviews may be under way.
const REVIEWS: usize = 16;

type Key = [u8; 32];

/// Lets in who the API server says may come in. Clones are one.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    client: Client,
    clock: Clock,
    tokens: Memory<Option<User>>,
    decisions: Memory<bool>,
    reviews: Semaphore,
}

/// Who asks; the extension of each request that was let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The name: `system:serviceaccount:monitoring:prometheus`.
    pub name: String,
    /// The uid.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// More, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Why somebody is not let in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Nobody knows who they are.
    #[error("Unauthorized")]
    Unknown,
    /// They may not.
    #[error("Authorization denied for user {0}")]
    Denied(String),
    /// It cannot be told who they are.
    #[error("Authentication failed")]
    Authentication(#[source] client::Error),
    /// It cannot be told whether they may.
    #[error("Authorization for user {user} failed")]
    Authorization {
        /// Who.
        user: String,
        /// Why not.
        source: client::Error,
    },
    /// The API server did not answer.
    #[error("{0} failed: the API server did not answer in {REVIEW_TIMEOUT:?}")]
    Silence(&'static str),
}

/// What is remembered, and until when.
struct Memory<V>(Mutex<LruCache<Key, (Instant, V)>>);

// === impl Memory ===

impl<V: Clone> Memory<V> {
    fn new() -> Self {
        let most = NonZeroUsize::new(REMEMBERED).unwrap_or(NonZeroUsize::MIN);
        Self(Mutex::new(LruCache::new(most)))
    }

    fn get(&self, key: &Key) -> Option<V> {
        let mut memory = self.0.lock();
        let (until, value) = memory.get(key)?;
        if *until <= Instant::now() {
            memory.pop(key);
            return None;
        }
        Some(value.clone())
    }

    fn put(&self, key: Key, value: V, ttl: Duration) {
        self.0.lock().put(key, (Instant::now() + ttl, value));
    }
}

// === impl Access ===

impl Access {
    /// Asks through `client`.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            client,
            clock,
            tokens: Memory::new(),
            decisions: Memory::new(),
            reviews: Semaphore::new(REVIEWS),
        }))
    }

    /// `handler`, for those who may.
    #[must_use]
    pub fn protect(&self, handler: Handler) -> Handler {
        let access = self.clone();
        Arc::new(move |mut request| {
            let (access, handler) = (access.clone(), Arc::clone(&handler));
            Box::pin(async move {
                let path = request.uri().path().to_owned();
                match access
                    .check(request.method(), &path, request.headers())
                    .await
                {
                    Ok(user) => {
                        request.extensions_mut().insert(user);
                        handler(request).await
                    }
                    Err(refusal) => refusal.answer(&path),
                }
            })
        })
    }

    /// Who asks, if they may.
    ///
    /// # Errors
    /// Why they are not let in.
    pub async fn check(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<User, Refusal> {
        let token = bearer(headers).ok_or(Refusal::Unknown)?;
        let user = self.authenticate(token).await?.ok_or(Refusal::Unknown)?;
        if self.authorize(&user, method, path).await? {
            Ok(user)
        } else {
            Err(Refusal::Denied(user.name))
        }
    }

    async fn authenticate(&self, token: &str) -> Result<Option<User>, Refusal> {
        let shared = &self.0;
        let key = digest([token]);
        if let Some(known) = shared.tokens.get(&key) {
            return Ok(known);
        }
        // Closed never.
        let _permit = shared.reviews.acquire().await;
        // Somebody else may have asked meanwhile.
        if let Some(known) = shared.tokens.get(&key) {
            return Ok(known);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let answered = self.ask("Authentication", &review).await?;
        let answered = answered.map_err(Refusal::Authentication)?;
        let status = answered.status.unwrap_or_default();
        let user = status
            .user
            .filter(|_| status.authenticated == Some(true))
            .map(User::from);
        let ttl = match status.error.filter(|error| !error.is_empty()) {
            // An authenticator of the API server may have failed, on a token that is good in a moment.
            Some(error) if user.is_none() => {
                tracing::debug!(%error, "the API server did not authenticate a token");
                UNSURE_TTL
            }
            _ => TOKEN_TTL,
        };
        shared.tokens.put(key, user.clone(), ttl);
        Ok(user)
    }

    async fn authorize(&self, user: &User, method: &Method, path: &str) -> Result<bool, Refusal> {
        let shared = &self.0;
        let verb = method.as_str().to_lowercase();
        let key = user.key(&verb, path);
        if let Some(known) = shared.decisions.get(&key) {
            return Ok(known);
        }
        let _permit = shared.reviews.acquire().await;
        if let Some(known) = shared.decisions.get(&key) {
            return Ok(known);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: user.uid.clone(),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let answered = self.ask("Authorization", &review).await?;
        let answered = answered.map_err(|source| Refusal::Authorization {
            user: user.name.clone(),
            source,
        })?;
        let status = answered.status.unwrap_or_default();
        let allowed = status.allowed && status.denied != Some(true);
        let ttl = if allowed { ALLOWED_TTL } else { DENIED_TTL };
        shared.decisions.put(key, allowed, ttl);
        Ok(allowed)
    }

    /// Creates a review, several times if it must be. The outer error is for no answer at all.
    async fn ask<K: client::Object>(
        &self,
        what: &'static str,
        review: &K,
    ) -> Result<Result<K, client::Error>, Refusal> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            tries += 1;
            let answer = timeout(REVIEW_TIMEOUT, self.0.client.create(review)).await;
            match answer {
                Ok(Err(error)) if tries < TRIES && may_pass(&error) => {
                    tracing::debug!(%error, what, "a review failed; it is tried again");
                }
                Ok(answered) => return Ok(answered),
                Err(_) => return Err(Refusal::Silence(what)),
            }
            sleep(self.0.clock.random().jitter(pause, PAUSE_JITTER)).await;
            pause = pause.mul_f64(PAUSE_FACTOR);
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

// === impl User ===

impl User {
    /// What a decision about this user is remembered under.
    fn key(&self, verb: &str, path: &str) -> Key {
        // Each list after its length, so that no part of one is taken for a part of another.
        let lengths: Vec<String> = std::iter::once(self.groups.len())
            .chain(self.extra.values().map(Vec::len))
            .map(|length| length.to_string())
            .collect();
        let mut lengths = lengths.iter().map(String::as_str);
        let mut parts = vec![
            verb,
            path,
            &self.name,
            self.uid.as_deref().unwrap_or_default(),
        ];
        parts.extend(lengths.next());
        parts.extend(self.groups.iter().map(String::as_str));
        for (name, values) in &self.extra {
            parts.push(name);
            parts.extend(lengths.next());
            parts.extend(values.iter().map(String::as_str));
        }
        digest(parts)
    }
}

impl From<UserInfo> for User {
    fn from(info: UserInfo) -> Self {
        Self {
            name: info.username.unwrap_or_default(),
            uid: info.uid,
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        }
    }
}

// === impl Refusal ===

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Denied(_) => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What they are told: the reason stays in the log.
    fn answer(&self, path: &str) -> Answer {
        let status = self.status();
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!(path, error = %crate::error_chain(self), "a request could not be judged");
        } else {
            tracing::debug!(path, reason = %self, "a request was refused");
        }
        let mut answer = text(status, format!("{self}\n"));
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        answer
    }
}

/// The token of the header: `Bearer` is written in any case.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Whether it is worth another try: the server was not reached, or says that it is busy or broken.
fn may_pass(error: &client::Error) -> bool {
    error
        .status()
        .is_none_or(|status| matches!(status.code, 429 | 500 | 502..=504))
}

/// A digest in which no two lists of parts are alike.
fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::clock;

    /// Answers each review with the status that `answer` names for its kind and spec, and notes the kinds.
    fn reviewing(
        answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) -> (Access, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noted, answer) = (Arc::clone(&asked), Arc::new(answer));
        let service =
            tower::service_fn(move |request: http::Request<kube_client::client::Body>| {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                async move {
                    let path = request.uri().path().to_owned();
                    let (_, kind) = path.rsplit_once('/').unwrap();
                    noted.lock().push(kind.to_owned());
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let mut review: Value = serde_json::from_slice(&body).unwrap();
                    review["status"] = answer(kind, &review["spec"]);
                    let body = Full::new(Bytes::from(review.to_string()));
                    Ok::<_, Infallible>(http::Response::new(body))
                }
            });
        let client = Client::new(kube_client::Client::new(service, "default"));
        (Access::new(client, clock()), asked)
    }

    /// The user `scraper` with the token as its uid.
    fn known(spec: &Value) -> Value {
        json!({"authenticated": true, "user": {"username": "scraper", "uid": spec["token"]}})
    }

    async fn check(access: &Access, method: &Method, token: &str) -> Result<User, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        access.check(method, "/metrics", &headers).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_both_allowed_and_denied_is_denied() {
        for (denied, passes) in [
            (json!(true), false),
            (json!(false), true),
            (json!(null), true),
        ] {
            let answered = denied.clone();
            let (access, _) = reviewing(move |kind, spec| match kind {
                "tokenreviews" => known(spec),
                _ => json!({"allowed": true, "denied": answered}),
            });
            let checked = check(&access, &Method::GET, "t").await;
            assert_eq!(checked.is_ok(), passes, "denied {denied}: {checked:?}");
            let refused = matches!(checked, Err(Refusal::Denied(_)));
            assert_eq!(refused, !passes, "denied {denied}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_is_remembered_for_its_verb_and_uid_alone() {
        let (access, asked) = reviewing(|kind, spec| match kind {
            "tokenreviews" => known(spec),
            _ => {
                let reads = spec["nonResourceAttributes"]["verb"] == "get";
                json!({"allowed": reads && spec["uid"] == "one"})
            }
        });
        for round in 0..2 {
            for (method, token, allowed) in [
                (Method::GET, "one", true),
                (Method::POST, "one", false),
                (Method::GET, "two", false),
                (Method::POST, "two", false),
            ] {
                let checked = check(&access, &method, token).await;
                assert_eq!(checked.is_ok(), allowed, "{round}: {method} {token}");
            }
        }
        let reviews = asked.lock();
        let decided = reviews
            .iter()
            .filter(|kind| *kind == "subjectaccessreviews");
        assert_eq!(decided.count(), 4, "one each, and the second round none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_whose_review_failed_is_reviewed_again_in_two_seconds_and_an_unknown_one_is_not()
     {
        for (error, reviews) in [("the issuer is away", 2), ("", 1)] {
            let away = Arc::new(Mutex::new(true));
            let first = Arc::clone(&away);
            let (access, asked) = reviewing(move |kind, spec| match kind {
                "tokenreviews" if *first.lock() => {
                    json!({"authenticated": false, "error": error})
                }
                "tokenreviews" => known(spec),
                _ => json!({"allowed": true}),
            });
            let refused = check(&access, &Method::GET, "t").await;
            assert!(matches!(refused, Err(Refusal::Unknown)), "{refused:?}");
            *away.lock() = false;
            sleep(UNSURE_TTL - Duration::from_millis(1)).await;
            let refused = check(&access, &Method::GET, "t").await;
            assert!(matches!(refused, Err(Refusal::Unknown)), "{refused:?}");
            assert_eq!(asked.lock().len(), 1, "{error:?}: it is remembered");
            sleep(Duration::from_millis(1)).await;
            let checked = check(&access, &Method::GET, "t").await;
            assert_eq!(checked.is_ok(), reviews == 2, "{error:?}: {checked:?}");
            let asked = asked.lock();
            let tokens = asked.iter().filter(|kind| *kind == "tokenreviews");
            assert_eq!(tokens.count(), reviews, "{error:?}");
        }
    }

    #[test]
    fn a_decision_about_one_user_is_not_remembered_for_another() {
        let user = |groups: &[&str], extra: &[(&str, &[&str])]| User {
            name: "scraper".into(),
            uid: None,
            groups: groups.iter().map(ToString::to_string).collect(),
            extra: extra
                .iter()
                .map(|(name, values)| {
                    let values = values.iter().map(ToString::to_string);
                    ((*name).to_owned(), values.collect())
                })
                .collect(),
        };
        let users = [
            user(&[], &[]),
            user(&["k"], &[]),
            user(&["extra", "k", "v"], &[]),
            user(&["0"], &[("k", &["v"])]),
            user(&[], &[("k", &["v"])]),
            user(&[], &[("k", &[]), ("v", &[])]),
            user(&[], &[("extra", &["k", "v"])]),
            user(&["groups"], &[]),
        ];
        let keys: Vec<Key> = users
            .iter()
            .map(|user| user.key("get", "/metrics"))
            .collect();
        for (place, key) in keys.iter().enumerate() {
            assert!(!keys[..place].contains(key), "{:?}", users[place]);
        }
    }
}
