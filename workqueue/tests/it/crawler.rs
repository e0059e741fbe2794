//! The example crawls its own web to the end, and stops on request.

#[path = "../../examples/crawler.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main is not called here")]
mod example;

use example::crawl;

#[tokio::test]
async fn the_crawler_fetches_every_page_and_gives_up_what_is_broken() {
    let report = crawl(std::future::pending()).await.unwrap();
    // 1 + 3 + 9 + 27 of the large host, and the root of the small one.
    assert_eq!((report.fetched, report.left), (41, 0));
    let broken = "large.example/broken (HTTP/1.0 500 Internal Server Error)";
    assert_eq!(report.given_up, [broken]);
}

#[tokio::test]
async fn a_crawler_that_is_stopped_says_what_it_left() {
    let report = crawl(std::future::ready(())).await.unwrap();
    assert_eq!((report.fetched, report.left), (0, 1));
}
