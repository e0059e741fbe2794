//! The filter: one handler behind the reviews of its requests.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use reeve_clock::Clock;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::cache::{Cache, digest};
use super::reviewer::REVIEW_TIMEOUT;
use super::{Refusal, ReviewError, Reviewer, User};
use crate::http::Handler;

/// How long the user of a token is cached.
const TOKEN_TTL: Duration = Duration::from_secs(60);
/// How long a review without a user and with an error is cached: long enough that a wrong token costs few reviews, and
/// short enough for a good token whose issuer failed.
const UNSURE_TTL: Duration = Duration::from_secs(2);
/// How long it is cached that a user is allowed.
const ALLOWED_TTL: Duration = Duration::from_secs(5 * 60);
/// How long it is cached that a user is not allowed.
const DENIED_TTL: Duration = Duration::from_secs(30);

const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PAUSE_FACTOR: f64 = 1.5;
const PAUSE_JITTER: f64 = 0.2;

/// Reviews that may run at once.
const REVIEWS: usize = 16;

/// Lets in the requests that a [`Reviewer`] allows. Clones share the caches.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    reviewer: Arc<dyn Reviewer>,
    clock: Clock,
    tokens: Cache<Option<User>>,
    decisions: Cache<bool>,
    reviews: Semaphore,
}

// === impl Access ===

impl Access {
    /// A filter with `reviewer`.
    #[must_use]
    pub fn new(reviewer: impl Reviewer, clock: Clock) -> Self {
        Self::shared(Arc::new(reviewer), clock)
    }

