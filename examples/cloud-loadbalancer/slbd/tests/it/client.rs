//! The client against clouds that are not ours.

use reeve_clock::Clock;
use slbd::client::{Client, Error};
use slbd::parameters::Parameters;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A client of a cloud that gives the same answer to each call.
async fn of_one_answer(body: String) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            // All calls of these tests have a body that ends before the first pause.
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let endpoint = format!("http://{address}");
    Client::new(&endpoint, "id", "secret", "cn-loopback", Clock::system()).unwrap()
}

#[tokio::test]
async fn a_list_without_end_is_an_error() {
    let ids: Vec<_> = (0..100)
        .map(|id| format!(r#"{{"LoadBalancerId":"lb-{id}","LoadBalancerName":""}}"#))
        .collect();
    let pages = format!(
        r#"{{"TotalCount":1000000,"LoadBalancers":{{"LoadBalancer":[{}]}}}}"#,
        ids.join(",")
    );
    let client = of_one_answer(pages).await;
    let found = client.balancers(Parameters::default()).await.map(|_| ());
    expect_no_end(found);

    let client = of_one_answer(r#"{"Listeners":[],"NextToken":"again"}"#.to_owned()).await;
    expect_no_end(client.all_listeners().await.map(|_| ()));
}

fn expect_no_end(found: Result<(), Error>) {
    let error = found.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    assert!(
        error.to_string().contains("no end after 1000 pages"),
        "{error}"
    );
}
