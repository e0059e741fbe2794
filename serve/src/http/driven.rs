//! Polls a connection and the requests that it handed out, as one task.
//!
//! The connection of HTTP/2 wakes its task several times for each request: when it hands a request out, and when the
//! answer is ready. tokio moves a task that wakes itself to the end of its queue, and wakes another worker to take it
//! from there, which costs two system calls and a worker that finds nothing. So each part has a waker of its own: a part
//! that is woken while the task is polled is polled again in the same turn, a few times, and one that was not woken is
//! not polled.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::task::coop;

/// How often both parts may be polled in one turn of the task: a request is accepted, begun, answered, and the answer
/// written. With more, one connection would keep a thread from the others.
const ROUNDS: usize = 4;

/// A connection, with the futures that hyper would spawn: one for each request.
pub(super) struct Driven<'a, C> {
    connection: Pin<&'a mut C>,
    streams: FuturesUnordered<Stream>,
    spawned: Spawned,
    task: Arc<Task>,
    connection_woken: Arc<Part>,
}

/// Collects the futures that hyper would spawn.
#[derive(Clone)]
pub(super) struct Spawned {
    /// `None` once the connection has ended. Each of these futures has a clone of this, so none may stay here then.
    new: Arc<Mutex<Option<Vec<Stream>>>>,
    /// Of the request that was begun last. hyper spawns its future right after that.
    begun: Begun,
    woken: Arc<Part>,
}

/// Where the [`Cut`] of a request is until its future is spawned.
pub(super) type Begun = Arc<Mutex<Option<Arc<Cut>>>>;

/// Ends one request of HTTP/2: its future is dropped, so its stream is reset.
#[derive(Default)]
pub(super) struct Cut {
    cut: AtomicBool,
    stream: AtomicWaker,
}

/// The future of one request.
struct Stream {
    future: BoxFuture<'static, ()>,
    cut: Option<Arc<Cut>>,
}

/// The waker of one part of the task.
struct Part {
    woken: AtomicBool,
    task: Arc<Task>,
}

#[derive(Default)]
struct Task {
    /// It is being polled, and reads the flags of its parts before it returns.
    polled: AtomicBool,
    waker: AtomicWaker,
}

// === impl Part ===

impl Part {
    fn of(task: &Arc<Task>) -> Arc<Self> {
        Arc::new(Self {
            woken: AtomicBool::new(true),
            task: Arc::clone(task),
        })
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    fn take(&self) -> bool {
        self.is_woken() && self.woken.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The task clears `polled` and then reads `woken`: of two that meet, one sees what the other wrote.
        self.woken.store(true, Ordering::SeqCst);
        if !self.task.polled.load(Ordering::SeqCst) {
            self.task.waker.wake();
        }
    }
}

// === impl Cut ===

impl Cut {
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.stream.wake();
    }
}

// === impl Stream ===

impl Future for Stream {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(cut) = &self.cut {
            cut.stream.register(context.waker());
            if cut.cut.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
        }
        self.future.as_mut().poll(context)
    }
}

// === impl Spawned ===

impl Spawned {
    /// For one connection.
    pub(super) fn new() -> Self {
        Self {
            new: Arc::new(Mutex::new(Some(Vec::new()))),
            begun: Begun::default(),
            woken: Part::of(&Arc::default()),
        }
    }

    /// Where the [`Cut`] of a request that begins is put.
    pub(super) fn begun(&self) -> Begun {
        Arc::clone(&self.begun)
    }

