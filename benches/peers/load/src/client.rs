//! Connections to the server: TLS 1.3 and HTTP/2, as kube-apiserver's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::process::Server;

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Client {
    connector: TlsConnector,
    address: SocketAddr,
    name: ServerName<'static>,
}

/// A connection, closed on drop.
pub(crate) struct Connection {
    sender: Sender,
    driving: JoinHandle<()>,
}

/// Sends calls over a connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Sender(SendRequest<Full<Bytes>>);

// === impl Client ===

impl Client {
    /// A client that trusts the certificate of `server` alone. A connection begins with a whole handshake, because
    /// kube-apiserver keeps no sessions of webhooks.
    pub(crate) fn new(server: &Server) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(server.certificate.clone()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            address: server.address,
            name: ServerName::try_from("localhost").expect("a name"),
        })
    }

    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        let driving = tokio::spawn(async move {
            // The calls report the error of a connection.
            let _ = connection.await;
        });
        Ok(Connection {
            sender: Sender(sender),
            driving,
        })
    }
}

// === impl Connection ===

impl Connection {
    pub(crate) fn sender(&self) -> Sender {
        self.sender.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

// === impl Sender ===

impl Sender {
    /// Posts a review and returns the answer, which has status 200.
    pub(crate) async fn post(&mut self, url: &str, body: Bytes) -> io::Result<Bytes> {
        let request = Request::post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, */*")
            .header("user-agent", "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        self.0.ready().await.map_err(io::Error::other)?;
        let answer = self.0.send_request(request).await;
        let answer = answer.map_err(io::Error::other)?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&body);
            return Err(io::Error::other(format!("{status}: {text}")));
        }
        Ok(body)
    }
}
