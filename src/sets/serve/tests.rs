//! Paths, readers and credentials of served surfaces.

use super::*;
use crate::mounted::MountedFile;
use crate::trigger::tls_tests::Files;

#[derive(Debug)]
struct Named(&'static str);

impl Surface for Named {
    fn answer(self: Arc<Self>, _: Request, rest: String) -> BoxFuture<'static, Answer> {
        Box::pin(async move { text(StatusCode::OK, format!("{} {rest}", self.0)) })
    }
}

#[test]
fn a_request_goes_to_the_longest_path_that_fits_whole_segments() {
    let surface = |name| Arc::new(Named(name)) as Arc<dyn Surface>;
    let routes = [("/bans", "bans"), ("/bans/v6", "v6"), ("", "root")];
    let route = |name| {
        let site = Site::open(([127, 0, 0, 1], 0).into(), "", surface(name));
        Arc::new(Listeners::default().route(None, site))
    };
    let routes = routes.map(|(path, name)| (path.to_owned(), route(name)));
    let routes = Routes(RwLock::new(routes.into()));
    let found = |path: &str| {
        let (route, rest) = routes.find(path).unwrap();
        (format!("{:?}", route.surface), rest)
    };
    for (path, name, rest) in [
        ("/bans", "bans", ""),
        ("/bans/agents/a", "bans", "/agents/a"),
        ("/bans/v6", "v6", ""),
        ("/bansx", "root", "/bansx"),
        ("/v1/decisions", "root", "/v1/decisions"),
    ] {
        let expected = (format!("Named({name:?})"), rest.to_owned());
        assert_eq!(found(path), expected, "{path}");
    }
}

/// A surface that answers once it may.
#[derive(Debug, Default)]
struct Waiting(tokio::sync::Notify);

impl Surface for Waiting {
    fn answer(self: Arc<Self>, _: Request, _: String) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            self.0.notified().await;
            text(StatusCode::OK, "done")
        })
    }
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[tokio::test]
async fn one_reader_too_many_is_refused_with_503_and_hung_up_on() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let waiting = Arc::new(Waiting::default());
    let mut site = Site::open(
        loopback(),
        "/bans",
        Arc::clone(&waiting) as Arc<dyn Surface>,
    );
    site.serve.readers = 2;
    let mut listeners = Listeners::default();
    assert!(listeners.apply([site]).await.is_empty());
    let url = format!("http://{}/bans", listeners.addresses()[0]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = || client.get(&url).send();
    let gate = || {
        let listener = listeners.running.values().next().unwrap();
        let routes = listener.routes.0.read();
        Arc::clone(&routes["/bans"].gate)
    };
    let third = async {
        while gate().open.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        let third = get().await.unwrap();
        waiting.0.notify_waiters();
        third
    };
    let (one, two, third) = tokio::join!(get(), get(), third);
    assert_eq!(one.unwrap().status(), StatusCode::OK);
    assert_eq!(two.unwrap().status(), StatusCode::OK);
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(third.headers()[CONNECTION], "close");
    assert!(third.headers().contains_key(RETRY_AFTER));
    assert_eq!(gate().open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_request_that_outlasts_its_engine_does_not_bring_back_its_gauge() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let waiting = Arc::new(Waiting::default());
    let surface = || Arc::clone(&waiting) as Arc<dyn Surface>;
    let site = |name: &str| Site {
        name: name.into(),
        ..Site::open(loopback(), &format!("/{name}"), surface())
    };
    let metrics = Metrics::default();
    let mut listeners = Listeners::new(metrics.clone());
    assert!(listeners.apply([site("a"), site("b")]).await.is_empty());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = |name: &str| {
        let url = format!("http://{}/{name}", listeners.addresses()[0]);
        tokio::spawn(client.get(url).send())
    };
    let requests = [get("a"), get("b")];
    while metrics.readers_of("a") != Some(1) || metrics.readers_of("b") != Some(1) {
        tokio::task::yield_now().await;
    }
    // The listener stays: it takes as many readers as before.
    assert!(listeners.apply([site("a"), site("c")]).await.is_empty());
    metrics.forget("b");
    waiting.0.notify_waiters();
    for request in requests {
        assert_eq!(request.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(metrics.readers_of("a"), Some(0));
    assert_eq!(metrics.readers_of("b"), None);
    assert_eq!(metrics.readers_of("c"), Some(0));
}

#[tokio::test]
async fn an_engine_is_served_by_https_to_the_certificates_that_are_named() {
    let files = Files::new("engines");
    let file = |name: &str| MountedFile::alone(files.path.join(name));
    let site = || {
        let surface = Arc::new(Named("bans")) as Arc<dyn Surface>;
        let mut site = Site::open(loopback(), "/bans", surface);
        site.serve.tls = Some(Tls {
            certificate: file("crt"),
            key: file("key"),
            clients: Some(file("ca")),
        });
        site.serve.client_names = vec!["edge".into()];
        site
    };
    let mut listeners = Listeners::default();
    let failed = listeners.apply([site()]).await;
    assert!(failed.is_empty(), "{failed:?}");
    let port = listeners.addresses()[0].port();
    let get = async |name: Option<&str>| {
        let request = files
            .client(name)
            .get(format!("https://localhost:{port}/bans"));
        request.send().await.ok().map(|answer| answer.status())
    };
    assert_eq!(get(Some("edge")).await, Some(StatusCode::OK));
    assert_eq!(get(Some("other")).await, Some(StatusCode::FORBIDDEN));
    assert_eq!(get(None).await, None, "a reader needs a certificate");
    let plain = files
        .client(None)
        .get(format!("http://localhost:{port}/bans"));
    assert!(!plain.send().await.is_ok_and(|it| it.status().is_success()));
    // Files that are not mounted yet.
    let mut edited = site();
    edited.serve.tls = Some(Tls {
        certificate: file("later"),
        key: file("key"),
        clients: Some(file("ca")),
    });
    let failed = listeners.apply([edited]).await;
    assert!(failed[0].contains("are served as before"), "{failed:?}");
    assert_eq!(get(Some("edge")).await, Some(StatusCode::OK));
    // A listener that asks for less than the edit ends.
    let mut open = site();
    open.serve.tls.as_mut().unwrap().clients = None;
    open.serve.client_names.clear();
    assert!(listeners.apply([open]).await.is_empty());
    let mut edited = site();
    edited.serve.tls.as_mut().unwrap().clients = Some(file("later"));
    let failed = listeners.apply([edited]).await;
    assert!(failed[0].contains("cannot listen"), "{failed:?}");
    assert!(listeners.addresses().is_empty());
}
