//! The TLS of a server. Without the feature `tls` there is none.

#[cfg(feature = "tls")]
pub(super) use with::Tls;
#[cfg(not(feature = "tls"))]
pub(super) use without::Tls;

#[cfg(feature = "tls")]
mod with {
    use std::io;
    use std::sync::Arc;

    use tokio::net::TcpStream;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    use crate::certificates::{Certificates, Error};
    use crate::http::ClientCertificate;
    use crate::http::activity::Protocol;

    /// The handshakes of a server, and the certificates that they show.
    #[derive(Clone)]
    pub(in crate::http) struct Tls {
        acceptor: TlsAcceptor,
        certificates: Certificates,
    }

    impl Tls {
        /// Offers HTTP/2 if `http2`.
        pub(in crate::http) fn new(certificates: Certificates, http2: bool) -> Result<Self, Error> {
            let config = certificates.server_config(http2)?;
            Ok(Self {
                acceptor: TlsAcceptor::from(Arc::new(config)),
                certificates,
            })
        }

        /// Keeps the certificates up to date. Does not return.
        pub(in crate::http) async fn watch(&self) {
            self.certificates.watch().await;
        }

        /// Completes a handshake: the stream, the protocol that it chose, and the certificate of the client.
        pub(in crate::http) async fn accept(
            &self,
            stream: TcpStream,
        ) -> io::Result<(TlsStream<TcpStream>, Protocol, Option<ClientCertificate>)> {
            let stream = self.acceptor.accept(stream).await?;
            let protocol = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                _ => Protocol::Http1,
            };
            let chain = stream.get_ref().1.peer_certificates();
            let client = chain.and_then(|chain| self.certificates.client(chain));
            Ok((stream, protocol, client))
        }
    }
}

#[cfg(not(feature = "tls"))]
mod without {
    use std::io;

    use tokio::net::TcpStream;

    use crate::http::ClientCertificate;
    use crate::http::activity::Protocol;

    /// No server has TLS.
    #[derive(Clone)]
    pub(in crate::http) enum Tls {}

    impl Tls {
        pub(in crate::http) async fn watch(&self) {
            match *self {}
        }

        pub(in crate::http) async fn accept(
            &self,
            _stream: TcpStream,
        ) -> io::Result<(TcpStream, Protocol, Option<ClientCertificate>)> {
            match *self {}
        }
    }
}
