//! A watch has the same lines, however its bytes are cut into frames.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use kube_client::Client;
use kube_client::client::Body;
use proptest::prelude::*;
use reeve_client::transport::{Error, Limits, Transport};

use crate::script::streamed;

/// A server that answers with these frames.
fn serving(frames: Vec<Bytes>, body_limit: usize) -> Transport {
    let service = tower::service_fn(move |_: Request<Body>| {
        let frames = frames.clone();
        async move {
            let (sender, body) = streamed();
            tokio::spawn(async move {
                for frame in frames {
                    if sender.send(Ok(frame)).await.is_err() {
                        return;
                    }
                }
            });
            Ok::<_, std::io::Error>(body)
        }
    });
    let limits = Limits::new().body(body_limit);
    Transport::new(Client::new(service, "default"), limits)
}

async fn lines(frames: Vec<Bytes>, body_limit: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut lines = serving(frames, body_limit)
        .watch(Request::get("/").body(Body::empty()).unwrap())
        .await?;
    let mut found = Vec::new();
    while let Some(line) = lines.next_line(Duration::from_secs(1)).await? {
        found.push(line.to_vec());
    }
    Ok(found)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

/// `default` cases, or the number in `PROPTEST_CASES`.
fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn lines_do_not_depend_on_frames(
        text in proptest::collection::vec("[a-z ]{0,12}", 0..12),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
        ended in any::<bool>(),
    ) {
        let mut body = text.join("\n").into_bytes();
        if ended {
            body.push(b'\n');
        }
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        places.extend([0, body.len()]);
        places.sort_unstable();
        let frames = places.windows(2).map(|pair| Bytes::copy_from_slice(&body[pair[0]..pair[1]])).collect();
        let mut expected: Vec<Vec<u8>> = body.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        // The part after the last end of line may be cut off.
        expected.pop();
        expected.retain(|line| !line.iter().all(u8::is_ascii_whitespace));
        prop_assert_eq!(block_on(lines(frames, 1 << 20)).unwrap(), expected);
    }
}

#[test]
fn a_whole_body_does_not_depend_on_frames_and_is_limited() {
    let fetch = |frames: &[&'static str], limit| {
        let frames = frames
            .iter()
            .map(|frame| Bytes::from_static(frame.as_bytes()));
        let frames = frames.collect();
        block_on(async {
            let request = Request::get("/").body(Body::empty()).unwrap();
            serving(frames, limit).fetch(request).await
        })
    };
    for frames in [
        &["0123456789"] as &[_],
        &["01234", "", "5678", "9"],
        &["", "0123456789"],
    ] {
        assert_eq!(fetch(frames, 10).unwrap(), "0123456789");
        assert!(matches!(
            fetch(frames, 9),
            Err(Error::TooLarge { limit: 9 })
        ));
    }
    assert!(fetch(&[], 0).unwrap().is_empty());
}

#[test]
fn a_line_that_never_ends_is_refused_at_the_limit() {
    let frames = std::iter::repeat_n(Bytes::from_static(&[b'x'; 1024]), 64).collect();
    assert!(matches!(
        block_on(lines(frames, 10_000)),
        Err(Error::TooLarge { limit: 10_000 })
    ));
}
