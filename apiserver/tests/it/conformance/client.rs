//! A small HTTP client. It shows the exact answers of a server, which a client library could hide.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::rbac::{MASTERS, User};
use reeve_apiserver::{ApiServer, Serving};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(60);
const FILLING: &[u8] = b"storage is (re)initializing";
const FILLING_PAUSE: Duration = Duration::from_millis(100);

/// The address of a server, and the credentials for it.
pub struct Client {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    token: Option<String>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A streamed answer.
pub struct Stream {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    pending: BytesMut,
    _connection: Connection,
}

// === impl Client ===

impl Client {
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            token: None,
            idle: Mutex::new(Vec::new()),
        }
    }

    fn with_token(address: SocketAddr, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..Self::plain(address)
        }
    }

    /// The administrator of a new built-in server with RBAC, which serves until the first two are dropped.
    pub async fn built_in() -> (ApiServer, Serving, Self) {
        const TOKEN: &str = "administrator";
        let server = ApiServer::builder()
            .rbac()
            .token(TOKEN, User::new("reeve-admin", [MASTERS]))
            .start()
            .await
            .expect("the built-in server starts");
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let serving = server.serve(address).await.expect("it listens");
        let client = Self::with_token(serving.local_addr(), TOKEN);
        (server, serving, client)
    }

    /// The administrator of a real server.
    pub fn real(control_plane: &ControlPlane) -> Self {
        let address = control_plane.url().trim_start_matches("https://");
        Self::with_tls(
            address.parse().expect("an address"),
            control_plane.certificate_authority(),
            control_plane.admin_token(),
        )
    }

    fn with_tls(address: SocketAddr, authority_pem: &str, token: &str) -> Self {
        let mut roots = tokio_rustls::rustls::RootCertStore::empty();
        let authority =
            CertificateDer::from_pem_slice(authority_pem.as_bytes()).expect("a certificate");
        roots.add(authority).expect("a certificate authority");
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = tokio_rustls::rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            tls: Some(TlsConnector::from(Arc::new(config))),
            token: Some(token.to_owned()),
            ..Self::plain(address)
        }
    }

    /// Sends and reads the whole answer.
    ///
    /// A real server that changed the storage of a custom resource answers 429 until its new cache is filled. Every
    /// client repeats such a request, and no case tests it.
    pub async fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Reply {
        let exchange = async {
            loop {
                let reply = self.send_once(method, path, headers, body.clone()).await;
                if reply.status != StatusCode::TOO_MANY_REQUESTS
                    || !reply
                        .body
                        .windows(FILLING.len())
                        .any(|part| part == FILLING)
                {
                    return reply;
                }
                sleep(FILLING_PAUSE).await;
            }
        };
        timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_| panic!("no answer to {method} {path} in {PATIENCE:?}"))
    }

    async fn send_once(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Reply {
        let (response, connection) = self.exchange(method, path, headers, body).await;
        let (parts, incoming) = response.into_parts();
        let body = incoming.collect().await.expect("a whole body").to_bytes();
        self.idle.lock().push(connection);
        Reply {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// Sends and reads only the head of the answer.
    pub async fn stream(&self, path: &str, headers: &HeaderMap) -> Stream {
        let exchange = self.exchange(&Method::GET, path, headers, Bytes::new());
        let (response, connection) = timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_| panic!("no head of an answer to GET {path} in {PATIENCE:?}"));
        let (parts, body) = response.into_parts();
        Stream {
            status: parts.status,
            headers: parts.headers,
            body,
            pending: BytesMut::new(),
            _connection: connection,
        }
    }

    async fn exchange(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> (http::Response<Incoming>, Connection) {
        loop {
            let idle = self.idle.lock().pop();
            let fresh = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await,
            };
            if connection.sender.ready().await.is_err() {
                assert!(!fresh, "a fresh connection to {} is dead", self.address);
                continue;
            }
            match connection
                .sender
                .send_request(self.request(method, path, headers, body.clone()))
                .await
            {
                Ok(response) => return (response, connection),
                // The server may have closed an idle connection while the request was sent.
                Err(error) => assert!(!fresh, "{method} {path}: {error}"),
            }
        }
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("user-agent", "conformance/1.0 (tests)");
        if let Some(token) = &self.token
            && !headers.contains_key("authorization")
        {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(Full::new(body)).expect("a request")
    }

    async fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        match &self.tls {
            None => Connection::open(stream).await,
            Some(connector) => {
                let name = ServerName::try_from("127.0.0.1").expect("a name");
                Connection::open(connector.connect(name, stream).await.expect("TLS")).await
            }
        }
    }
}

// === impl Connection ===

impl Connection {
    async fn open(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        // After a reset by the server it ends with an error, which the reader of the answer also gets.
        let task = tokio::spawn(async move { drop(connection.await) });
        Self { sender, task }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Stream ===

impl Stream {
    /// The next line; `None` at the end of the stream. Panics if there is none within `patience`.
    pub async fn line(&mut self, patience: Duration) -> Option<Bytes> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let mut line = self.pending.split_to(end + 1);
                line.truncate(end);
                return Some(line.freeze());
            }
            let frame = timeout(patience, self.body.frame())
                .await
                .unwrap_or_else(|_| panic!("nothing came on the stream in {patience:?}"));
            match frame {
                None => return (!self.pending.is_empty()).then(|| self.pending.split().freeze()),
                Some(frame) => {
                    if let Ok(data) = frame.expect("a frame").into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
