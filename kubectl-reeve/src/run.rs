//! Runs the program: finds the Pods, gets their reports, prints them, and again with `--watch`.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use futures::future::join_all;
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::command::{Arguments, Asked, Color, Format, Place, Source};
use crate::error::Error;
use crate::kubectl::{Forward, Pod};
use crate::pages::Pages;
use crate::report::Report;
use crate::table::{Screen, Style};
use crate::view::{FAILING, Frame};

/// The pause between two refreshes of `--watch`.
const REFRESH: Duration = Duration::from_secs(2);
/// Clears the terminal and moves the cursor to its top.
const CLEAR: &str = "\x1b[2J\x1b[3J\x1b[H";

/// The report of one program, or the reason why there is none.
struct Answer {
    /// `pod/NAME`, or the URL.
    from: String,
    report: Result<Value, Error>,
}

/// The programs and the connections to them, which stay open between refreshes.
struct Session<'a> {
    arguments: &'a Arguments,
    asked: Asked,
    place: Place,
    pages: Pages,
    forwards: HashMap<String, Forward>,
}

/// Runs the program with the command line of the process. Exit status 0: each report was read; 1: one was not, or the
/// command line names no program; 2: the command line has an unknown option.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(until_stopped(&arguments)),
        Err(error) => Err(Error::Start(error)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until the reports are printed, or until a signal. The kubectl processes are killed with the session.
async fn until_stopped(arguments: &Arguments) -> Result<bool, Error> {
    let stop = stopped();
    tokio::select! {
        biased;
        result = run(arguments) => result,
        () = stop => Ok(arguments.output.watch),
    }
}

async fn run(arguments: &Arguments) -> Result<bool, Error> {
    let asked = arguments.asked();
    if arguments.output.watch && matches!(asked, Asked::Log(Some(_))) {
        return Err(Error::WatchedChange);
    }
    let mut session = Session {
        arguments,
        asked,
        place: arguments.place()?,
        pages: Pages::new(&arguments.source.access)?,
        forwards: HashMap::new(),
    };
    loop {
        let answers = session.answers().await;
        if !arguments.output.watch {
            let answers = answers?;
            match print(&shown(arguments, &answers)) {
                // A closed pipe (`| head`) is not an error.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Err(Error::Output(error));
                }
                _ => {}
            }
            return Ok(answers.iter().all(|answer| answer.report.is_ok()));
        }
        // A failure may pass, so the next refresh tries again.
        let text = match &answers {
            Ok(answers) => shown(arguments, answers),
            Err(error) => format!("error: {error}\n"),
        };
        let clear = if std::io::stdout().is_terminal() {
            CLEAR
        } else {
            ""
        };
        // Without a reader there is nothing left to do.
        if print(&format!("{clear}{text}")).is_err() {
            return Ok(true);
        }
        sleep(REFRESH).await;
    }
}

// === impl Session ===

impl Session<'_> {
    /// The report of each program, the leader's first.
    async fn answers(&mut self) -> Result<Vec<Answer>, Error> {
        if let Place::Address(url) = &self.place {
            let report = self.pages.ask(url, &self.asked).await;
            let from = url.clone();
            return Ok(vec![Answer { from, report }]);
        }
        let pods = self.arguments.source.pods(&self.place).await?;
        self.forwards
            .retain(|name, _| pods.iter().any(|pod| pod.name == *name));
        let known = &mut self.forwards;
        let waits = pods.into_iter().map(|pod| {
            let forward = known.remove(&pod.name);
            let (source, asked) = (&self.arguments.source, &self.asked);
            source.answer_of(&self.pages, asked, pod, forward)
        });
        let mut answers = Vec::new();
        for (name, forward, report) in join_all(waits).await {
            if let Some(forward) = forward {
                self.forwards.insert(name.clone(), forward);
            }
            let from = format!("pod/{name}");
            answers.push(Answer { from, report });
        }
        answers.sort_by_key(|answer| !answer.leads());
        Ok(answers)
    }
}

// === impl Source ===

