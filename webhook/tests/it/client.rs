//! Clients of a webhook server: in memory, and over TLS with HTTP/2 or HTTP/1.1.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use reeve_serve::http::Handler;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

/// An answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// A connection of HTTP/1.1 or HTTP/2, with its tasks.
pub(crate) struct Session {
    sender: Sender,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

// === impl Session ===

impl Session {
    /// A connection in memory to a handler, without TLS and under paused time.
    pub(crate) async fn in_memory(handler: Handler) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let service = service_fn(move |request| {
            let answer = handler(request);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        let serving = tokio::spawn(async move {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(far), service).await;
        });
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near));
        let (sender, driving) = handshake.await.unwrap();
        let driving = tokio::spawn(async move {
            let _ = driving.await;
        });
        let tasks = [serving, driving].map(AbortOnDropHandle::new);
        Self {
            sender: Sender::Http2(sender),
            _tasks: tasks.into(),
        }
    }

    /// A connection to `localhost` at `address`, which trusts `root` alone.
    pub(crate) async fn tls(
        address: SocketAddr,
        root: CertificateDer<'static>,
        protocol: &str,
    ) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap();
        let io = TokioIo::new(stream);
        if protocol == "h2" {
            let (sender, driving) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
            let driving = tokio::spawn(async move {
                let _ = driving.await;
            });
            Self {
                sender: Sender::Http2(sender),
                _tasks: vec![AbortOnDropHandle::new(driving)],
            }
        } else {
            let (sender, driving) = hyper::client::conn::http1::handshake(io).await.unwrap();
            let driving = tokio::spawn(async move {
                let _ = driving.await;
            });
            Self {
                sender: Sender::Http1(sender),
                _tasks: vec![AbortOnDropHandle::new(driving)],
            }
        }
    }

    /// Posts a review.
    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Got {
        let request = Request::post(format!("https://localhost{path}"))
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .unwrap();
        self.send(request).await.unwrap()
    }

    pub(crate) async fn send(&mut self, mut request: Request<Full<Bytes>>) -> hyper::Result<Got> {
        let answer = match &mut self.sender {
            Sender::Http1(sender) => {
                request
                    .headers_mut()
                    .insert("host", "localhost".parse().unwrap());
                let path = request.uri().path_and_query().unwrap().as_str().to_owned();
                *request.uri_mut() = path.parse().unwrap();
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => sender.send_request(request).await?,
        };
        let (code, headers) = (answer.status().as_u16(), answer.headers().clone());
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok(Got {
            code,
            headers,
            body: String::from_utf8(bytes.to_vec()).unwrap(),
        })
    }

    /// A second handle of an HTTP/2 connection, for calls at once.
    pub(crate) fn another(&self) -> Self {
        match &self.sender {
            Sender::Http1(_) => panic!("HTTP/1 has one call at once"),
            Sender::Http2(sender) => Self {
                sender: Sender::Http2(sender.clone()),
                _tasks: Vec::new(),
            },
        }
    }
}
