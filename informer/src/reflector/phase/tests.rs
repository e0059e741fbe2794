//! Each row of the table of phases.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::Status;
use reeve_client::transport::Endpoint;

use super::*;
use crate::reflector::{FirstList, ReflectorOptions, Refusals};

/// The name of an open watch.
type Watch = &'static str;

const LONG: Duration = Duration::from_secs(60);

/// A reflector without its requests.
struct Machine {
    history: History,
    offers: Offers,
}

impl Machine {
    fn new(options: ReflectorOptions) -> Self {
        let endpoint = Endpoint::of::<ConfigMap>();
        Self {
            history: History::new(&"10".into()),
            offers: Offers::new(endpoint, Refusals::default(), options),
        }
    }

    fn next(&mut self, outcome: Outcome<Watch>) -> Phase<Watch> {
        next(outcome, &mut self.history, &mut self.offers, Instant::now())
    }

    /// The next phase as text.
    fn shown(&mut self, outcome: Outcome<Watch>) -> String {
        show(&self.next(outcome))
    }
}

/// `Watching(w) 1/2` is a watch after one failed and two brief ones.
fn show(phase: &Phase<Watch>) -> String {
    let streak = |streak: &Streak| format!("{}/{}", streak.failed, streak.brief);
    let resume = |resume: &Resume| match resume {
        Resume::List => "List".to_owned(),
        Resume::Watch(next) => format!("Watch {}", streak(next)),
    };
    match phase {
        Phase::Preparing => "Preparing".to_owned(),
        Phase::Streaming => "Streaming".to_owned(),
        Phase::Listing(Paging { version, limit, .. }) => {
            let version = version.as_deref().unwrap_or("newest");
            format!("Listing {version} by {limit}")
        }
        Phase::Opening(next) => format!("Opening {}", streak(next)),
        Phase::Watching {
            watch,
            streak: next,
        } => format!("Watching({watch}) {}", streak(next)),
        Phase::Spreading(then) => format!("Spreading, {}", resume(then)),
        Phase::BackingOff { error, then } => {
            format!("BackingOff({}), {}", error.class(), resume(then))
        }
    }
}

fn status(code: u16, reason: &str) -> transport::Error {
    let status = Status {
        code,
        reason: reason.to_owned(),
        ..Status::default()
    };
    transport::Error::from_status(Box::new(status))
}

fn connection() -> Error {
    transport::Error::Connection(kube_client::Error::Service("reset".into())).into()
}

fn behind() -> Error {
    Error::Behind {
        known: "10".into(),
        got: "5".into(),
    }
}

fn newest() -> Paging {
    Paging {
        version: None,
        limit: 500,
        or_newest: false,
    }
}

/// A watch that lasted for a minute, brought an event, and ended when it was asked to.
fn ended(end: End<Watch>) -> Ended<Watch> {
    Ended {
        end,
        until: Instant::now(),
        lasted: LONG,
        events: 1,
        useful: true,
        synthetic: false,
    }
}

fn after(ended: Ended<Watch>, streak: Streak) -> Outcome<Watch> {
    Outcome::Ended { ended, streak }
}

/// One failed watch, and two that were brief.
const STREAK: Streak = Streak {
    failed: 1,
    brief: 2,
};

