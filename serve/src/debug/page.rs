//! Debug pages as routes.

use std::fmt;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, StatusCode};

use super::query::{Format, MOST, Query, Shown};
use crate::http::{Answer, Handler, Peer, answer, text};

/// The clients that may get the debug pages of a server without a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// There are no pages, also with a filter.
    Off,
    /// Clients that connect from 127.0.0.1 or ::1 and name such a host: `kubectl port-forward`, or a shell in the Pod.
    #[default]
    Local,
    /// Every client.
    Public,
}

/// A debug page, served at `/debug/NAME`.
#[derive(Clone)]
pub struct Page {
    name: &'static str,
    show: Arc<dyn Fn(&Query) -> Shown + Send + Sync>,
}

// === impl Page ===

impl Page {
    /// The page `name`, whose content `show` returns at each request.
    pub fn new(name: &'static str, show: impl Fn(&Query) -> Shown + Send + Sync + 'static) -> Self {
        Self {
            name,
            show: Arc::new(show),
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Page").field(&self.name).finish()
    }
}

/// The routes of `pages`. `filtered`: a filter is in front of them.
#[must_use]
pub fn routes(pages: &[Page], access: Pages, filtered: bool) -> Vec<(String, Handler)> {
    if access == Pages::Off {
        return Vec::new();
    }
    let open = filtered || access == Pages::Public;
    let names: Arc<[&'static str]> = pages.iter().map(|page| page.name).collect();
    let route = |page: &Page| {
        let (page, names) = (page.clone(), Arc::clone(&names));
        let path = format!("/debug/{}", page.name);
        let handler: Handler = Arc::new(move |request| {
            let answer = respond(&page, &names, open, &request);
            Box::pin(std::future::ready(answer))
        });
        (path, handler)
    };
    pages.iter().map(route).collect()
}

fn respond<B>(page: &Page, names: &[&str], open: bool, request: &Request<B>) -> Answer {
    if *request.method() != Method::GET && *request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n");
    }
    if !open && !is_local(request) {
        return text(
            StatusCode::FORBIDDEN,
            "this page names objects: ask for it by kubectl port-forward, or protect the metrics server\n",
        );
    }
    match Query::of(request) {
        Ok(query) => render(page.name, names, query.format, (page.show)(&query)),
        Err(problem) => text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
    }
}

fn render(name: &str, names: &[&str], format: Format, shown: Shown) -> Answer {
    let mut page = match shown {
        Shown::Json(document) => answer(
            StatusCode::OK,
            "application/json",
            format!("{document:#}\n"),
        ),
        Shown::Text(text) if format == Format::Html => answer(
            StatusCode::OK,
            "text/html; charset=utf-8",
            html(name, names, &text),
        ),
        Shown::Text(shown) => text(StatusCode::OK, shown),
    };
    let headers = page.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    );
    page
}

fn html(name: &str, names: &[&str], text: &str) -> String {
    let escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let links: String = names
        .iter()
        .map(|name| format!("<a href=\"{name}\">{name}</a>"))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title>\n\
         <style>body {{ font-family: monospace; margin: 1.5em; }} a {{ margin-right: 1em; }}</style></head>\n\
         <body><p>{links}\
         <a href=\"{name}?format=json\">json</a><a href=\"{name}?limit={MOST}\">more</a></p>\n\
         <pre>{escaped}</pre></body></html>\n"
    )
}

/// Whether the request comes from this machine, and not from a browser that resolved another name to it (DNS rebinding).
fn is_local<B>(request: &Request<B>) -> bool {
    let peer = request.extensions().get::<Peer>();
    let named = request.headers().get(HOST);
    let named = named.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    // HTTP/2 has the host beside the path.
    let host = named.as_ref().or_else(|| request.uri().authority());
    peer.is_some_and(|peer| is_loopback(&peer.0.ip().to_string()))
        && host.is_some_and(|host| is_loopback(host.host().trim_matches(['[', ']'])))
}

/// Not the whole of 127/8: the proxies of service meshes connect from there, with the requests of other clients.
fn is_loopback(host: &str) -> bool {
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost"].contains(&host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_become_markup() {
        let page = html("queues", &["queues"], "<script>alert(1)</script> & more");
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; more"),
            "{page}"
        );
    }

    #[test]
    fn a_page_without_a_filter_is_for_this_machine_under_its_own_names() {
        let page = Page::new("queues", |query| {
            query.show("queues", &[query.limit], || "none\n".into())
        });
        for (peer, host, open, code) in [
            ("127.0.0.1:9", "localhost:8080", false, 200),
            ("[::1]:9", "[::1]", false, 200),
            ("127.0.0.1:9", "evil.example.com", false, 403),
            ("127.0.0.6:9", "localhost", false, 403),
            ("10.0.0.9:9", "localhost", false, 403),
            ("10.0.0.9:9", "metrics.example.com", true, 200),
        ] {
            let mut request = Request::get("/debug/queues").header(HOST, host);
            let extensions = request.extensions_mut().unwrap();
            extensions.insert(Peer(peer.parse().unwrap()));
            let answer = respond(&page, &["queues"], open, &request.body(()).unwrap());
            assert_eq!(answer.status().as_u16(), code, "{peer} {host} {open}");
        }
    }
}
