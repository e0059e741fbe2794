//! When calls are made: after the answer of another one, or at even intervals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use peer_measure::{Flags, Stop};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::review::Review;
use crate::wrong;

/// The way of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    /// Calls at once.
    flight: usize,
    /// Another connection for each call.
    connects: bool,
    /// Calls a second; 0: each follows an answer.
    rate: f64,
}

/// The calls of a run.
pub(crate) struct Measured {
    pub(crate) took: Duration,
    pub(crate) latencies: Vec<Duration>,
}

// === impl Drive ===

impl Drive {
    pub(crate) fn of(flags: &Flags) -> Result<Self, Stop> {
        let connects = match flags.text("connections", "kept").as_str() {
            "kept" => false,
            "new" => true,
            other => return Err(Stop::wrong(format!("-connections={other}: kept or new"))),
        };
        let rate = flags.get("rate", 0.0)?;
        if connects && rate > 0.0 {
            return Err(Stop::wrong("a rate has kept connections"));
        }
        Ok(Self {
            flight: flags.get("flight", 8_usize)?.max(1),
            connects,
            rate,
        })
    }

    /// Makes `count` calls.
    pub(crate) async fn calls(
        self,
        client: &Client,
        review: &Arc<Review>,
        count: usize,
    ) -> Result<Measured, Stop> {
        if self.rate > 0.0 {
            paced(self.rate, client, review, count).await
        } else {
            self.followed(client, review, count).await
        }
    }

    /// Each task makes a call after the answer to its last one.
    async fn followed(
        self,
        client: &Client,
        review: &Arc<Review>,
        count: usize,
    ) -> Result<Measured, Stop> {
        let next = Arc::new(AtomicUsize::new(0));
        let kept = client.connect().await.map_err(wrong)?;
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..self.flight {
            let (client, review, next) = (client.clone(), Arc::clone(review), Arc::clone(&next));
            let mut sender = kept.sender();
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok::<_, Stop>(latencies);
                    }
                    let begun = Instant::now();
                    if self.connects {
                        let connection = client.connect().await.map_err(wrong)?;
                        review.post(&mut connection.sender(), number).await?;
                    } else {
                        review.post(&mut sender, number).await?;
                    }
                    latencies.push(begun.elapsed());
                }
            });
        }
        let mut latencies = Vec::with_capacity(count);
        while let Some(ended) = tasks.join_next().await {
            latencies.extend(ended.map_err(wrong)??);
        }
        Ok(Measured {
            took: begun.elapsed(),
            latencies,
        })
    }
}

/// A thread announces the calls at even intervals, because timers of a runtime are too coarse. The latency of a call counts
/// from the time at which it was due, so a slow answer does not delay the measurement of the next.
async fn paced(
    rate: f64,
    client: &Client,
    review: &Arc<Review>,
    count: usize,
) -> Result<Measured, Stop> {
    let kept = client.connect().await.map_err(wrong)?;
    let (announces, mut announced) = mpsc::unbounded_channel();
    let begun = Instant::now();
    thread::spawn(move || {
        for number in 0..count {
            let due = begun + Duration::from_secs_f64(number as f64 / rate);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if announces.send((number, due)).is_err() {
                return;
            }
        }
    });
    let mut tasks = JoinSet::new();
    while let Some((number, due)) = announced.recv().await {
        let (mut sender, review) = (kept.sender(), Arc::clone(review));
        tasks.spawn(async move {
            review.post(&mut sender, number).await?;
            Ok::<_, Stop>(due.elapsed())
        });
    }
    let mut latencies = Vec::with_capacity(count);
    while let Some(ended) = tasks.join_next().await {
        latencies.push(ended.map_err(wrong)??);
    }
    Ok(Measured {
        took: begun.elapsed(),
        latencies,
    })
}
