//! Writes whose answers were lost: the server is asked what became of them, beside the workers.

use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use super::{ANSWER, Own, OwnWrites, Place};
use crate::cache::Asked;
use crate::client::writes::Write;
use crate::reconcile::RequestKey;

/// A question about the lost writes of one run of a key.
struct Question<R> {
    key: R,
    run: u64,
    writes: Vec<Own>,
    deadline: Instant,
}

/// What was found out.
struct Answer<R> {
    question: Question<R>,
    /// The writes of the question, with their effects as far as they are known now.
    writes: Vec<Own>,
    asked: Asked,
}

impl<R: RequestKey> OwnWrites<R> {
    /// Asks the server about the lost writes of the keys that are held, until it is dropped. How often is said by the
    /// [`Asking`](crate::cache::Asking) of each key, and by the budget of each cluster.
    pub(in crate::controller) async fn ask_for_lost(&self) -> Infallible {
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(answer) = asking.next() => self.answered(&answer),
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
            let once = unseen.held? + ANSWER.min(self.limit);
            let over = unseen.since.checked_add(self.limit);
            let lost = unseen.writes.iter().filter(|own| own.is_lost());
            Some(Question {
                run: unseen.run,
                writes: lost.cloned().collect(),
                // No longer than the key waits.
                deadline: over.unwrap_or(once).max(once),
                key,
            })
        });
        questions.collect()
    }

    /// Puts the answers in the place of the lost writes, unless the key has written since.
    fn answered(&self, answer: &Answer<R>) {
        let question = &answer.question;
        let mut noted = self.noted.lock();
        let unseen = noted.unseen.get_mut(&question.key);
        let Some(unseen) = unseen.filter(|unseen| unseen.run == question.run) else {
            return;
        };
        unseen.asked = false;
        unseen.asking.note(answer.asked);
        for own in &mut unseen.writes {
            if let Some(settled) = answer.writes.iter().find(|settled| settled.is_of(own)) {
                own.write = settled.write.clone();
            }
        }
    }
}

/// Asks each place what became of those writes to it whose answers were lost, all at once.
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
