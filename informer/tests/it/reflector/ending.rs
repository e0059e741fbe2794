//! The end of an informer, and of a kind.

use super::*;

#[tokio::test(start_paused = true)]
async fn every_wait_ends_when_the_informer_is_stopped() {
    let cases: [(&str, Vec<Answer>); 7] = [
        ("a list without answer", vec![no_streaming(), Answer::Hang]),
        (
            "a page ahead without answer",
            vec![no_streaming(), page("1", "t", &[]), watch([])],
        ),
        (
            "a watch without answer",
            vec![no_streaming(), list("1", &[]), Answer::Hang],
        ),
        (
            "an open watch",
            vec![no_streaming(), list("1", &[]), watch([])],
        ),
        ("an open streaming list", vec![watch([added("a", "1")])]),
        (
            "a back-off after a failed list",
            vec![status(500, ""), status(500, "")],
        ),
        ("a back-off after a 429", vec![status(429, "")]),
    ];
    for (case, answers) in cases {
        let script = Script::new(answers);
        let running = start(&script);
        millis(500).await;
        println!("{case}: {:?}", script.log());
        let informer = running.informer.clone();
        running.stop().await;
        assert_eq!(informer.health().activity, Activity::Stopped, "{case}");
        millis(1).await;
        assert_eq!(script.open(), 0, "{case}");
        let asked = script.asked().len();
        seconds(HOUR).await;
        assert_eq!(script.asked().len(), asked, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_stopped_before_its_start_sends_no_request() {
    let script = Script::default();
    let informer = builder(&script).build();
    let stop = CancellationToken::new();
    stop.cancel();
    informer.run(stop).await.unwrap();
    assert!(script.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_removed_kind_is_waited_for_quietly_and_followed_when_it_returns() {
    let gone = || status(404, "NotFound");
    let mut answers = vec![
        no_streaming(),
        list("10", &[object("a", "5")]),
        ending([deleted("a", "11"), wait(2)]),
        gone(),
    ];
    answers.extend((0..10).map(|_| gone()));
    answers.extend([list("30", &[object_of("a", "25", "other-uid")]), watch([])]);
    let script = Script::new(answers).otherwise(|_| watch([]));
    let running = start(&script);
    seconds(900).await;
    assert_eq!(running.received.take(), ["+a@5*", "-a@11", "+a@25"]);
    assert!(running.informer.health().is_ready());
}
