//! Impersonation: the `Impersonate-*` headers, and the rights that they need.

use std::collections::BTreeMap;

use http::HeaderMap;

use crate::rbac::{
    ANONYMOUS, AUTHENTICATED, Attributes, Decision, Policy, UNAUTHENTICATED, User,
    service_account_groups, service_account_of,
};
use crate::status::Status;

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA: &str = "impersonate-extra-";

/// The user that a request impersonates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Impersonation {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

// === impl Impersonation ===

impl Impersonation {
    /// The impersonation in the headers; `None` without any.
    ///
    /// # Errors
    /// 400 when a group, uid or extra is impersonated without a user.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values
                .filter_map(|value| value.to_str().ok())
                .map(str::to_owned)
                .collect()
        };
        let first = |name: &str| all(name).into_iter().next().unwrap_or_default();
        let mut wanted = Self {
            user: first("impersonate-user"),
            uid: first("impersonate-uid"),
            groups: all("impersonate-group"),
            extra: BTreeMap::new(),
        };
        for name in headers.keys() {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                wanted.extra.insert(unescape(key), all(name.as_str()));
            }
        }
        if wanted == Self::default() {
            return Ok(None);
        }
        if wanted.user.is_empty() {
            return Err(Status::bad_request(format!(
                "requested {} without impersonating a user name",
                wanted.as_go()
            )));
        }
        Ok(Some(wanted))
    }

    /// The impersonated user, if `user` may impersonate all parts of it.
    ///
    /// `request` holds the attributes of the request: kube-apiserver 1.36 names its verb and resource in the refusal.
    ///
    /// # Errors
    /// 403 when a part is not allowed.
    pub(crate) fn apply(
        self,
        user: &User,
        policy: &Policy,
        request: &Attributes,
    ) -> Result<User, Status> {
        let account = service_account_of(&self.user);
        for attributes in self.needed() {
            if !policy.authorize(user, &attributes).allowed {
                let kind = if account.is_some() {
                    "serviceaccount"
                } else {
                    "user-info"
                };
                let refused = Attributes {
                    verb: format!("impersonate-on:{kind}:{}", request.verb),
                    ..request.clone()
                };
                return Err(refused.forbidden(user, &Decision::default()));
            }
        }
        let mut groups = self.groups;
        if let Some((namespace, _)) = account
            && groups.is_empty()
        {
            groups.extend(service_account_groups(namespace));
        }
        let proof = if self.user == ANONYMOUS {
            UNAUTHENTICATED
        } else {
            AUTHENTICATED
        };
        if !groups
            .iter()
            .any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED)
        {
            groups.push(proof.to_owned());
        }
        Ok(User {
            name: self.user,
            uid: self.uid,
            groups,
            extra: self.extra,
        })
    }

    /// One check for each part: user, uid, groups, extras.
    fn needed(&self) -> Vec<Attributes> {
        let impersonate = |group: &str, resource: &str, name: &str| {
            Attributes::resource("impersonate", group, resource).named(name)
        };
        let mut needed = vec![match service_account_of(&self.user) {
            Some((namespace, name)) => {
                impersonate("", "serviceaccounts", name).in_namespace(namespace)
            }
            None => impersonate("", "users", &self.user),
        }];
        if !self.uid.is_empty() {
            needed.push(impersonate(AUTHENTICATION, "uids", &self.uid));
        }
        needed.extend(
            self.groups
                .iter()
                .map(|group| impersonate("", "groups", group)),
        );
        for (key, values) in &self.extra {
            let of_key =
                |value: &String| impersonate(AUTHENTICATION, "userextras", value).subresource(key);
            needed.extend(values.iter().map(of_key));
        }
        needed
    }

    /// The format of Go, for the text of the 400.
    fn as_go(&self) -> String {
        let list = |values: &[String]| {
            let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            if quoted.is_empty() {
                "[]string(nil)".to_owned()
            } else {
                format!("[]string{{{}}}", quoted.join(", "))
            }
        };
        let extra: Vec<String> = self
            .extra
            .iter()
            .map(|(key, values)| format!("{key:?}:{}", list(values)))
            .collect();
        let extra = if extra.is_empty() {
            "(nil)".to_owned()
        } else {
            format!("{{{}}}", extra.join(", "))
        };
        format!(
            "&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}}",
            self.uid,
            list(&self.groups),
        )
    }
}

/// Decodes a key of an extra, percent-encoded where a header name cannot hold it; an invalid encoding is kept.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = (first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}
