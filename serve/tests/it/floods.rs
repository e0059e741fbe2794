//! HTTP/2 clients that break the rules, frame by frame, while other clients are served.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use reeve_clock::Clock;
use reeve_serve::certificates::Certificates;
use reeve_serve::http::{Limits, Router, Server, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::anywhere;
use crate::client::{Trust, get_by};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
/// A request without a body, whose header ends with this frame.
const WHOLE: u8 = 0x5;
/// The same, with more of the header to come.
const BEGUN: u8 = 0x1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A server that answers `/quick` at once and `/slow` never, and reports each request that reaches it.
struct Served {
    address: SocketAddr,
    trust: Trust,
    reached: mpsc::UnboundedReceiver<()>,
    stop: CancellationToken,
    running: JoinHandle<std::io::Result<()>>,
}

// === impl Served ===

impl Served {
    async fn start(limits: Limits) -> Self {
        let (reaches, reached) = mpsc::unbounded_channel();
        let reaches_slow = reaches.clone();
        let router = Router::new()
            .route("/quick", move |_| {
                let _ = reaches.send(());
                async { text(StatusCode::OK, "here") }
            })
            .unwrap()
            .route("/slow", move |_| {
                let _ = reaches_slow.send(());
                std::future::pending()
            })
            .unwrap();
        let certificates = Certificates::self_signed(&Clock::system()).unwrap();
        let trust = Trust::of(certificates.chain());
        let server = Server::bind("test", anywhere(), router.into_handler()).await;
        let server = server.unwrap().limits(limits);
        let server = server.tls(certificates, true).unwrap();
        let address = server.local_addr().unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone()));
        Self {
            address,
            trust,
            reached,
            stop,
            running,
        }
    }

    async fn connect(&self) -> Raw {
        let stream = self.trust.connect(self.address, &["h2"]).await.unwrap();
        let mut raw = Raw(stream);
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        raw.send(&frame(SETTINGS, 0, 0, &[])).await;
        raw
    }

    /// Another client is answered.
    async fn serves_others(&self) {
        let got = get_by(&self.trust, self.address, "/quick", &[]).await;
        assert_eq!(got.unwrap().code, 200);
    }

    /// The next request reaches its handler.
    async fn reached(&mut self) {
        soon(self.reached.recv()).await.unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// A connection on which anything may be sent.
struct Raw(TlsStream<TcpStream>);

/// A frame that came.
#[derive(Debug)]
struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

// === impl Raw ===

impl Raw {
    /// The server may have closed the connection already.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
        let _ = self.0.flush().await;
    }

    /// The next frame; none when the connection has ended.
    async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame {
            kind: head[3],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// The next frame of a kind.
    async fn next(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Sends all of `bytes` while it reads until the server closes; returns the reason of the GOAWAY.
    async fn flood(self, bytes: Vec<u8>) -> Option<u32> {
        let (read, mut write) = tokio::io::split(self.0);
        let sending = tokio::spawn(async move {
            let _ = write.write_all(&bytes).await;
            let _ = write.flush().await;
            write
        });
        let mut everything = Vec::new();
        let _ = tokio::io::BufReader::new(read)
            .read_to_end(&mut everything)
            .await;
        sending.abort();
        let mut frames = everything.as_slice();
        let mut reason = None;
        while frames.len() >= 9 {
            let length = u32::from_be_bytes([0, frames[0], frames[1], frames[2]]) as usize;
            if frames.len() < 9 + length {
                break;
            }
            if frames[3] == GOAWAY {
                reason = Some(number(&frames[9 + 4..]));
            }
            frames = &frames[9 + length..];
        }
        reason
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The header of a GET: static entries, and two literals.
fn header(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x87];
    for (name, value) in [(0x01, "localhost"), (0x04, path)] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend(value.as_bytes());
    }
    block
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, WHOLE, stream, &header(path))
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

/// The output of `what`, within a limit that means never.
async fn soon<F: Future>(what: F) -> F::Output {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, what).await.expect("in 30 s")
}

/// The n-th stream of a client.
fn stream(n: u32) -> u32 {
    2 * n + 1
}

#[tokio::test]
async fn a_flood_of_requests_that_are_taken_back_at_once_is_cut_off_while_others_are_served() {
    let mut served = Served::start(Limits::default()).await;
    let flooding = served.connect().await;
    let flood = (0..50_000).flat_map(|n| {
        let mut both = get(stream(n), "/slow");
        both.extend(reset(stream(n)));
        both
    });
    let (reason, ()) = tokio::join!(flooding.flood(flood.collect()), async {
        for _ in 0..10 {
            served.serves_others().await;
        }
    });
    assert!(
        reason.is_none_or(|reason| reason == ENHANCE_YOUR_CALM),
        "{reason:?}"
    );
    served.serves_others().await;
    let mut reached = 0;
    while served.reached.try_recv().is_ok() {
        reached += 1;
    }
    assert!(
        reached < 11 + 200,
        "{reached} of 50,000 reached the handler"
    );
    served.end().await;
}

#[tokio::test]
async fn a_client_that_gives_up_more_requests_than_it_waits_for_is_cut_off() {
    let limits = Limits::default().given_up(5);
    let mut served = Served::start(limits).await;
    let mut patient = served.connect().await;
    let mut raw = served.connect().await;
    let given_up = async |raw: &mut Raw, served: &mut Served, n| {
        raw.send(&get(stream(n), "/slow")).await;
        served.reached().await;
        raw.send(&reset(stream(n))).await;
    };
    // The sixth reaches the handler: five are no reason.
    for n in 0..6 {
        given_up(&mut raw, &mut served, n).await;
    }
    soon(async { while raw.frame().await.is_some() {} }).await;

    // One that also waits for answers goes on.
    for n in 0..20 {
        given_up(&mut patient, &mut served, 2 * n).await;
        patient.send(&get(stream(2 * n + 1), "/quick")).await;
        served.reached().await;
        let answer = patient.next(HEADERS).await.unwrap();
        assert_eq!(answer.stream, stream(2 * n + 1));
    }
    drop(patient);
    served.serves_others().await;
    served.end().await;
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_and_a_flood_of_them_is_cut_off() {
    let limits = Limits::default().streams(4);
    let mut served = Served::start(limits).await;
    let mut raw = served.connect().await;
    let settings = raw.next(SETTINGS).await.unwrap().payload;
    let said = settings.chunks(6).find_map(|setting| {
        let known = setting[..2] == MAX_CONCURRENT_STREAMS.to_be_bytes();
        known.then(|| number(&setting[2..]))
    });
    assert_eq!(said, Some(4), "in the settings");
    for n in 0..4 {
        raw.send(&get(stream(n), "/slow")).await;
        served.reached().await;
    }
    raw.send(&get(stream(4), "/slow")).await;
    let refused = raw.next(RST_STREAM).await.unwrap();
    assert_eq!(
        (refused.stream, number(&refused.payload)),
        (stream(4), REFUSED_STREAM)
    );
    let flood = (5..50_000).flat_map(|n| get(stream(n), "/slow"));
    let (reason, ()) = tokio::join!(raw.flood(flood.collect()), async {
        for _ in 0..10 {
            served.serves_others().await;
        }
    });
    assert!(
        reason.is_none_or(|reason| reason == ENHANCE_YOUR_CALM),
        "{reason:?}"
    );
    for _ in 0..10 {
        served.reached().await;
    }
    assert!(served.reached.try_recv().is_err(), "none of the flood");
    served.end().await;
}

#[tokio::test]
async fn a_header_too_large_and_one_that_never_ends_reach_no_handler() {
    let mut served = Served::start(Limits::default()).await;
    let mut raw = served.connect().await;
    // x-huge: 75 KiB, as literals of 15 KiB in frames of one each.
    let mut field = vec![0x00, 6];
    field.extend(b"x-huge");
    // The length: 127, and 15233 as 1 + 119 * 128.
    field.extend([0x7f, 0x81, 0x77]);
    field.extend(vec![b'a'; 15 * 1024]);
    raw.send(&frame(HEADERS, BEGUN, 1, &header("/quick"))).await;
    for n in 1..=5 {
        let flags = if n == 5 { 0x4 } else { 0 };
        raw.send(&frame(CONTINUATION, flags, 1, &field)).await;
    }
    // The same connection goes on with the next.
    raw.send(&get(3, "/quick")).await;
    let mut answered = Vec::new();
    while answered.last() != Some(&3) {
        let frame = raw.frame().await.expect("the connection goes on");
        if [HEADERS, RST_STREAM].contains(&frame.kind) {
            answered.push(frame.stream);
        }
    }
    assert_eq!(answered, [1, 3]);
    served.reached().await;
    assert!(served.reached.try_recv().is_err(), "the small one alone");
    drop(raw);

    let endless = served.connect().await;
    let mut flood = frame(HEADERS, BEGUN, 1, &header("/quick"));
    for _ in 0..10_000 {
        flood.extend(frame(CONTINUATION, 0, 1, &field));
    }
    let (reason, ()) = tokio::join!(endless.flood(flood), served.serves_others());
    assert!(
        reason.is_none_or(|reason| reason == ENHANCE_YOUR_CALM),
        "{reason:?}"
    );
    served.end().await;
}
