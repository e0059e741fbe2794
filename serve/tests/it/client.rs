//! Clients of servers: plain HTTP, and HTTPS with HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reeve_serve::certificates::Certificates;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The answer to a GET.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) code: u16,
    pub(crate) body: String,
    pub(crate) http2: bool,
}

/// The roots that a client trusts, and its own certificate.
#[derive(Default)]
pub(crate) struct Trust {
    pub(crate) roots: Vec<CertificateDer<'static>>,
    pub(crate) identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
}

// === impl Trust ===

impl Trust {
    /// Trust in servers with one of these certificates.
    pub(crate) fn of(roots: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        Self {
            roots: roots.into_iter().collect(),
            identity: None,
        }
    }

    /// Connects to `localhost` at `address`, and offers these protocols.
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        for root in &self.roots {
            roots.add(root.clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some((certificate, key)) => {
                let chain = vec![certificate.clone()];
                config
                    .with_client_auth_cert(chain, key.clone_key())
                    .unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").unwrap();
        connector
            .connect(name, TcpStream::connect(address).await?)
            .await
    }
}

/// A GET over plain HTTP, or over HTTPS by a client that trusts `trusted` and offers HTTP/2 first.
pub(crate) async fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    trusted: Option<&Certificates>,
) -> std::io::Result<Got> {
    match trusted {
        Some(certificates) => {
            let trust = Trust::of(certificates.chain().into_iter().take(1));
            get_by(&trust, address, path, headers).await
        }
        None => {
            let io = TokioIo::new(TcpStream::connect(address).await?);
            let answer = over_http1(io, request(path, headers)).await;
            let (code, body) = answer.map_err(std::io::Error::other)?;
            Ok(Got {
                code,
                body,
                http2: false,
            })
        }
    }
}

/// A GET over HTTPS by a client that offers HTTP/2 first.
pub(crate) async fn get_by(
    trust: &Trust,
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<Got> {
    let stream = trust.connect(address, &["h2", "http/1.1"]).await?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let request = request(path, headers);
    let answer = if http2 {
        over_http2(io, request, path).await
    } else {
        over_http1(io, request).await
    };
    let (code, body) = answer.map_err(std::io::Error::other)?;
    Ok(Got { code, body, http2 })
}

pub(crate) fn request(path: &str, headers: &[(&str, &str)]) -> http::Request<Empty<bytes::Bytes>> {
    let mut request = http::Request::get(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Empty::new()).unwrap()
}

async fn over_http1<IO>(
    io: IO,
    request: http::Request<Empty<bytes::Bytes>>,
) -> hyper::Result<(u16, String)>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let driving = tokio::spawn(connection);
    let answer = read(sender.send_request(request).await?).await;
    driving.abort();
    answer
}

async fn over_http2<IO>(
    io: IO,
    mut request: http::Request<Empty<bytes::Bytes>>,
    path: &str,
) -> hyper::Result<(u16, String)>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    request.headers_mut().remove("host");
    *request.uri_mut() = format!("https://localhost{path}").parse().unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
    let driving = tokio::spawn(connection);
    let answer = read(sender.send_request(request).await?).await;
    driving.abort();
    answer
}

pub(crate) async fn read(
    response: http::Response<hyper::body::Incoming>,
) -> hyper::Result<(u16, String)> {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok((code, String::from_utf8(bytes.to_vec()).unwrap()))
}
