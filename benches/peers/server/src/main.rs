//! An API server of canned objects. It is so cheap that a measurement shows the peers, not the server.
//!
//! Objects are templates into which names, versions and times of fixed width are written, so an
//! object costs a copy; one thread serves all connections. It lists (in one piece, or in pages where
//! a real server would), streams lists, and watches, in JSON and protobuf, whole objects or metadata.
//! `serve [-listen=ADDRESS] [-tls=ADDRESS]`: at the second address it answers by TLS too, with a self-signed certificate.
//! Orders control it:
//!
//! | request | what |
//! |---|---|
//! | `POST /control/reset?kind&n` | remove all objects of the kind, end its watches, hold `n` new objects; answers the version |
//! | `POST /control/burst?kind&n[&start][&rate][&watches]` | change `n` objects, from `start` on and in rotation; `rate` a second, evenly (default: as fast as possible); begins when `watches` watches exist (default 1) |
//! | `POST /control/expire?kind[&touch]` | end every watch with 410, and expire all earlier versions; `touch=1` changes object 0 without an event |
//! | `POST /control/watches?kind` | the number of watches |
//! | `PATCH …/status` of an object | a change of the object; the content of the patch is ignored |
//! | `POST /control/cpu` | processor time of this server in seconds |

mod burst;
mod format;
mod list;
mod protobuf;
mod route;
mod secured;
mod template;
mod watch;
mod world;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use peer_measure::Flags;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};

use world::World;

fn main() -> ExitCode {
    let (address, secured) = match Flags::of_process("server") {
        Ok(flags) if flags.scenario == "serve" => {
            let secured = flags.text("tls", "");
            let address = flags.text("listen", "127.0.0.1:18080");
            (address, (!secured.is_empty()).then_some(secured))
        }
        _ => {
            eprintln!("expected: serve [-listen=127.0.0.1:18080] [-tls=127.0.0.1:18443]");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(serve(&address, secured.as_deref()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{address}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Connections that wait to be accepted. 200 informers connect at once, and one that finds no room tries again after a
/// second.
const BACKLOG: u32 = 4096;

fn listen(address: &str) -> io::Result<TcpListener> {
    let address = address.parse().map_err(io::Error::other)?;
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn serve(address: &str, secured: Option<&str>) -> io::Result<()> {
    let listener = listen(address)?;
    let world = Arc::new(World::new());
    let mut line = format!("listening on {}", listener.local_addr()?);
    if let Some(secured) = secured {
        let secured = listen(secured)?;
        line.push_str(&format!(" and {}", secured.local_addr()?));
        tokio::spawn(secured::accept(
            secured,
            secured::acceptor(),
            Arc::clone(&world),
        ));
    }
    println!("{line}");
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(converse(stream, Arc::clone(&world)));
    }
}

/// Answers the requests of a connection.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, world: Arc<World>) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        let world = Arc::clone(&world);
        async move {
            // A connection is reused only after the whole request was read.
            while let Some(frame) = request.body_mut().frame().await {
                frame?;
            }
            Ok::<_, hyper::Error>(route::answer(&world, &request))
        }
    });
    // A client may disconnect at any time; the server continues.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
