//! Answers in pieces, over HTTP/1 and over HTTP/2 with prior knowledge.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use reeve_serve::http::{
    Answer, Body, Handler, Limits, Running, Server, StatusCode, hang_up, listen, text,
};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_connection_run_in_parallel_and_a_panic_costs_one_of_them() {
    let (releases, released) = std::sync::mpsc::channel();
    let (releases, released) = (Mutex::new(releases), Arc::new(Mutex::new(released)));
    let (blocks, mut blocked) = tokio::sync::mpsc::unbounded_channel();
    let handler: Handler = Arc::new(move |request| {
        let path = request.uri().path().to_owned();
        if path == "/release" {
            releases.lock().send(()).unwrap();
        }
        let (blocks, released) = (blocks.clone(), Arc::clone(&released));
        Box::pin(async move {
            if path == "/block" {
                blocks.send(()).unwrap();
                // Keeps its thread until the other request was handled.
                released.lock().recv().unwrap();
            }
            assert!(path != "/panic", "a bug");
            text(StatusCode::OK, path)
        })
    });
    let server = Server::on("parallel", listen(anywhere()).unwrap(), handler);
    let running = server.plain_http2().task_per_request().start().unwrap();
    let io = TokioIo::new(TcpStream::connect(running.local_addr()).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (http2, driving) = handshake.await.unwrap();
    let driving = tokio::spawn(driving);
    let send = |path: &'static str| {
        let mut http2 = http2.clone();
        async move {
            let answer = http2.send_request(get(path)).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }
    };
    let answer = tokio::spawn(send("/block"));
    blocked.recv().await.unwrap();
    assert_eq!(send("/release").await, (200, "/release".to_owned()));
    assert_eq!(answer.await.unwrap(), (200, "/block".to_owned()));
    assert_eq!(
        send("/panic").await,
        (500, "the handler panicked\n".to_owned())
    );
    assert_eq!(send("/other").await, (200, "/other".to_owned()));
    drop((http2, running));
    let _ = driving.await;
}
