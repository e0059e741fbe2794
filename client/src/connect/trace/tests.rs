use http::StatusCode;
use reeve_fake::Spans;
use tracing::info_span;

use super::*;

const PODS: &str = "/api/v1/namespaces/shop/pods/web-1?token=hunter2";

/// A kube client whose requests `answer` answers.
fn client<F>(answer: impl Fn() -> F + Clone + Send + Sync + 'static) -> kube_client::Client
where
    F: Future<Output = Result<Response<Body>, BoxError>> + Send + 'static,
{
    let service = tower::service_fn(move |_: Request<Body>| answer());
    let cluster = Uri::from_static("https://cluster.example:6443");
    kube_client::Client::new(traced(service, &cluster), "default")
}

fn request() -> Request<Body> {
    Request::get(PODS).body(Body::empty()).unwrap()
}

async fn status(code: u16) -> Result<Response<Body>, BoxError> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(code)?;
    Ok(response)
}

#[tokio::test(start_paused = true)]
async fn a_request_is_a_child_of_its_callers_span_and_shows_no_query() {
    let (spans, _guard) = Spans::record(LevelFilter::DEBUG);
    let client = client(|| status(200));
    let caller = info_span!("caller");
    client.send(request()).instrument(caller).await.unwrap();
    let all = spans.all();
    let [caller, sent] = &*all else {
        panic!("{all:?}");
    };
    assert_eq!((caller.name, sent.parent), ("caller", Some(0)));
    let template = "/api/v1/namespaces/{namespace}/pods/{name}";
    for (field, value) in [
        ("otel.name", &*format!("GET {template}")),
        ("otel.kind", "client"),
        ("http.request.method", "GET"),
        ("url.template", template),
        ("url.path", "/api/v1/namespaces/shop/pods/web-1"),
        ("server.address", "cluster.example"),
        ("server.port", "6443"),
        ("http.response.status_code", "200"),
        ("error.type", ""),
        ("otel.status_code", ""),
    ] {
        assert_eq!(sent.field(field), value, "{field}");
    }
    assert!(sent.closed && !format!("{sent:?}").contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_error_of_the_span() {
    let (spans, _guard) = Spans::record(LevelFilter::DEBUG);
    let caller = info_span!("caller");
    for (code, kind, outcome) in [(302, "", ""), (404, "404", "ERROR"), (503, "503", "ERROR")] {
        let client = client(move || status(code));
        let sent = client.send(request()).instrument(caller.clone());
        sent.await.unwrap();
        let span = spans.all().pop().unwrap();
        assert_eq!(span.field("error.type"), kind, "{code}");
        assert_eq!(span.field("otel.status_code"), outcome, "{code}");
        assert_eq!(
            span.field("http.response.status_code"),
            code.to_string(),
            "{code}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_has_its_cause() {
    let (spans, _guard) = Spans::record(LevelFilter::DEBUG);
    let caller = info_span!("caller");
    type Cause = fn() -> BoxError;
    let causes: [(&str, Cause); 4] = [
        ("ConnectionRefused", || {
            let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
            io::Error::other(refused).into()
        }),
        ("timeout", || tower::timeout::error::Elapsed::new().into()),
        ("not_leader", || Closed.into()),
        ("_OTHER", || "a plug was pulled".into()),
    ];
    for (kind, cause) in causes {
        let client = client(move || async move { Err(cause()) });
        let sent = client.send(request()).instrument(caller.clone());
        assert!(sent.await.is_err());
        let span = spans.all().pop().unwrap();
        assert_eq!(span.field("error.type"), kind);
        assert_eq!(span.field("otel.status_code"), "ERROR", "{kind}");
        let described = span.field("otel.status_description");
        assert_eq!(described, error_chain(&*cause()).to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_is_cancelled() {
    let (spans, _guard) = Spans::record(LevelFilter::DEBUG);
    let client = client(std::future::pending);
    let sent = client.send(request()).instrument(info_span!("caller"));
    let limit = std::time::Duration::from_secs(1);
    assert!(tokio::time::timeout(limit, sent).await.is_err());
    let span = spans.all().pop().unwrap();
    assert_eq!(span.field("error.type"), "cancelled");
    assert!(span.closed);
}

#[tokio::test(start_paused = true)]
async fn a_request_outside_of_every_span_is_a_root_at_level_trace_alone() {
    for (most, inside, outside) in [
        (LevelFilter::INFO, 0, 0),
        (LevelFilter::DEBUG, 1, 0),
        (LevelFilter::TRACE, 1, 1),
    ] {
        let (spans, _guard) = Spans::record(most);
        let client = client(|| status(200));
        let requests = || spans.named("request").len();
        client.send(request()).await.unwrap();
        assert_eq!(requests(), outside, "{most}");
        let caller = info_span!("caller");
        client.send(request()).instrument(caller).await.unwrap();
        assert_eq!(requests() - outside, inside, "{most}");
    }
}