impl Source {
    /// The answer of a Pod, and the port that stays forwarded unless the request failed.
    async fn answer_of(
        &self,
        pages: &Pages,
        asked: &Asked,
        pod: Pod,
        known: Option<Forward>,
    ) -> (String, Option<Forward>, Result<Value, Error>) {
        // One that is being deleted may hang in its end, or still lead.
        if !matches!(&*pod.phase, "Running" | "Terminating") {
            return (pod.name, None, Err(Error::NotRunning(pod.phase)));
        }
        let forward = match known {
            Some(forward) => forward,
            None => match self.forward(&pod).await {
                Ok(forward) => forward,
                Err(error) => return (pod.name, None, Err(error)),
            },
        };
        let access = &self.access;
        let host = access.tls_server_name.as_deref().unwrap_or("127.0.0.1");
        let base = |scheme| format!("{scheme}://{host}:{}", forward.port);
        let mut report = Err(Error::Scheme(String::new()));
        if !access.https {
            report = pages.ask(&base("http"), asked).await;
        }
        if let Err(Error::Scheme(_)) = report {
            report = pages.ask(&base("https"), asked).await;
        }
        match report {
            Err(error @ (Error::Request(_) | Error::Refused(_))) => {
                // kubectl accepts the connection before it reaches the Pod, and prints why it did not.
                let error = forward.complaint().map_or(error, Error::Forward);
                (pod.name, None, Err(error))
            }
            report => (pod.name, Some(forward), report),
        }
    }
}

// === impl Answer ===

impl Answer {
    fn leads(&self) -> bool {
        self.report
            .as_ref()
            .is_ok_and(|report| Report::of(report).leads())
    }
}

/// All answers in the format of the command line.
fn shown(arguments: &Arguments, answers: &[Answer]) -> String {
    if arguments.output.output == Format::Json {
        let programs = answers.iter().map(|answer| match &answer.report {
            Ok(report) => json!({"from": answer.from, "report": report}),
            Err(error) => json!({"from": answer.from, "error": error.to_string()}),
        });
        let programs: Vec<Value> = programs.collect();
        return format!("{:#}\n", json!({ "programs": programs }));
    }
    let colors = match arguments.output.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    let mut screen = Screen::new(colors);
    for (place, answer) in answers.iter().enumerate() {
        if place > 0 {
            screen.gap();
        }
        show(arguments, answer, &mut screen);
    }
    screen.into_text()
}

fn show(arguments: &Arguments, answer: &Answer, screen: &mut Screen) {
    let document = match &answer.report {
        Ok(document) => document,
        Err(error) => {
            screen.line(&answer.from, Style::Bold);
            screen.line(&format!("  error: {error}"), Style::Red);
            return;
        }
    };
    if let Asked::Log(_) = arguments.asked() {
        screen.line(&answer.from, Style::Bold);
        screen.line(&format!("  {}", levels(document)), Style::Plain);
        return;
    }
    let mut report = Report::of(document);
    let leads = if report.leads() { "  (leads)" } else { "" };
    let instance = report.instance.as_deref().unwrap_or_default();
    let instance = if instance.is_empty() || answer.from.ends_with(instance) {
        String::new()
    } else {
        format!("  {instance}")
    };
    let title = format!("{}{instance}{leads}", answer.from);
    screen.line(&title, Style::Bold);
    if let Some(name) = &arguments.output.name {
        // A lease has its namespace before its name, and what is in another cluster that: edge/pods.
        let is_it = |full: &str| full == name || full.rsplit('/').next() == Some(name);
        report.problems.retain(|problem| is_it(&problem.name));
        report
            .controllers
            .retain(|controller| is_it(&controller.name));
        report.queues.retain(|queue| is_it(&queue.name));
        report.informers.retain(|informer| {
            let cluster = informer.cluster.as_deref().unwrap_or_default();
            is_it(&informer.name) || *name == format!("{cluster}/{}", informer.name)
        });
        report.election.retain(|election| is_it(&election.lease));
        report.writes.retain(|writes| is_it(&writes.controller));
        if report.is_empty() {
            screen.line(&format!("  nothing of the name {name}"), Style::Yellow);
            return;
        }
    }
    let now = report.time.unwrap_or_else(|| Clock::system().now());
    let view = arguments.shown();
    let failing = arguments.output.limit.map_or(FAILING, usize::from);
    Frame { view, now, failing }.show(&report, screen);
}

/// The levels of a log, and their end.
fn levels(document: &Value) -> String {
    let text = |name: &str| document[name].as_str().unwrap_or("?").to_owned();
    match &document["secondsLeft"] {
        Value::Null => text("levels"),
        left => format!(
            "{} for another {left} s, then {}",
            text("levels"),
            text("base")
        ),
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Returns at SIGINT, SIGTERM, SIGHUP or SIGQUIT.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).ok();
        let ends = [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ]
        .map(listen);
        if let [Some(mut terminate), Some(mut hangup), Some(mut quit)] = ends {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
                _ = quit.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