    fn take(&self) -> Vec<Stream> {
        let mut new = self.new.lock();
        new.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawned {
    fn execute(&self, future: F) {
        let stream = Stream {
            future: Box::pin(future),
            cut: self.begun.lock().take(),
        };
        if let Some(new) = &mut *self.new.lock() {
            new.push(stream);
        }
        self.woken.wake_by_ref();
    }
}

// === impl Driven ===

impl<'a, C> Driven<'a, C> {
    /// `spawned` is the executor of `connection`.
    pub(super) fn new(connection: Pin<&'a mut C>, spawned: Spawned) -> Self {
        let task = Arc::clone(&spawned.woken.task);
        Self {
            connection,
            streams: FuturesUnordered::new(),
            spawned,
            connection_woken: Part::of(&task),
            task,
        }
    }

    /// The connection, which is polled after that.
    pub(super) fn connection(&mut self) -> Pin<&mut C> {
        self.connection_woken.wake_by_ref();
        self.connection.as_mut()
    }

    fn is_woken(&self) -> bool {
        self.spawned.woken.is_woken() || self.connection_woken.is_woken()
    }
}

impl<C> Drop for Driven<'_, C> {
    fn drop(&mut self) {
        let left = self.spawned.new.lock().take();
        drop(left);
    }
}

impl<C: Future> Driven<'_, C> {
    /// Polls what is woken. Answers are written to the connection, so it comes second.
    fn round(&mut self) -> Poll<C::Output> {
        if self.spawned.woken.take() {
            self.streams.extend(self.spawned.take());
            let waker = Waker::from(Arc::clone(&self.spawned.woken));
            let mut context = Context::from_waker(&waker);
            while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(&mut context) {}
        }
        if self.connection_woken.take() {
            let waker = Waker::from(Arc::clone(&self.connection_woken));
            let mut context = Context::from_waker(&waker);
            return self.connection.as_mut().poll(&mut context);
        }
        Poll::Pending
    }
}

