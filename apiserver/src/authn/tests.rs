use super::*;
use crate::rbac::{Attributes, Policy};
use http::HeaderValue;
use serde_json::json;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn spec() -> TokenSpec {
    TokenSpec {
        namespace: "shop".to_owned(),
        name: "builder".to_owned(),
        uid: "u-1".to_owned(),
        audiences: vec![API_AUDIENCE.to_owned()],
        issued: at("2026-01-01T00:00:00Z"),
        expires: Some(at("2026-01-01T01:00:00Z")),
        id: "j-1".to_owned(),
        bound: None,
    }
}

fn builder_lives(namespace: &str, name: &str) -> Option<String> {
    ((namespace, name) == ("shop", "builder")).then(|| "u-1".to_owned())
}

fn authenticator() -> Authenticator {
    Authenticator::new(Settings::new(b"key".to_vec()).anonymous(Anonymous::Unprivileged))
}

#[test]
fn a_signed_token_is_its_service_account() {
    let authenticator = authenticator();
    let token = authenticator.sign(&spec());
    let headers = HeaderMap::from_iter([(
        AUTHORIZATION,
        HeaderValue::from_str(&format!("Bearer {token}")).unwrap(),
    )]);
    let user = authenticator
        .authenticate(&headers, None, at("2026-01-01T00:30:00Z"), &builder_lives)
        .unwrap();
    assert_eq!(user.name, "system:serviceaccount:shop:builder");
    assert_eq!(
        user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:shop",
            "system:authenticated"
        ]
    );
    assert_eq!(
        user.extra["authentication.kubernetes.io/credential-id"],
        ["JTI=j-1"]
    );
}

#[test]
fn a_token_ends_with_its_time_its_account_and_its_key() {
    let authenticator = authenticator();
    let token = authenticator.sign(&spec());
    let verify = |token: &str, now, accounts: AccountLookup<'_>| {
        authenticator.authenticate_bearer(token, at(now), accounts)
    };
    let during = "2026-01-01T00:30:00Z";
    assert_eq!(
        verify(&token, "2026-01-01T01:00:00Z", &builder_lives),
        Err(TokenError::Expired)
    );
    assert_eq!(
        verify(&token, during, &|_, _| None),
        Err(TokenError::Invalidated)
    );
    assert_eq!(
        verify(&token, during, &|_, _| Some("u-2".to_owned())),
        Err(TokenError::Invalidated)
    );
    let other = Authenticator::new(Settings::new(b"other".to_vec()));
    assert_eq!(
        verify(&other.sign(&spec()), during, &builder_lives),
        Err(TokenError::Invalid)
    );
    let mut tampered = token.clone();
    tampered.insert(30, 'x');
    assert_eq!(
        verify(&tampered, during, &builder_lives),
        Err(TokenError::Invalid)
    );
}

#[test]
fn a_token_for_another_audience_does_not_open_this_api() {
    let authenticator = authenticator();
    let token = authenticator.sign(&TokenSpec {
        audiences: vec!["vault".to_owned()],
        ..spec()
    });
    let headers = HeaderMap::from_iter([(
        AUTHORIZATION,
        HeaderValue::from_str(&format!("Bearer {token}")).unwrap(),
    )]);
    let refused = authenticator
        .authenticate(&headers, None, at("2026-01-01T00:30:00Z"), &builder_lives)
        .unwrap_err();
    assert_eq!(refused.code, 401);
}

#[test]
fn another_scheme_counts_as_no_credentials() {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Basic abc"))]);
    let user = authenticator()
        .authenticate(&headers, None, at("2026-01-01T00:30:00Z"), &builder_lives)
        .unwrap();
    assert_eq!(user, User::anonymous());
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn impersonating_a_group_without_a_user_is_refused() {
    let status = Impersonation::of(&headers(&[("impersonate-group", "g")])).unwrap_err();
    assert_eq!(
        status.message,
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string(nil)} without impersonating a user name"
    );
}

#[test]
fn an_impersonated_service_account_is_in_the_groups_of_service_accounts() {
    let wanted = Impersonation::of(&headers(&[
        ("impersonate-user", "system:serviceaccount:a:b"),
        ("impersonate-extra-a%2Fb", "c"),
    ]));
    let user = wanted
        .unwrap()
        .unwrap()
        .apply(&User::admin(), &Policy::default(), &Attributes::default())
        .unwrap();
    assert_eq!(
        user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:a",
            "system:authenticated"
        ]
    );
    assert_eq!(user.extra["a/b"], ["c"]);
}

#[test]
fn an_account_that_may_impersonate_one_user_may_not_impersonate_another() {
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"]}]});
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"kind": "ClusterRole", "name": "r"}});
    let policy = Policy::new([], [&role], [], [&binding]);
    let bob = User::new("bob", [AUTHENTICATED]);
    let request = Attributes::resource("list", "", "pods");
    let as_user = |name| {
        Impersonation::of(&headers(&[("impersonate-user", name)]))
            .unwrap()
            .unwrap()
    };
    assert_eq!(
        as_user("jane").apply(&bob, &policy, &request).unwrap().name,
        "jane"
    );
    assert_eq!(
        as_user("joe")
            .apply(&bob, &policy, &request)
            .unwrap_err()
            .message,
        "pods is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" at the cluster scope"
    );
}
