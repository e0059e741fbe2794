//! Live reads, beside the workers, that settle writes whose answers were lost.

use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use super::asking::{Asked, LIVE_READ_LIMIT};
use super::effect::Write;
use super::tracker::{Own, OwnWrites, Place};
use crate::reconcile::RequestKey;

/// A live read for the lost writes of one run of a key.
struct Question<R> {
    key: R,
    run: u64,
    writes: Vec<Own>,
    deadline: Instant,
}

/// The result of a live read.
struct Answer<R> {
    question: Question<R>,
    /// The writes of the question, with their effects as far as known.
    writes: Vec<Own>,
    asked: Asked,
}

impl<R: RequestKey> OwnWrites<R> {
    /// Reads the lost writes of held keys from the server, until dropped, and calls `wake` with each key after its
    /// read. The [`Asking`](super::asking::Asking) of each key limits the rate, as does the line of each cluster, which
    /// keeps the order of the keys.
    pub(crate) async fn ask_for_lost(&self, wake: impl Fn(R)) -> Infallible {
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(answer) = asking.next() => {
                    if self.answered(&answer) {
                        wake(answer.question.key);
                    }
                }
                () = self.questions.notified() => {
                    asking.extend(self.take_questions().into_iter().map(ask));
                }
            }
        }
    }

    fn take_questions(&self) -> Vec<Question<R>> {
        let mut noted = self.noted.lock();
        let keys = std::mem::take(&mut noted.asks);
        let questions = keys.into_iter().filter_map(|key| {
            let unseen = noted.unseen.get(&key)?;
            let once = unseen.held? + LIVE_READ_LIMIT.min(self.limit);
            let over = unseen.since + self.limit;
            let lost = unseen.writes.iter().filter(|own| own.is_lost());
            Some(Question {
                run: unseen.run,
                writes: lost.cloned().collect(),
                // Not longer than the key waits.
                deadline: over.max(once),
                key,
            })
        });
        questions.collect()
    }

    /// Replaces the lost writes by the answers, unless the key has written since. True if the key waits for them.
    fn answered(&self, answer: &Answer<R>) -> bool {
        let question = &answer.question;
        let mut noted = self.noted.lock();
        let unseen = noted.unseen.get_mut(&question.key);
        let Some(unseen) = unseen.filter(|unseen| unseen.run == question.run) else {
            return false;
        };
        unseen.asked = false;
        unseen.asking.note(answer.asked);
        for own in &mut unseen.writes {
            if let Some(settled) = answer.writes.iter().find(|settled| settled.is_of(own)) {
                own.write = settled.write.clone();
            }
        }
        // A kind that is not cached any more has no answer, and the key would ask for it again at once.
        unseen
            .writes
            .retain(|own| !own.is_lost() || own.is_covered());
        unseen.held.is_some()
    }
}

/// Settles the lost writes of each place by live reads, all at once.
async fn ask<R>(mut question: Question<R>) -> Answer<R> {
    let mut settled = std::mem::take(&mut question.writes);
    let mut places: Vec<(Arc<Place>, Vec<&mut Write>)> = Vec::new();
    for own in &mut settled {
        let known = places
            .iter_mut()
            .find(|(place, _)| Arc::ptr_eq(place, &own.place));
        match known {
            Some((_, writes)) => writes.push(&mut own.write),
            None => places.push((Arc::clone(&own.place), vec![&mut own.write])),
        }
    }
    let deadline = question.deadline;
    let asking = places.into_iter().map(async |(place, writes)| {
        let Place { caches, client } = &*place;
        caches.ask_for_lost(client, writes, deadline).await
    });
    let asked = join_all(asking).await.into_iter().max();
    Answer {
        question,
        writes: settled,
        asked: asked.unwrap_or(Asked::Nothing),
    }
}
