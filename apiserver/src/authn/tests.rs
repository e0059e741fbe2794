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

fn builder_lives(resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
    let is_builder = (resource, namespace, name) == ("serviceaccounts", "shop", "builder");
    is_builder.then(|| Arc::new(json!({"metadata": {"uid": "u-1"}})))
}

/// The objects of a cluster, by resource, namespace and name.
struct Stored(Vec<((&'static str, &'static str, &'static str), Value)>);

impl Stored {
    fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let mut all = self.0.iter();
        let found = all.find(|(place, _)| *place == (resource, namespace, name));
        found.map(|(_, object)| Arc::new(object.clone()))
    }

    fn set(&mut self, resource: &str, pointer: &str, value: Value) {
        let found = self.0.iter_mut().find(|(place, _)| place.0 == resource);
        *found.unwrap().1.pointer_mut(pointer).unwrap() = value;
    }
}

/// The account of [`spec`], and one object of each kind that a token can be bound to.
fn stored() -> Stored {
    let object = |uid| json!({"metadata": {"uid": uid, "deletionTimestamp": null, "labels": {}}, "data": {}});
    Stored(vec![
        (("serviceaccounts", "shop", "builder"), object("u-1")),
        (("secrets", "shop", "s"), object("u-2")),
        (("pods", "shop", "p"), object("u-3")),
        (("nodes", "", "n"), object("u-4")),
    ])
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
    let verify = |token: &str, now, objects: ObjectLookup<'_>| {
        authenticator.authenticate_bearer(token, at(now), objects)
    };
    let during = "2026-01-01T00:30:00Z";
    assert_eq!(
        verify(&token, "2026-01-01T01:00:00Z", &builder_lives),
        Err(TokenError::Expired)
    );
    assert_eq!(
        verify(&token, during, &|_, _, _| None),
        Err(TokenError::Invalidated)
    );
    assert_eq!(
        verify(&token, during, &|_, _, _| Some(Arc::new(
            json!({"metadata": {"uid": "u-2"}})
        ))),
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
fn a_bound_token_ends_with_each_object_that_it_depends_on() {
    let authenticator = authenticator();
    let now = at("2026-01-01T00:30:00Z");
    for (kind, name, uid, resource) in [
        ("Secret", "s", "u-2", "secrets"),
        ("Pod", "p", "u-3", "pods"),
        ("Node", "n", "u-4", "nodes"),
    ] {
        let bound = BoundObject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        let token = authenticator.sign(&TokenSpec {
            bound: Some(bound),
            ..spec()
        });
        let check = |change: &dyn Fn(&mut Stored)| {
            let mut stored = stored();
            change(&mut stored);
            let find = |resource: &str, namespace: &str, name: &str| {
                stored.find(resource, namespace, name)
            };
            let found = authenticator.authenticate_bearer(&token, now, &find);
            found.map(|_| ())
        };
        assert_eq!(check(&|_| {}), Ok(()), "{kind}");
        for resource in [resource, "serviceaccounts"] {
            let ended = Err(TokenError::Invalidated);
            let is_other = |place: &(&str, &str, &str)| place.0 != resource;
            let gone = check(&|stored| stored.0.retain(|(place, _)| is_other(place)));
            assert_eq!(gone, ended, "{kind} without {resource}");
            let other = check(&|stored| stored.set(resource, "/metadata/uid", json!("u-9")));
            assert_eq!(other, ended, "{kind} with other {resource}");
            // An object that finalizers keep counts for a minute.
            let deleted = |time: &str| {
                check(&|stored| stored.set(resource, "/metadata/deletionTimestamp", json!(time)))
            };
            assert_eq!(deleted("2026-01-01T00:29:00Z"), Ok(()), "{kind} {resource}");
            assert_eq!(deleted("2026-01-01T00:28:59Z"), ended, "{kind} {resource}");
        }
    }
}

/// An authenticator with keys of its own, and a token as kube-controller-manager puts it into the Secret `s`.
fn legacy() -> (Authenticator, String) {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let keys = || AccountKeys {
        issuers: vec!["https://issuer".to_owned()],
        audiences: vec!["https://issuer".to_owned()],
        signing: keys::signing_key(pair.serialize_pem().as_bytes()).ok(),
        verifying: keys::public_keys(pair.public_key_pem().as_bytes()).unwrap(),
    };
    let claim = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
    let claims = json!({
        "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:shop:builder",
        claim("namespace"): "shop", claim("service-account.name"): "builder",
        claim("service-account.uid"): "u-1", claim("secret.name"): "s",
    });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token = keys().sign(|algorithm| {
        let head = json!({"alg": algorithm, "kid": "k"});
        format!("{}.{}", encode(&head), encode(&claims))
    });
    let settings = Settings::new(b"key".to_vec()).account_keys(keys());
    (Authenticator::new(settings), token.unwrap())
}

#[test]
fn a_token_in_a_secret_ends_with_its_secret_and_its_account() {
    use base64::Engine as _;
    let (authenticator, token) = legacy();
    let encoded = |token: &str| json!(base64::engine::general_purpose::STANDARD.encode(token));
    let check = |change: &dyn Fn(&mut Stored)| {
        let mut stored = stored();
        stored.set("secrets", "/data", json!({"token": encoded(&token)}));
        change(&mut stored);
        let find =
            |resource: &str, namespace: &str, name: &str| stored.find(resource, namespace, name);
        let now = at("2026-01-01T00:30:00Z");
        let found = authenticator.authenticate_bearer(&token, now, &find);
        found.map(|found| found.user.name)
    };
    let name = "system:serviceaccount:shop:builder".to_owned();
    assert_eq!(check(&|_| {}), Ok(name));
    let ended = Err(TokenError::Invalidated);
    for resource in ["secrets", "serviceaccounts"] {
        let is_other = |place: &(&str, &str, &str)| place.0 != resource;
        let gone = check(&|stored| stored.0.retain(|(place, _)| is_other(place)));
        assert_eq!(gone, ended, "without {resource}");
        let now = json!("2026-01-01T00:30:00Z");
        let deleted =
            check(&|stored| stored.set(resource, "/metadata/deletionTimestamp", now.clone()));
        assert_eq!(deleted, ended, "{resource} that ends");
    }
    let other = check(&|stored| stored.set("serviceaccounts", "/metadata/uid", json!("u-9")));
    assert_eq!(other, ended, "another account of the name");
    for data in [
        json!({}),
        json!({"token": encoded("another")}),
        json!({"token": 1}),
    ] {
        let replaced = check(&|stored| stored.set("secrets", "/data", data.clone()));
        assert_eq!(replaced, ended, "{data}");
    }
    let mark = json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"});
    let marked = check(&|stored| stored.set("secrets", "/metadata/labels", mark.clone()));
    assert_eq!(marked, ended, "marked as invalid");
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
