//! The data directory that an etcd of this package holds.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::etcd::DATA_DIRECTORY;

/// Time for etcd to answer; both programs may start at once.
const ETCD_PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two attempts.
const ETCD_PAUSE: Duration = Duration::from_millis(50);
/// Time for one answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer, in bytes.
const LARGEST_ANSWER: u64 = 64 * 1024;

/// The reason why there is no directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("--etcd-servers {url}: etcd does not answer: {last}")]
    Silent { url: String, last: io::Error },
}

/// Where the objects are kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DataDirectory {
    pub(super) path: PathBuf,
    /// Whether writes are answered before they are synced.
    pub(super) unsynced: bool,
}

/// The directory of the objects: below the data directory of etcd, one for each prefix. `None` without an etcd, and with one that
/// is not of this package.
///
/// # Errors
/// When etcd does not answer.
pub(super) async fn data_directory(
    servers: &[String],
    prefix: &str,
) -> Result<Option<DataDirectory>, Error> {
    let Some(url) = servers.first() else {
        return Ok(None);
    };
    let Some(host) = url.strip_prefix("http://") else {
        tracing::warn!(etcd = url, "this etcd is not used: objects are in memory");
        return Ok(None);
    };
    let host = host.trim_end_matches('/');
    let deadline = Instant::now() + ETCD_PATIENCE;
    let answer = loop {
        let last = match timeout(ANSWER_PATIENCE, get(host, DATA_DIRECTORY)).await {
            Ok(Ok(answer)) => break answer,
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        if Instant::now() >= deadline {
            let url = url.clone();
            return Err(Error::Silent { url, last });
        }
        sleep(ETCD_PAUSE).await;
    };
    let Some(directory) = directory_in(&answer) else {
        tracing::warn!(
            etcd = url,
            "this etcd is not of reeve-apiserver: objects are in memory"
        );
        return Ok(None);
    };
    let path = below(&directory.path, prefix);
    Ok(Some(DataDirectory { path, ..directory }))
}

/// The answer to a GET, with its head. The request of an old version of HTTP has an answer without chunks.
async fn get(host: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LARGEST_ANSWER).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn directory_in(answer: &str) -> Option<DataDirectory> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_ok = head.split_whitespace().nth(1) == Some("200");
    let document: Value = serde_json::from_str(body).ok().filter(|_| is_ok)?;
    Some(DataDirectory {
        path: document["dataDir"].as_str()?.into(),
        unsynced: document["unsafeNoFsync"] == true,
    })
}

/// The directory for a prefix: letters and digits of it stay.
fn below(directory: &Path, prefix: &str) -> PathBuf {
    let plain = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '_',
    };
    let name: String = prefix.trim_matches('/').chars().map(plain).collect();
    directory.join("reeve").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_in_the_answer_of_an_etcd_of_this_package() {
        let ok = "HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"dataDir\": \"/tmp/a\"}";
        let expected = |unsynced| {
            let path = "/tmp/a".into();
            Some(DataDirectory { path, unsynced })
        };
        assert_eq!(directory_in(ok), expected(false));
        let unsafe_one = ok.replace('}', ", \"unsafeNoFsync\": true}");
        assert_eq!(directory_in(&unsafe_one), expected(true));
        for other in [
            "HTTP/1.0 404 Not Found\r\n\r\n404 page not found\n",
            "HTTP/1.0 200 OK\r\n\r\n{}",
            "HTTP/1.0 404 Not Found\r\n\r\n{\"dataDir\": \"/tmp/a\"}",
            "",
        ] {
            assert_eq!(directory_in(other), None, "{other}");
        }
    }

    #[test]
    fn each_prefix_has_a_directory_below_that_of_etcd() {
        let of = |prefix| below(Path::new("/d"), prefix);
        assert_eq!(of("/registry"), Path::new("/d/reeve/registry"));
        assert_eq!(of("../x/y"), Path::new("/d/reeve/___x_y"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_etcd_that_never_answers_is_an_error_and_none_is_memory() {
        // The port of a listener that is closed again.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", port.local_addr().unwrap());
        drop(port);
        let error = data_directory(std::slice::from_ref(&url), "/registry")
            .await
            .unwrap_err();
        assert!(error.to_string().contains(&url), "{error}");
        assert_eq!(data_directory(&[], "/registry").await.unwrap(), None);
        let secure = ["https://127.0.0.1:1".to_owned()];
        assert_eq!(data_directory(&secure, "/registry").await.unwrap(), None);
    }
}
