//! One HTTP/2 connection to a server, over TLS or plain.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::error::{Error, Result};

pub(crate) const JSON: &str = "application/json";

/// Bytes that the server may send before they are read: the bench never slows the server down.
const WINDOW: u32 = 16 << 20;

/// How to reach a server.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) address: SocketAddr,
    /// `None` is plain HTTP.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) token: Option<String>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

/// An open connection; closed when dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    send: SendRequest<Full<Bytes>>,
    base: String,
    token: Option<HeaderValue>,
    task: JoinHandle<()>,
}

// === impl Call ===

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            accept: JSON,
            content_type: "",
            body: Bytes::new(),
        }
    }

    pub(crate) fn write(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            method,
            path: path.into(),
            accept: JSON,
            content_type: JSON,
            body: body.into(),
        }
    }

    #[must_use]
    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    #[must_use]
    pub(crate) fn content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }
}

// === impl Connection ===

impl Connection {
    pub(crate) async fn open(access: &Access) -> Result<Self> {
        let stream = TcpStream::connect(access.address)
            .await
            .map_err(Error::io("connect"))?;
        stream.set_nodelay(true).map_err(Error::io("TCP_NODELAY"))?;
        let scheme = if access.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let token = access
            .token
            .as_ref()
            .map(|token| HeaderValue::try_from(format!("Bearer {token}")).map_err(Error::setup));
        let (send, task) = match &access.tls {
            Some(config) => {
                let name = ServerName::IpAddress(access.address.ip().into());
                let connector = TlsConnector::from(Arc::clone(config));
                let stream = connector
                    .connect(name, stream)
                    .await
                    .map_err(Error::io("TLS"))?;
                handshake(stream).await?
            }
            None => handshake(stream).await?,
        };
        Ok(Self {
            send,
            base: format!("{scheme}://{}", access.address),
            token: token.transpose()?,
            task,
        })
    }

    /// Sends `call`, and returns its whole answer.
    ///
    /// # Errors
    /// For a broken connection, and for an answer that is not a success.
    pub(crate) async fn send(&self, call: Call) -> Result<Bytes> {
        Ok(self.stream(call).await?.collect().await?.to_bytes())
    }

    /// Sends `call`, reads its answer and keeps none of it; returns its length.
    pub(crate) async fn drain(&self, call: Call) -> Result<usize> {
        let mut body = self.stream(call).await?;
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(length)
    }

    /// Sends `call`, and returns its answer as it comes.
    pub(crate) async fn stream(&self, call: Call) -> Result<Incoming> {
        let what = format!("{} {}", call.method, call.path);
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.base, call.path))
            .header(ACCEPT, call.accept)
            .header(USER_AGENT, "apiserver-bench");
        if !call.content_type.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(call.body))?;
        let mut send = self.send.clone();
        send.ready().await?;
        let answer = send.send_request(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let body = answer.into_body().collect().await?.to_bytes();
        Err(Error::Answer {
            what,
            status: status.as_u16(),
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handshake<S>(stream: S) -> Result<(SendRequest<Full<Bytes>>, JoinHandle<()>)>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (send, connection) = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(64 << 10)
        .handshake(TokioIo::new(stream))
        .await?;
    let task = tokio::spawn(async move {
        // The requests of the connection report its end.
        let _ = connection.await;
    });
    Ok((send, task))
}
