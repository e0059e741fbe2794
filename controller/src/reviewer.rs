//! Reviews for the filter of servers, by the API server.

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{self as authentication, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use reeve_serve::access::{AccessReview, ReviewError, Reviewer, TokenReview, User};

use crate::client::{Client, Error};

impl Reviewer for Client {
    fn review_token<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<TokenReview, ReviewError>> {
        Box::pin(async move {
            let review = authentication::TokenReview {
                spec: TokenReviewSpec {
                    token: token.to_owned(),
                    audiences: None,
                },
                ..authentication::TokenReview::default()
            };
            let status = self.create(&review).await.map_err(review_error)?.status;
            let status = status.unwrap_or_default();
            let mut review = TokenReview::default();
            review.authenticated = status.authenticated == Some(true);
            review.user = status.user.map(user);
            review.error = status.error;
            Ok(review)
        })
    }

    fn review_access<'a>(
        &'a self,
        user: &'a User,
        verb: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<AccessReview, ReviewError>> {
        Box::pin(async move {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(user.name.clone()),
                    uid: user.uid.clone(),
                    groups: Some(user.groups.clone()),
                    extra: Some(user.extra.clone()),
                    non_resource_attributes: Some(NonResourceAttributes {
                        path: Some(path.to_owned()),
                        verb: Some(verb.to_owned()),
                    }),
                    resource_attributes: None,
                },
                ..SubjectAccessReview::default()
            };
            let status = self.create(&review).await.map_err(review_error)?.status;
            let status = status.unwrap_or_default();
            let mut review = AccessReview::default();
            review.allowed = status.allowed;
            review.denied = status.denied == Some(true);
            Ok(review)
        })
    }
}

fn user(info: UserInfo) -> User {
    let mut user = User::new(info.username.unwrap_or_default());
    user.uid = info.uid;
    user.groups = info.groups.unwrap_or_default();
    user.extra = info.extra.unwrap_or_default();
    user
}

fn review_error(error: Error) -> ReviewError {
    ReviewError::new(error.status().map(|status| status.code), error)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    /// A client whose reviews have this status, and the specs of its reviews.
    fn answered_with(status: Value) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let specs: Arc<Mutex<Vec<Value>>> = Arc::default();
        let recorded = Arc::clone(&specs);
        let service =
            tower::service_fn(move |request: http::Request<kube_client::client::Body>| {
                let (recorded, status) = (Arc::clone(&recorded), status.clone());
                async move {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let mut review: Value = serde_json::from_slice(&body).unwrap();
                    recorded.lock().push(review["spec"].clone());
                    review["status"] = status;
                    let body = Full::new(Bytes::from(review.to_string()));
                    Ok::<_, Infallible>(http::Response::new(body))
                }
            });
        (
            Client::new(kube_client::Client::new(service, "default")),
            specs,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_review_has_all_of_the_users_attributes_or_the_error() {
        let info =
            json!({"username": "scraper", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}});
        let (client, specs) = answered_with(json!({"authenticated": true, "user": info}));
        let review = client.review_token("t").await.unwrap();
        assert_eq!(specs.lock()[0]["token"], "t");
        let mut expected = User::new("scraper");
        expected.uid = Some("7".into());
        expected.groups = vec!["g".into()];
        expected.extra = [("k".into(), vec!["v".into()])].into();
        assert!(review.authenticated);
        assert_eq!(review.user, Some(expected));

        let (client, _) = answered_with(json!({"error": "the issuer is away"}));
        let review = client.review_token("t").await.unwrap();
        let mut expected = TokenReview::default();
        expected.error = Some("the issuer is away".into());
        assert_eq!(review, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn an_access_review_asks_for_the_path_and_has_both_verdicts() {
        for (status, allowed, denied) in [
            (json!({"allowed": true}), true, false),
            (json!({"allowed": true, "denied": false}), true, false),
            (json!({"allowed": true, "denied": true}), true, true),
            (json!({"allowed": false}), false, false),
        ] {
            let (client, specs) = answered_with(status.clone());
            let mut user = User::new("scraper");
            user.uid = Some("7".into());
            let review = client
                .review_access(&user, "get", "/metrics")
                .await
                .unwrap();
            let verdicts = (review.allowed, review.denied);
            assert_eq!(verdicts, (allowed, denied), "{status}");
            let spec = specs.lock()[0].clone();
            assert_eq!(
                (&spec["user"], &spec["uid"]),
                (&json!("scraper"), &json!("7"))
            );
            let attributes = json!({"path": "/metrics", "verb": "get"});
            assert_eq!(spec["nonResourceAttributes"], attributes);
        }
    }
}
