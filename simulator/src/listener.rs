//! The address that a gateway listens at, over HTTP/1.1.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reeve_serve::http::{Body, Handler, Limits, Running, Server, hang_up, listen};

use crate::world::World;

fn limits() -> Limits {
    Limits::default()
        .connections(4096)
        .header_timeout(Duration::from_secs(60))
        .idle(Duration::from_secs(60))
        // A fault may be silence, however long the caller waits.
        .answer_timeout(Duration::MAX)
        // A gateway that is gone breaks its connections.
        .drain(Duration::ZERO)
}

/// Listens at `address`, port 0 takes a free one, and answers as `world` does.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) fn start(address: SocketAddr, world: Arc<World>) -> io::Result<Running> {
    let handler: Handler = Arc::new(move |request| {
        let world = Arc::clone(&world);
        Box::pin(async move {
            let uri = request.uri();
            let query = uri.query().unwrap_or_default();
            let answer = world.answer(request.method(), uri.path(), query).await;
            answer.map_or_else(hang_up, |answer| answer.map(Body::whole))
        })
    });
    let server = Server::on("simulated gateway", listen(address)?, handler);
    server.limits(limits()).start()
}
