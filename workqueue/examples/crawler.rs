//! A polite crawler, without Kubernetes: `cargo run -p reeve-workqueue --example crawler`.
//!
//! Fetches pages over HTTP and follows their links. The queue does what a crawler needs: a page is fetched
//! once however many pages link to it, hosts take turns, each host gets at most one request in 20 ms, a
//! page that fails is retried with growing delays (or as the server requests), and Ctrl-C lets running
//! fetches finish. The pages come from a small server of its own on the loopback interface.

#![allow(clippy::print_stdout, reason = "what a crawler found is printed")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reeve_workqueue::{
    AddOptions, Cause, Drain, Item, ItemExponentialFailure, OnDrop, Queue, Tenant,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Maximum number of tries of a page.
const ATTEMPTS: u32 = 5;
const WORKERS: usize = 4;
/// Minimum time between two requests to one host.
const POLITENESS: Duration = Duration::from_millis(20);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A page: its host and its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Page {
    host: Arc<str>,
    path: Arc<str>,
}

/// The pages found so far, and the earliest time of the next request to each host.
#[derive(Default)]
struct Found {
    seen: BTreeSet<Page>,
    pages: BTreeMap<Page, usize>,
    given_up: BTreeMap<Page, String>,
    next_request: BTreeMap<Arc<str>, Instant>,
}

struct Crawler {
    queue: Queue<Page>,
    server: std::net::SocketAddr,
    found: Mutex<Found>,
}

enum Answer {
    Links(Vec<Page>),
    Failed(Cause),
}

// === impl Crawler ===

impl Crawler {
    fn new(server: std::net::SocketAddr) -> Self {
        let queue = Queue::builder()
            .name("crawler")
            .rate_limiter(ItemExponentialFailure::new(
                Duration::from_millis(10),
                Duration::from_secs(1),
            ))
            .fair_by(|page: &Page| {
                let weight = if &*page.host == "large.example" { 2 } else { 1 };
                Tenant::of(&page.host).weight(NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN))
            })
            // A page is not requested twice within this time.
            .min_interval(Duration::from_millis(50))
            .on_drop(OnDrop::Retry)
            .build();
        Self {
            queue,
            server,
            found: Mutex::default(),
        }
    }

    fn add(&self, page: Page) {
        let new = self.found.lock().unwrap().seen.insert(page.clone());
        if new {
            // Deeper pages are less urgent.
            let depth = i32::try_from(page.path.matches('/').count()).unwrap_or(i32::MAX);
            self.queue
                .add_with(page, AddOptions::new().priority(-depth));
        }
    }

    /// Whether every page was fetched or given up.
    fn is_finished(&self) -> bool {
        let found = self.found.lock().unwrap();
        found.pages.len() + found.given_up.len() == found.seen.len()
    }

    async fn work(&self) {
        while let Some(item) = self.queue.get().await {
            self.wait_for_turn(&item.host).await;
            let answer = timeout(FETCH_TIMEOUT, fetch(self.server, &item)).await;
            self.settle(item, answer);
            if self.is_finished() {
                self.queue.shut_down();
            }
        }
    }

    /// Minimum time between requests to a host, over all workers.
    async fn wait_for_turn(&self, host: &Arc<str>) {
        let turn = {
            let mut found = self.found.lock().unwrap();
            let next = found
                .next_request
                .entry(Arc::clone(host))
                .or_insert_with(Instant::now);
            let turn = (*next).max(Instant::now());
            *next = turn + POLITENESS;
            turn
        };
        sleep_until(turn).await;
    }

    fn settle(
        &self,
        item: Item<Page>,
        answer: Result<io::Result<Answer>, tokio::time::error::Elapsed>,
    ) {
        let cause = match answer {
            Ok(Ok(Answer::Links(links))) => {
                let count = links.len();
                // Before the page counts as fetched: otherwise the crawl could end here.
                for link in links {
                    self.add(link);
                }
                let page = (*item).clone();
                self.found.lock().unwrap().pages.insert(page, count);
                item.forget();
                return;
            }
            Ok(Ok(Answer::Failed(cause))) => cause,
            Ok(Err(error)) => Cause::new(error).class("network"),
            Err(_) => Cause::new("no answer in time").class("timeout"),
        };
        if item.attempts() + 1 >= ATTEMPTS {
            let mut found = self.found.lock().unwrap();
            found.given_up.insert((*item).clone(), cause.to_string());
            item.forget();
        } else {
            item.retry_because(cause);
        }
    }
}

