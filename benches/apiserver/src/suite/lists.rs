//! Lists of many Pods in every shape, and the memory that the Pods take.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use memchr::memmem;
use tokio::time::{Instant, sleep};

use super::Span;
use super::ready::bytes;
use super::writes;
use crate::connection::{Call, Connection, JSON};
use crate::error::{Error, Result};
use crate::objects::Kind;
use crate::report::{Unit, Values};
use crate::server::Server;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Objects of a page.
const PAGE: usize = 500;

/// The sizes of the suite.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// The numbers of Pods; each continues from the one before.
    pub(crate) objects: Vec<usize>,
    /// Pause after the writes: garbage is collected, caches follow.
    pub(crate) settle: Duration,
    /// A list is repeated until this has passed.
    pub(crate) at_least: Duration,
}

/// A way to read all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Full,
    Pages,
    /// A label that every tenth object has.
    Labels,
    Table,
    Metadata,
    Protobuf,
    /// A watch that begins with all objects.
    Streamed,
}

// === impl Shape ===

impl Shape {
    const ALL: [Self; 7] = [
        Self::Full,
        Self::Pages,
        Self::Labels,
        Self::Table,
        Self::Metadata,
        Self::Protobuf,
        Self::Streamed,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Full => "JSON",
            Self::Pages => "JSON, pages of 500",
            Self::Labels => "JSON, a label of every tenth",
            Self::Table => "Table",
            Self::Metadata => "metadata",
            Self::Protobuf => "protobuf",
            Self::Streamed => "streamed (`sendInitialEvents`)",
        }
    }

    /// The objects of an answer about `count` objects.
    fn objects(self, count: usize) -> usize {
        if self == Self::Labels {
            count / 10
        } else {
            count
        }
    }

    /// Reads all once.
    async fn read(self, connection: &Connection, path: &str) -> Result<usize> {
        match self {
            Self::Full => connection.drain(Call::get(path)).await,
            Self::Pages => pages(connection, path).await,
            Self::Labels => {
                let path = format!("{path}?labelSelector=ten%3Dt3");
                connection.drain(Call::get(path)).await
            }
            Self::Table => connection.drain(Call::get(path).accept(TABLE)).await,
            Self::Metadata => connection.drain(Call::get(path).accept(METADATA)).await,
            Self::Protobuf => connection.drain(Call::get(path).accept(PROTOBUF)).await,
            Self::Streamed => streamed(connection, path).await,
        }
    }
}

async fn pages(connection: &Connection, path: &str) -> Result<usize> {
    let (mut length, mut next) = (0, String::new());
    loop {
        let page = connection
            .send(Call::get(format!("{path}?limit={PAGE}{next}")))
            .await?;
        length += page.len();
        match continuation(&page) {
            Some(token) => next = format!("&continue={token}"),
            None => return Ok(length),
        }
    }
}

/// The token of the next page. It is in the metadata, which is the head or the tail of the document.
fn continuation(page: &Bytes) -> Option<&str> {
    const FIELD: &[u8] = br#""continue":""#;
    let (head, tail) = (
        &page[..page.len().min(4096)],
        &page[page.len().saturating_sub(4096)..],
    );
    let (part, at) = [head, tail]
        .into_iter()
        .find_map(|part| Some((part, memmem::find(part, FIELD)?)))?;
    let token = part[at + FIELD.len()..]
        .split(|&byte| byte == b'"')
        .next()?;
    std::str::from_utf8(token)
        .ok()
        .filter(|token| !token.is_empty())
}

/// Reads the initial events, up to the bookmark that ends them.
async fn streamed(connection: &Connection, path: &str) -> Result<usize> {
    const END: &[u8] = b"k8s.io/initial-events-end";
    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
    let call = Call::get(format!("{path}?{query}")).accept(JSON);
    let mut body = connection.stream(call).await?;
    // The mark may be in two pieces.
    let (mut length, mut last) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        length += data.len();
        let tail = &data[data.len().saturating_sub(1024)..];
        last.extend_from_slice(tail);
        if memmem::find(&last, END).is_some() {
            return Ok(length);
        }
        let keep = last.len().saturating_sub(END.len());
        last.drain(..keep);
    }
    Err(Error::setup("the initial events have no end"))
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Result<Values> {
    let mut values = Values::default();
    let kind = Kind::small_pod();
    let mut existing = 0;
    for &count in &sizes.objects {
        let empty = server.usage()?;
        writes::fill_more(server, &kind, existing, count).await?;
        existing = count;
        let title = |what: &str| format!("{count} Pods: {what}");
        sleep(sizes.settle).await;
        let resident = server.usage()?.resident;
        values.add(title("resident memory"), Unit::Bytes, bytes(resident));
        let growth = bytes(resident.saturating_sub(empty.resident));
        values.add(title("more memory than before them"), Unit::Bytes, growth);
        let connection = server.connect().await?;
        let one = connection
            .send(Call::get(format!("{}?limit=1", kind.path)))
            .await?;
        values.add(
            title("bytes of a list of one"),
            Unit::Count,
            one.len() as f64,
        );
        for shape in Shape::ALL {
            server.forget_peak()?;
            let objects = shape.objects(count) as f64;
            let span = Span::start(server)?;
            let start = Instant::now();
            let (mut times, mut length) = (0.0, 0);
            while times == 0.0 || start.elapsed() < sizes.at_least {
                length = shape.read(&connection, &kind.path).await?;
                times += 1.0;
            }
            let (time, cpu) = span.end()?;
            let total = objects * times;
            let title = |what: &str| title(&format!("{}, {what}", shape.title()));
            values.add(
                title("objects"),
                Unit::PerSecond,
                total / time.as_secs_f64(),
            );
            let per_cpu = total / cpu.as_secs_f64().max(0.01);
            values.add(title("objects a CPU-second"), Unit::PerSecond, per_cpu);
            values.add(
                title("bytes an object"),
                Unit::Count,
                (length as f64 / objects).round(),
            );
            values.add(
                title("peak memory"),
                Unit::Bytes,
                bytes(server.usage()?.peak),
            );
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_found_at_either_end_of_a_page() {
        let head = Bytes::from_static(br#"{"metadata":{"continue":"abc"},"items":[]}"#);
        assert_eq!(continuation(&head), Some("abc"));
        let none = Bytes::from_static(br#"{"metadata":{"continue":""},"items":[]}"#);
        assert_eq!(continuation(&none), None);
        let mut long = vec![b' '; 10_000];
        long.extend_from_slice(br#","metadata":{"continue":"xyz"}}"#);
        assert_eq!(continuation(&Bytes::from(long)), Some("xyz"));
    }
}
