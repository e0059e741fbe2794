//! The choice of the proxy for a cluster.

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// The proxy variables, under both spellings.
#[derive(Debug, Default)]
pub(super) struct Environment {
    https_proxy: Option<String>,
    http_proxy: Option<String>,
    no_proxy: Option<String>,
}

// === impl Environment ===

impl Environment {
    pub(super) fn read() -> Self {
        let get = |upper: &str| {
            std::env::var(upper)
                .or_else(|_| std::env::var(upper.to_lowercase()))
                .ok()
                .filter(|value| !value.is_empty())
        };
        Self {
            https_proxy: get("HTTPS_PROXY"),
            http_proxy: get("HTTP_PROXY"),
            no_proxy: get("NO_PROXY"),
        }
    }
}

/// The proxy for `cluster`. The proxy of the kubeconfig is always used; that of the environment only if `NO_PROXY` does
/// not match the cluster, and never for loopback (Go: `http.ProxyFromEnvironment`).
pub(super) fn proxy_for(
    cluster: &Uri,
    configured: Option<&Uri>,
    environment: &Environment,
) -> Option<Intercept> {
    // kube-client puts the environment's proxy into the same field as the kubeconfig's.
    let from_environment = |uri: &Uri| {
        let parsed = environment
            .https_proxy
            .as_deref()
            .and_then(|proxy| proxy.parse::<Uri>().ok());
        parsed.as_ref() == Some(uri)
    };
    if let Some(uri) = configured.filter(|uri| !from_environment(uri)) {
        return Matcher::builder()
            .all(uri.to_string())
            .build()
            .intercept(cluster);
    }
    let host = cluster.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        return None;
    }
    let mut matcher = Matcher::builder();
    if let Some(proxy) = &environment.https_proxy {
        matcher = matcher.https(proxy.clone());
    }
    if let Some(proxy) = &environment.http_proxy {
        matcher = matcher.http(proxy.clone());
    }
    if let Some(exceptions) = &environment.no_proxy {
        matcher = matcher.no(exceptions.clone());
    }
    matcher.build().intercept(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_is_matched_against_the_cluster() {
        let proxy = "http://10.0.0.9:3128/";
        let environment = |no_proxy: &str| Environment {
            https_proxy: Some(proxy.into()),
            http_proxy: None,
            no_proxy: (!no_proxy.is_empty()).then(|| no_proxy.into()),
        };
        let by_kube: Uri = proxy.parse().unwrap();
        let other: Uri = "http://kubeconfig.proxy:1/".parse().unwrap();
        for (case, cluster, configured, no_proxy, expected) in [
            (
                "by default",
                "https://cluster.local:6443",
                Some(&by_kube),
                "",
                Some("10.0.0.9"),
            ),
            (
                "in a Pod too",
                "https://cluster.local:6443",
                None,
                "",
                Some("10.0.0.9"),
            ),
            (
                "cluster named",
                "https://cluster.local:6443",
                Some(&by_kube),
                "cluster.local",
                None,
            ),
            (
                "domain named",
                "https://cluster.local:6443",
                Some(&by_kube),
                ".local",
                None,
            ),
            (
                "network named",
                "https://10.1.2.3:6443",
                Some(&by_kube),
                "10.1.0.0/16",
                None,
            ),
            (
                "proxy named is no exception",
                "https://cluster.local:6443",
                Some(&by_kube),
                "10.0.0.9",
                Some("10.0.0.9"),
            ),
            (
                "kubeconfig wins",
                "https://cluster.local:6443",
                Some(&other),
                "cluster.local",
                Some("kubeconfig.proxy"),
            ),
            (
                "loopback is direct",
                "https://127.0.0.1:6443",
                Some(&by_kube),
                "",
                None,
            ),
            (
                "v6 loopback is direct",
                "https://[::1]:6443",
                Some(&by_kube),
                "",
                None,
            ),
        ] {
            let found = proxy_for(
                &cluster.parse().unwrap(),
                configured,
                &environment(no_proxy),
            );
            let host = found.as_ref().and_then(|found| found.uri().host());
            assert_eq!(host, expected, "{case}");
        }
    }
}
