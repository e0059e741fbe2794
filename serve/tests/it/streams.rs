//! Answers in pieces, over HTTP/1 and over HTTP/2 with prior knowledge.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reeve_serve::http::{Answer, Body, Handler, Limits, Running, Server, hang_up, listen};
use tokio::net::TcpStream;

use crate::anywhere;

/// Answers `/stream` with three pieces, and no other path.
fn serving() -> Running {
    let handler: Handler = Arc::new(|request| {
        Box::pin(async move {
            if request.uri().path() != "/stream" {
                return hang_up();
            }
            let pieces =
                ["one ", "two ", "three"].map(|piece| Ok(hyper::body::Frame::data(piece.into())));
            let body = StreamBody::new(futures::stream::iter(pieces));
            Answer::new(Body::pieces(UnsyncBoxBody::new(body)))
        })
    });
    let limits = Limits::default().drain(Duration::from_secs(30));
    let server = Server::on("streams", listen(anywhere()).unwrap(), handler);
    server.limits(limits).plain_http2().start().unwrap()
}

fn get(path: &str) -> http::Request<Empty<bytes::Bytes>> {
    http::Request::get(format!("http://localhost{path}"))
        .body(Empty::new())
        .unwrap()
}

#[tokio::test]
async fn one_port_without_tls_answers_both_protocols_in_pieces_and_hangs_up_on_one_request() {
    let running = serving();
    let connect = async || TokioIo::new(TcpStream::connect(running.local_addr()).await.unwrap());

    let (mut http2, driving) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), connect().await)
            .await
            .unwrap();
    let driving = tokio::spawn(driving);
    let refused = http2.send_request(get("/none")).await;
    assert!(refused.is_err(), "{refused:?}");
    // The connection goes on after one request was reset.
    let answer = http2.send_request(get("/stream")).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "one two three");
    drop(http2);
    driving.await.unwrap().unwrap();

    let handshake = hyper::client::conn::http1::handshake;
    let (mut http1, driving) = handshake(connect().await).await.unwrap();
    let driving = tokio::spawn(driving);
    let answer = http1.send_request(get("/stream")).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_11);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "one two three");
    http1.send_request(get("/none")).await.unwrap_err();
    let _ = driving.await;
    running.stop().await;
}
