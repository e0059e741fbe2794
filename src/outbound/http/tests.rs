//! Requests to sockets of this machine, and the addresses that are refused.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn loopback() -> HttpBuilder {
    Http::builder().policy(AddressPolicy {
        allow_loopback: true,
    })
}

fn get(url: &str) -> http::Request<Bytes> {
    http::Request::get(url).body(Bytes::new()).unwrap()
}

/// Answers each connection with `bytes` after reading the request, then closes it.
async fn server(bytes: Vec<u8>) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/limit?ip=192.0.2.1",
        listener.local_addr().unwrap()
    );
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0_u8; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(&bytes).await;
        }
    });
    (url, task)
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let http = loopback().build().unwrap();
    assert_eq!(http.send(get(&url)).await.unwrap_err(), Error::Refused);
}

#[tokio::test]
async fn a_connection_closed_without_an_answer_is_a_reset() {
    let (url, task) = server(Vec::new()).await;
    let http = loopback().build().unwrap();
    assert_eq!(http.send(get(&url)).await.unwrap_err(), Error::Reset);
    task.abort();
}

#[tokio::test]
async fn silence_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let limits = Limits {
        total: Duration::from_millis(200),
        ..Limits::default()
    };
    let http = loopback().limits(limits).build().unwrap();
    let error = http.send(get(&url)).await.unwrap_err();
    assert_eq!(error.to_string(), "no answer within 200 ms");
}

#[tokio::test(start_paused = true)]
async fn without_settings_a_connection_has_two_seconds_and_an_answer_five() {
    let limits = Limits::default();
    assert_eq!(limits.connect, Duration::from_secs(2));
    assert_eq!(limits.answer_bytes, 64 * 1024);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let http = loopback().build().unwrap();
    let (request, accepted) = (http.send(get(&url)), listener.accept());
    let begun = tokio::time::Instant::now();
    let (error, _silent) = tokio::join!(request, accepted);
    assert_eq!(error.unwrap_err(), Error::Timeout(Duration::from_secs(5)));
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let answer =
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let (url, task) = server(answer.to_vec()).await;
    let http = loopback().build().unwrap();
    assert_eq!(http.send(get(&url)).await.unwrap().status(), 302);
    task.abort();
}

#[tokio::test]
async fn an_answer_past_the_limit_is_cut_off() {
    let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    answer.extend(std::iter::repeat_n(b'x', 70 * 1024));
    let (url, task) = server(answer).await;
    let http = loopback().build().unwrap();
    assert_eq!(
        http.send(get(&url)).await.unwrap_err(),
        Error::TooLarge(64 * 1024)
    );
    task.abort();
}

#[tokio::test]
async fn a_loopback_address_is_refused_by_default_by_number_and_by_name() {
    let http = Http::builder().build().unwrap();
    for url in [
        "http://127.0.0.1:9/",
        "http://[::1]:9/",
        "http://localhost:9/",
    ] {
        let error = http.send(get(url)).await.unwrap_err();
        assert!(matches!(error, Error::Forbidden(_)), "{url}: {error:?}");
    }
}

#[test]
fn an_authority_that_is_no_certificate_is_an_error() {
    for pem in ["", "no pem"] {
        let error = Http::builder().authority(pem).build().unwrap_err();
        assert!(matches!(error, Error::Tls(_)), "{error:?}");
    }
}

#[test]
fn metadata_link_local_and_unspecified_addresses_are_refused() {
    for policy in [
        AddressPolicy::default(),
        AddressPolicy {
            allow_loopback: true,
        },
    ] {
        for refused in [
            "169.254.169.254",
            "100.100.100.200",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "ff02::1",
            "::",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
            "fd20:ce::254",
            "168.63.129.16",
            "192.0.0.192",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::168.63.129.16",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(!policy.allows(refused.parse().unwrap()), "{refused}");
        }
        for allowed in [
            "10.0.0.9",
            "192.0.2.1",
            "2001:db8::1",
            "fd12::1",
            "64:ff9b::192.0.2.1",
            "2002:c000:201::1",
        ] {
            assert!(policy.allows(allowed.parse().unwrap()), "{allowed}");
        }
    }
}

#[test]
fn loopback_needs_the_switch() {
    for address in [
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::127.0.0.1",
    ] {
        let address = address.parse().unwrap();
        assert!(!AddressPolicy::default().allows(address));
        let open = AddressPolicy {
            allow_loopback: true,
        };
        assert!(open.allows(address));
    }
}

#[tokio::test]
async fn a_number_that_the_client_reads_as_an_address_is_refused_like_one() {
    let http = Http::builder().build().unwrap();
    for (host, address) in [
        ("2852039166", "169.254.169.254"),
        ("0xa9fea9fe", "169.254.169.254"),
        ("0x7f.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
    ] {
        let error = http
            .send(get(&format!("http://{host}/")))
            .await
            .unwrap_err();
        assert_eq!(error, Error::Forbidden(address.parse().unwrap()), "{host}");
    }
}