/// An HTTP/1.0 request with a request line and a host.
async fn fetch(server: std::net::SocketAddr, page: &Page) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", page.path, page.host);
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    if !head.starts_with("HTTP/1.0 200") {
        let mut cause = Cause::new(head.lines().next().unwrap_or("no status")).class("status");
        let seconds = head
            .lines()
            .find_map(|line| line.strip_prefix("Retry-After: "));
        if let Some(seconds) = seconds.and_then(|seconds| seconds.parse().ok()) {
            cause = cause.retry_after(Duration::from_secs(seconds));
        }
        return Ok(Answer::Failed(cause));
    }
    // One link a line: host and path.
    let links = body.lines().filter_map(|line| {
        let (host, path) = line.split_once(' ')?;
        let (host, path) = (host.into(), path.into());
        Some(Page { host, path })
    });
    Ok(Answer::Links(links.collect()))
}

/// A small web: two hosts, pages that link deeper and to each other, some that fail at first and one that
/// always fails.
async fn serve(listener: TcpListener) {
    let failed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(stream, Arc::clone(&failed)));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(mut stream: TcpStream, failed: Arc<Mutex<BTreeSet<String>>>) -> io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    let path = request.split(' ').nth(1).unwrap_or("/");
    let first_time = failed.lock().unwrap().insert(request.clone());
    let response = if path.ends_with("/broken") {
        "HTTP/1.0 500 Internal Server Error\r\n\r\n".to_owned()
    } else if path.ends_with('3') && first_time {
        "HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n".to_owned()
    } else {
        let links: String = if path.matches('/').count() < 3 {
            let below = path.trim_end_matches('/');
            let deeper = (1..=3).map(|number| format!("large.example {below}/{number}\n"));
            deeper.collect::<String>() + "small.example /\nlarge.example /broken\n"
        } else {
            String::new()
        };
        format!("HTTP/1.0 200 OK\r\n\r\n{links}")
    };
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Result of the crawl.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) fetched: usize,
    pub(crate) given_up: Vec<String>,
    /// Number of pages still to be fetched at the stop.
    pub(crate) left: usize,
}

/// Crawls the small web until everything is fetched or given up, or `stop` is ready.
pub(crate) async fn crawl(stop: impl Future<Output = ()>) -> io::Result<Report> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let crawler = Arc::new(Crawler::new(listener.local_addr()?));
    let server = tokio::spawn(serve(listener));
    crawler.add(Page {
        host: "large.example".into(),
        path: "/".into(),
    });
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let crawler = Arc::clone(&crawler);
        workers.spawn(async move { crawler.work().await });
    }
    let mut left = 0;
    let all = async { while workers.join_next().await.is_some() {} };
    tokio::select! {
        biased;
        () = all => {}
        () = stop => {
            let drain = Drain::InFlight;
            let report = crawler.queue.shut_down_with(drain, Some(FETCH_TIMEOUT)).await;
            left = report.ready + report.waiting;
        }
    }
    server.abort();
    let found = crawler.found.lock().unwrap();
    let given_up = found.given_up.iter();
    Ok(Report {
        fetched: found.pages.len(),
        given_up: given_up
            .map(|(page, why)| format!("{}{} ({why})", page.host, page.path))
            .collect(),
        left,
    })
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let ctrl_c = async {
        if tokio::signal::ctrl_c().await.is_err() {
            // The crawl runs to its end.
            std::future::pending::<()>().await;
        }
    };
    let report = crawl(ctrl_c).await?;
    println!("{} pages fetched", report.fetched);
    for page in &report.given_up {
        println!("given up: {page}");
    }
    if report.left > 0 {
        println!("stopped: {} pages were still to be fetched", report.left);
    }
    Ok(())
}
