//! A kernel in memory and an operator that answers as it is set.

use super::*;

/// A kernel in memory, which ends elements by tokio's time.
#[derive(Clone, Default)]
pub(super) struct Memory(pub(super) Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    pub(super) table: bool,
    /// Whether a chain or a rule is damaged.
    pub(super) damaged: bool,
    /// What was made again.
    pub(super) rebuilt: Vec<Rebuild>,
    pub(super) generation: u32,
    /// Family, span and end.
    pub(super) elements: Vec<(Family, Span, Option<Instant>)>,
    /// Errors of the next changes.
    pub(super) errors: VecDeque<i32>,
    pub(super) packets: u64,
    /// Packets that are dropped between two readings.
    pub(super) rate: u64,
    pub(super) applied: usize,
}

impl Memory {
    pub(super) fn targets(&self) -> Vec<String> {
        let mut state = self.0.lock();
        state.expire();
        let mut targets: Vec<_> = state
            .elements
            .iter()
            .map(|(family, span, _)| (*family, *span))
            .collect();
        targets.sort_unstable();
        targets
            .into_iter()
            .map(|(family, span)| span.text(family))
            .collect()
    }

    /// What another program does.
    pub(super) fn outside(&self, work: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        state.generation += 1;
        work(&mut state);
    }
}

impl State {
    fn expire(&mut self) {
        let now = Instant::now();
        self.elements
            .retain(|(.., end)| end.is_none_or(|end| end > now));
    }
}

fn refused(number: i32) -> netlink::Error {
    netlink::Error::Refused {
        message: "NFT_MSG_NEWSETELEM",
        cause: std::io::Error::from_raw_os_error(number),
    }
}

impl Kernel for Memory {
    fn standing(&mut self) -> Result<Standing, netlink::Error> {
        let mut state = self.0.lock();
        state.packets += state.rate;
        let counter = Counter {
            packets: state.packets,
            bytes: 0,
        };
        let layout = match (state.table, state.damaged) {
            (true, false) => Layout::Intact {
                v4: counter,
                v6: Counter::default(),
            },
            (true, true) => Layout::Damaged {
                what: "the rules",
                repair: Rebuild::Chain,
            },
            (false, _) => Layout::Missing,
        };
        Ok(Standing {
            layout,
            generation: state.generation,
        })
    }

    fn observe(&mut self) -> Result<Observed, netlink::Error> {
        let mut state = self.0.lock();
        state.expire();
        let of = |wanted| {
            let mut set: Vec<Timed> = state
                .elements
                .iter()
                .filter(|(family, ..)| *family == wanted)
                .map(|(_, span, end)| {
                    let left = end.map_or(Left::INDEFINITE, |end| Left::of(end - Instant::now()));
                    Timed::new(*span, left)
                })
                .collect();
            set.sort_unstable();
            set
        };
        Ok(Observed {
            v4: of(Family::V4),
            v6: of(Family::V6),
        })
    }

    fn apply(&mut self, change: &Change) -> Result<(), netlink::Error> {
        let mut state = self.0.lock();
        if let Some(number) = state.errors.pop_front() {
            return Err(refused(number));
        }
        state.expire();
        state.generation += 1;
        state.applied += 1;
        if change.rebuild != Rebuild::Nothing {
            state.rebuilt.push(change.rebuild);
            (state.table, state.damaged) = (true, false);
            state.packets = 0;
        }
        if change.rebuild == Rebuild::Table {
            state.elements.clear();
        }
        for family in Family::ALL {
            for span in &change.of(family).remove {
                let at = state
                    .elements
                    .iter()
                    .position(|(found, other, _)| *found == family && other == span);
                let at = at.ok_or_else(|| refused(2))?;
                state.elements.remove(at);
            }
            for timed in &change.of(family).add {
                let end = timed.left.time().map(|left| Instant::now() + left);
                state.elements.push((family, timed.span, end));
            }
        }
        Ok(())
    }

    fn addresses(&mut self) -> Result<Vec<IpAddr>, netlink::Error> {
        Ok(vec!["198.51.100.200".parse().unwrap()])
    }
}

/// A source that answers as it is set, and at once when it is changed.
#[derive(Clone, Default)]
pub(super) struct Operator(pub(super) Arc<Mutex<Script>>);

#[derive(Default)]
pub(super) struct Script {
    pub(super) version: u64,
    pub(super) entries: Vec<Entry>,
    /// `None`: no answer.
    pub(super) up: bool,
    pub(super) asks: Vec<Ask>,
    pub(super) reports: Vec<Report>,
    /// Its address, unless it is the usual one.
    pub(super) address: Option<IpAddr>,
}

impl Operator {
    pub(super) fn set(&self, entries: &[(&str, Option<&str>)]) {
        let mut script = self.0.lock();
        script.version += 1;
        script.up = true;
        script.entries = entries
            .iter()
            .map(|(target, until)| Entry {
                target: (*target).into(),
                until: until.map(|until| until.parse().unwrap()),
            })
            .collect();
    }

    pub(super) fn hosts(&self, count: u8) {
        let hosts: Vec<String> = (0..count).map(|at| format!("192.0.{at}.1")).collect();
        let entries: Vec<_> = hosts.iter().map(|host| (host.as_str(), None)).collect();
        self.set(&entries);
    }
}

impl Source for Operator {
    fn fetch(
        &self,
        ask: Ask,
        report: Option<Report>,
    ) -> BoxFuture<'static, Result<Received, Error>> {
        let operator = self.clone();
        {
            let mut script = operator.0.lock();
            script.asks.push(ask.clone());
            script.reports.extend(report);
        }
        async move {
            let waited = Instant::now();
            loop {
                {
                    let script = operator.0.lock();
                    if !script.up {
                        return Err(Error::Connect("connection refused".into()));
                    }
                    let date = date_of(waited);
                    let version = script.version.to_string();
                    if ask.version.as_ref() != Some(&version) {
                        let entries = script.entries.clone();
                        let answer = Answer::Full { version, entries };
                        return Ok(Received { answer, date });
                    }
                    if waited.elapsed() >= Duration::from_secs(30) {
                        let answer = Answer::Unchanged;
                        return Ok(Received { answer, date });
                    }
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        .boxed()
    }

    fn addresses(&self) -> BoxFuture<'static, Vec<IpAddr>> {
        let usual = || "198.51.100.100".parse().unwrap();
        let address = self.0.lock().address.unwrap_or_else(usual);
        std::future::ready(vec![address]).boxed()
    }
}

/// The server's clock: that of the test, in whole seconds.
pub(super) fn date_of(_: Instant) -> Option<Timestamp> {
    CLOCK.with_borrow(|clock| {
        let now = clock.as_ref()?.now();
        Timestamp::from_second(now.as_second()).ok()
    })
}

thread_local! {
    pub(super) static CLOCK: std::cell::RefCell<Option<Clock>> = const { std::cell::RefCell::new(None) };
}