#[tokio::test(start_paused = true)]
async fn each_outcome_leads_to_one_phase() {
    let opened = |watch| Outcome::Opened {
        watch,
        streak: STREAK,
    };
    let open_failed = |error| Outcome::OpenFailed {
        error,
        streak: STREAK,
    };
    let stream_failed = |error: Error| Outcome::StreamFailed { error, begun: true };
    let streamed = |accepted| Outcome::Streamed {
        watch: "stream",
        accepted,
    };
    let listed = |accepted| Outcome::Listed {
        paging: newest(),
        paginated: false,
        accepted,
    };
    let list_failed = |error: transport::Error| Outcome::ListFailed {
        paging: newest(),
        page: Page::First,
        error: error.into(),
    };
    let failed = |error: transport::Error| ended(End::Failed(error.into()));
    let soon = Instant::now() + LONG;
    let brief = Duration::from_millis(500);
    let silence = transport::Error::Silent { after: LONG };

    let cases: Vec<(&str, Outcome<Watch>, &str)> = vec![
        ("prepared", Outcome::Prepared, "Streaming"),
        ("streamed", streamed(Ok(())), "Watching(stream) 0/0"),
        (
            "streamed, and older than known",
            streamed(Err(behind())),
            "BackingOff(behind), List",
        ),
        (
            "streaming is refused",
            stream_failed(status(422, "Invalid").into()),
            "Listing newest by 500",
        ),
        (
            "streaming fails",
            stream_failed(status(500, "").into()),
            "BackingOff(status), List",
        ),
        ("listed", listed(Ok(())), "Opening 0/0"),
        (
            "listed, and older than known",
            listed(Err(behind())),
            "BackingOff(behind), List",
        ),
        (
            "a list fails",
            list_failed(status(403, "Forbidden")),
            "BackingOff(forbidden), List",
        ),
        ("opened", opened("w"), "Watching(w) 1/2"),
        (
            "a busy server refuses a watch",
            open_failed(status(429, "")),
            "BackingOff(status), Watch 2/2",
        ),
        (
            "a watch from a version that is gone",
            open_failed(status(410, "Expired")),
            "BackingOff(expired), List",
        ),
        (
            "a watch ends in time",
            after(ended(End::Closed), STREAK),
            "Opening 0/0",
        ),
        (
            "a watch ends early",
            after(
                Ended {
                    until: soon,
                    ..ended(End::Closed)
                },
                STREAK,
            ),
            "Spreading, Watch 0/0",
        ),
        (
            "a connection breaks",
            after(
                Ended {
                    until: soon,
                    ..ended(End::Failed(connection()))
                },
                STREAK,
            ),
            "Spreading, Watch 0/0",
        ),
        (
            "a watch ends at once, without an event",
            after(
                Ended {
                    lasted: brief,
                    events: 0,
                    useful: false,
                    ..ended(End::Closed)
                },
                Streak::default(),
            ),
            "BackingOff(incomplete), Watch 0/1",
        ),
        (
            "a watch ends at once, after an event",
            after(
                Ended {
                    lasted: brief,
                    ..ended(End::Closed)
                },
                Streak::default(),
            ),
            "Opening 0/1",
        ),
        (
            "the third in a row does",
            after(
                Ended {
                    lasted: brief,
                    ..ended(End::Closed)
                },
                STREAK,
            ),
            "BackingOff(incomplete), Watch 0/3",
        ),
        (
            "a connection breaks at once, without an event",
            after(
                Ended {
                    lasted: brief,
                    events: 0,
                    useful: false,
                    ..ended(End::Failed(connection()))
                },
                STREAK,
            ),
            "BackingOff(connection), Watch 2/3",
        ),
        (
            "a silent watch is replaced",
            after(ended(End::Replaced("second")), STREAK),
            "Watching(second) 0/0",
        ),
        (
            "a silent watch cannot be replaced",
            after(failed(silence), STREAK),
            "BackingOff(silent), Watch 1/0",
        ),
        (
            "the version is gone",
            after(failed(status(410, "Expired")), STREAK),
            "BackingOff(expired), List",
        ),
        (
            "the stream reports an error",
            after(failed(status(500, "")), STREAK),
            "BackingOff(status), Watch 1/0",
        ),
        (
            "and again, with nothing in between",
            after(
                Ended {
                    useful: false,
                    ..failed(status(500, ""))
                },
                Streak {
                    failed: 2,
                    brief: 0,
                },
            ),
            "BackingOff(status), List",
        ),
        (
            "the server's history seems to begin again",
            after(ended(End::Failed(behind())), STREAK),
            "BackingOff(behind), List",
        ),
        (
            "waited, to list",
            Outcome::Waited(Resume::List),
            "Preparing",
        ),
        (
            "waited, to watch",
            Outcome::Waited(Resume::Watch(STREAK)),
            "Opening 1/2",
        ),
    ];
    for (case, outcome, expected) in cases {
        let mut machine = Machine::new(ReflectorOptions::default());
        assert_eq!(machine.shown(outcome), expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_watch_without_a_version_the_present_state_is_read_again() {
    let mut machine = Machine::new(ReflectorOptions::default());
    let soon = Instant::now() + LONG;
    for (ended, expected) in [
        (ended(End::Closed), "Preparing"),
        (
            Ended {
                until: soon,
                ..ended(End::Closed)
            },
            "Spreading, List",
        ),
        (
            Ended {
                lasted: Duration::ZERO,
                ..ended(End::Closed)
            },
            "BackingOff(incomplete), List",
        ),
        (
            ended(End::Failed(status(500, "").into())),
            "BackingOff(status), List",
        ),
    ] {
        let ended = Ended {
            synthetic: true,
            ..ended
        };
        assert_eq!(machine.shown(after(ended, Streak::default())), expected);
        assert!(machine.history.version().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_version_is_of_no_use_is_replaced_by_the_newest_once() {
    let options = ReflectorOptions::default()
        .first_list(FirstList::Any)
        .streaming(false);
    for code in [410, 504] {
        let mut machine = Machine::new(options);
        let gone = || match code {
            410 => status(410, "Expired"),
            _ => transport::Error::from_status(Box::new(Status {
                code,
                reason: "Timeout".to_owned(),
                message: "Too large resource version: 10, current: 5".to_owned(),
                ..Status::default()
            })),
        };
        let Phase::Listing(paging) = machine.next(Outcome::Prepared) else {
            panic!("it lists");
        };
        assert_eq!(paging.version.as_deref(), Some("10"));
        let failed = |paging| Outcome::ListFailed {
            paging,
            page: Page::First,
            error: gone().into(),
        };
        let Phase::Listing(paging) = machine.next(failed(paging)) else {
            panic!("it lists again");
        };
        assert_eq!(paging, newest());
        let next = machine.next(failed(paging));
        assert!(show(&next).starts_with("BackingOff"), "{next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_too_large_is_requested_in_pages() {
    let options = ReflectorOptions::default()
        .first_list(FirstList::Any)
        .streaming(false);
    let mut machine = Machine::new(options);
    let Phase::Listing(paging) = machine.next(Outcome::Prepared) else {
        panic!("it lists");
    };
    assert_eq!(paging.limit, 0);
    let next = machine.shown(Outcome::ListFailed {
        paging,
        page: Page::First,
        error: transport::Error::TooLarge { limit: 1 }.into(),
    });
    assert_eq!(next, "Listing 10 by 500");
}