    /// As [`Access::new`], with a reviewer shared with other code.
    #[must_use]
    pub fn shared(reviewer: Arc<dyn Reviewer>, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            reviewer,
            clock,
            tokens: Cache::new(),
            decisions: Cache::new(),
            reviews: Semaphore::new(REVIEWS),
        }))
    }

    /// Puts the filter in front of `handler`.
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

    /// The user of the request, if the request is allowed.
    ///
    /// # Errors
    /// The refusal of the request.
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
        if let Some(cached) = shared.tokens.get(&key) {
            return Ok(cached);
        }
        // Never closed.
        let _permit = shared.reviews.acquire().await;
        // Another request may have reviewed the token meanwhile.
        if let Some(cached) = shared.tokens.get(&key) {
            return Ok(cached);
        }
        let review = self.review("Authentication", || shared.reviewer.review_token(token));
        let review = review.await?.map_err(Refusal::Authentication)?;
        let user = review.user.filter(|_| review.authenticated);
        let ttl = match review.error.filter(|error| !error.is_empty()) {
            // An authenticator may have failed on a token that is good in a moment.
            Some(error) if user.is_none() => {
                tracing::debug!(%error, "the review of a token found no user");
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
        if let Some(cached) = shared.decisions.get(&key) {
            return Ok(cached);
        }
        let _permit = shared.reviews.acquire().await;
        if let Some(cached) = shared.decisions.get(&key) {
            return Ok(cached);
        }
        let review = self.review("Authorization", || {
            shared.reviewer.review_access(user, &verb, path)
        });
        let review = review.await?.map_err(|source| Refusal::Authorization {
            user: user.name.clone(),
            source,
        })?;
        let allowed = review.allowed && !review.denied;
        let ttl = if allowed { ALLOWED_TTL } else { DENIED_TTL };
        shared.decisions.put(key, allowed, ttl);
        Ok(allowed)
    }

    /// Runs a review, again after a transient error. The outer error means that there was no answer at all.
    async fn review<'a, T>(
        &self,
        what: &'static str,
        review: impl Fn() -> BoxFuture<'a, Result<T, ReviewError>>,
    ) -> Result<Result<T, ReviewError>, Refusal> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            tries += 1;
            match timeout(REVIEW_TIMEOUT, review()).await {
                Ok(Err(error)) if tries < TRIES && error.is_transient() => {
                    tracing::debug!(%error, what, "a review failed; trying again");
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

/// The token of the `Authorization` header. `Bearer` may have any case.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::super::{AccessReview, TokenReview};
    use super::*;

    type Tokens = Box<dyn Fn(&str) -> TokenReview + Send + Sync>;
    type Rules = Box<dyn Fn(&User, &str) -> AccessReview + Send + Sync>;

    /// Answers reviews with functions, and records their kinds.
    struct Scripted {
        tokens: Tokens,
        rules: Rules,
        reviews: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Reviewer for Scripted {
        fn review_token<'a>(
            &'a self,
            token: &'a str,
        ) -> BoxFuture<'a, Result<TokenReview, ReviewError>> {
            self.reviews.lock().push("token");
            Box::pin(std::future::ready(Ok((self.tokens)(token))))
        }

        fn review_access<'a>(
            &'a self,
            user: &'a User,
            verb: &'a str,
            path: &'a str,
        ) -> BoxFuture<'a, Result<AccessReview, ReviewError>> {
            assert_eq!(path, "/metrics");
            self.reviews.lock().push("access");
            Box::pin(std::future::ready(Ok((self.rules)(user, verb))))
        }
    }

    fn reviewing(
        tokens: impl Fn(&str) -> TokenReview + Send + Sync + 'static,
        rules: impl Fn(&User, &str) -> AccessReview + Send + Sync + 'static,
    ) -> (Access, Arc<Mutex<Vec<&'static str>>>) {
        let reviews: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let reviewer = Scripted {
            tokens: Box::new(tokens),
            rules: Box::new(rules),
            reviews: Arc::clone(&reviews),
        };
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        (Access::new(reviewer, clock), reviews)
    }

    /// The user `scraper` with the token as its uid.
    fn known(token: &str) -> TokenReview {
        let mut user = User::new("scraper");
        user.uid = Some(token.to_owned());
        TokenReview {
            authenticated: true,
            user: Some(user),
            error: None,
        }
    }

    fn allows(allowed: bool, denied: bool) -> AccessReview {
        AccessReview { allowed, denied }
    }

    async fn check(access: &Access, method: &Method, token: &str) -> Result<User, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        access.check(method, "/metrics", &headers).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_both_allowed_and_denied_is_denied() {
        for (denied, passes) in [(true, false), (false, true)] {
            let (access, _) = reviewing(known, move |_, _| allows(true, denied));
            let checked = check(&access, &Method::GET, "t").await;
            assert_eq!(checked.is_ok(), passes, "denied {denied}: {checked:?}");
            let refused = matches!(checked, Err(Refusal::Denied(_)));
            assert_eq!(refused, !passes, "denied {denied}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_that_is_not_authenticated_is_not_let_in() {
        let claimed = |token: &str| TokenReview {
            authenticated: false,
            ..known(token)
        };
        let (access, _) = reviewing(claimed, |_, _| allows(true, false));
        let refused = check(&access, &Method::GET, "t").await;
        assert!(matches!(refused, Err(Refusal::Unknown)), "{refused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_is_remembered_for_its_verb_and_uid_alone() {
        let (access, asked) = reviewing(known, |user, verb| {
            allows(verb == "get" && user.uid.as_deref() == Some("one"), false)
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
        let decided = reviews.iter().filter(|kind| **kind == "access");
        assert_eq!(decided.count(), 4, "one each, and the second round none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_whose_review_failed_is_reviewed_again_in_two_seconds_and_an_unknown_one_is_not()
     {
        for (error, reviews) in [("the issuer is away", 2), ("", 1)] {
            let away = Arc::new(Mutex::new(true));
            let first = Arc::clone(&away);
            let tokens = move |token: &str| {
                if *first.lock() {
                    return TokenReview {
                        error: Some(error.to_owned()),
                        ..TokenReview::default()
                    };
                }
                known(token)
            };
            let (access, asked) = reviewing(tokens, |_, _| allows(true, false));
            let refused = check(&access, &Method::GET, "t").await;
            assert!(matches!(refused, Err(Refusal::Unknown)), "{refused:?}");
            *away.lock() = false;
            sleep(UNSURE_TTL - Duration::from_millis(1)).await;
            let refused = check(&access, &Method::GET, "t").await;
            assert!(matches!(refused, Err(Refusal::Unknown)), "{refused:?}");
            assert_eq!(asked.lock().len(), 1, "{error:?}: it is cached");
            sleep(Duration::from_millis(1)).await;
            let checked = check(&access, &Method::GET, "t").await;
            assert_eq!(checked.is_ok(), reviews == 2, "{error:?}: {checked:?}");
            let asked = asked.lock();
            let tokens = asked.iter().filter(|kind| **kind == "token");
            assert_eq!(tokens.count(), reviews, "{error:?}");
        }
    }
}