impl<C: Future> Future for Driven<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        this.task.waker.register(context.waker());
        this.task.polled.store(true, Ordering::SeqCst);
        for _ in 0..ROUNDS {
            if !this.is_woken() || !coop::has_budget_remaining() {
                break;
            }
            if let Poll::Ready(output) = this.round() {
                return Poll::Ready(output);
            }
        }
        this.task.polled.store(false, Ordering::SeqCst);
        if this.is_woken() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::thread::Thread;
    use std::time::Duration;

    use futures::channel::oneshot;
    use futures::task::{ArcWake, waker};
    use hyper::rt::Executor as _;
    use tokio::time::Instant;

    use super::*;

    /// Counts wakes.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl ArcWake for Wakes {
        fn wake_by_ref(wakes: &Arc<Self>) {
            wakes.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection with its polls, its executor and the wakes of the task.
    struct Case {
        polls: Arc<AtomicUsize>,
        spawned: Spawned,
        wakes: Arc<Wakes>,
    }

    impl Case {
        fn new() -> Self {
            Self {
                polls: Arc::default(),
                spawned: Spawned::new(),
                wakes: Arc::default(),
            }
        }

        /// A connection that does `work` at each poll.
        fn connection(
            &self,
            mut work: impl FnMut(usize, &mut Context<'_>) -> Poll<()>,
        ) -> impl Future<Output = ()> {
            let polls = Arc::clone(&self.polls);
            poll_fn(move |context| work(polls.fetch_add(1, Ordering::Relaxed), context))
        }

        fn poll<F: Future>(&self, future: &mut Driven<'_, F>) -> Poll<F::Output> {
            let waker = waker(Arc::clone(&self.wakes));
            Pin::new(future).poll(&mut Context::from_waker(&waker))
        }

        fn polls(&self) -> usize {
            self.polls.load(Ordering::Relaxed)
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_request_is_begun_in_the_turn_that_hands_it_out_and_its_answer_is_written_in_the_turn_that_brings_it()
     {
        let case = Case::new();
        let (answer, answered) = oneshot::channel::<()>();
        let written = Arc::new(Mutex::new(None::<Waker>));
        let (spawned, slot) = (case.spawned.clone(), Arc::clone(&written));
        let mut answered = Some(answered);
        let connection = case.connection(move |_, context| {
            *slot.lock() = Some(context.waker().clone());
            if let Some(answered) = answered.take() {
                let slot = Arc::clone(&slot);
                spawned.execute(async move {
                    answered.await.unwrap();
                    slot.lock().as_ref().unwrap().wake_by_ref();
                });
            }
            Poll::Pending
        });
        let connection = pin!(connection);
        let mut driven = Driven::new(connection, case.spawned.clone());
        assert!(case.poll(&mut driven).is_pending());
        assert_eq!(
            (case.polls(), driven.streams.len(), case.wakes()),
            (1, 1, 0)
        );
        answer.send(()).unwrap();
        assert_eq!((case.polls(), case.wakes()), (1, 1));
        assert!(case.poll(&mut driven).is_pending());
        assert_eq!(
            (case.polls(), driven.streams.len(), case.wakes()),
            (2, 0, 1)
        );
        assert!(case.poll(&mut driven).is_pending());
        assert_eq!(case.polls(), 2, "nothing woke it");
    }

    #[test]
    fn a_connection_that_goes_on_waking_itself_gives_way_to_other_tasks() {
        let case = Case::new();
        let connection = case.connection(|_, context| {
            context.waker().wake_by_ref();
            Poll::Pending
        });
        let connection = pin!(connection);
        let mut driven = Driven::new(connection, case.spawned.clone());
        for turn in 1..=3 {
            assert!(case.poll(&mut driven).is_pending());
            assert_eq!((case.polls(), case.wakes()), (turn * ROUNDS, turn));
        }
    }

    #[test]
    fn a_connection_is_polled_after_access_to_it() {
        let case = Case::new();
        let connection = case.connection(|poll, _| match poll {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        });
        let connection = pin!(connection);
        let mut driven = Driven::new(connection, case.spawned.clone());
        assert!(case.poll(&mut driven).is_pending());
        let _connection = driven.connection();
        assert_eq!(case.wakes(), 1);
        assert!(case.poll(&mut driven).is_ready());
    }

    #[test]
    fn a_request_that_was_not_begun_is_dropped_with_its_connection() {
        // Before the end of the connection, and after it.
        let token = Arc::new(());
        let spawned = Spawned::new();
        let request = || {
            let held = (spawned.clone(), Arc::clone(&token));
            async move { drop(held) }
        };
        let (executor, first) = (spawned.clone(), request());
        let connection = async move { executor.execute(first) };
        {
            let connection = pin!(connection);
            let mut driven = Driven::new(connection, spawned.clone());
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut driven).poll(&mut context).is_ready());
            assert_eq!(Arc::strong_count(&token), 2);
        }
        assert_eq!(Arc::strong_count(&token), 1);
        spawned.execute(request());
        assert_eq!(Arc::strong_count(&token), 1);
    }

    #[tokio::test]
    async fn a_connection_without_budget_gives_way_and_goes_on() {
        let connection = async {
            for _ in 0..10_000 {
                coop::consume_budget().await;
            }
        };
        let other = async {
            tokio::task::yield_now().await;
            false
        };
        let driven = async {
            let connection = pin!(connection);
            Driven::new(connection, Spawned::new()).await;
            true
        };
        let (ended, other) = (tokio::spawn(driven), tokio::spawn(other));
        let first = tokio::select! {
            biased;
            ended = ended => ended,
            other = other => other,
        };
        assert!(!first.unwrap(), "the other task ran meanwhile");
    }

    /// Polls `future` in this thread, which is parked between its wakes.
    fn block_on<F: Future>(future: F, patience: Duration) -> F::Output {
        struct Unpark(Thread);
        impl ArcWake for Unpark {
            fn wake_by_ref(unpark: &Arc<Self>) {
                unpark.0.unpark();
            }
        }
        let waker = waker(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        let end = Instant::now() + patience;
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            std::thread::park_timeout(end - Instant::now());
            assert!(Instant::now() < end, "a wake was lost");
        }
    }

    #[test]
    fn no_wake_of_another_thread_is_lost() {
        const WAKES: usize = 20_000;
        let (written, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let slot = Arc::new(Mutex::new(None::<Waker>));
        let connection = {
            let (written, read, slot) = (written.clone(), read.clone(), slot.clone());
            poll_fn(move |context| {
                slot.lock().get_or_insert_with(|| context.waker().clone());
                let now = written.load(Ordering::SeqCst);
                read.store(now, Ordering::SeqCst);
                if now == WAKES {
                    return Poll::Ready(());
                }
                Poll::Pending
            })
        };
        let wakes = std::thread::spawn(move || {
            let waker = loop {
                if let Some(waker) = slot.lock().clone() {
                    break waker;
                }
                std::thread::yield_now();
            };
            for number in 1..=WAKES {
                written.store(number, Ordering::SeqCst);
                waker.wake_by_ref();
                // Each wake is awaited, and comes at another time after the poll that saw the one before.
                while read.load(Ordering::SeqCst) < number {
                    std::hint::spin_loop();
                }
                (0..number % 200).for_each(|_| std::hint::spin_loop());
            }
        });
        let connection = pin!(connection);
        let driven = Driven::new(connection, Spawned::new());
        block_on(driven, Duration::from_secs(60));
        wakes.join().unwrap();
    }
}
