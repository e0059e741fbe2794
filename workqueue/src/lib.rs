//! A work queue that deduplicates, delays, rate-limits and prioritises.
//!
//! Producers [`add`](Queue::add) keys, workers [`get`](Queue::get) them. The object behind a key may have
//! changed once or a thousand times before a worker gets the key; it is processed once, in its current
//! state.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let queue = reeve_workqueue::Queue::new();
//! queue.add("pod-1");
//! queue.add("pod-1");
//! let item = queue.get().await.unwrap();
//! assert_eq!(*item, "pod-1");
//! item.forget();
//! assert!(queue.is_empty());
//! # });
//! ```
//!
//! # The rules
//!
//! | rule | source |
//! |---|---|
//! | An item is with one worker at a time; adds meanwhile make it run once more, after. | client-go: `Add`, `Get`, `Done` |
//! | An item is settled exactly once, by its guard [`Item`]. | ours; client-go accepts a stray `Done` |
//! | Higher priorities first; first come first served within one. Adds of a queued item merge to the higher priority; one that rises goes to the end of its new priority. | controller-runtime: `AddWithOpts` |
//! | Of several delays the earlier counts. An immediate add removes the timer. A delayed add of an item that is ready changes nothing. | controller-runtime; client-go keeps the timer |
//! | A delay counts from the call. | client-go; controller-runtime counts from a later flush |
//! | Items become ready by themselves in the order of their times, whatever operation applies them, and when. | ours |
//! | A failed item waits its own back-off, then takes a token, first come first served. | ours; client-go reserves at the call and never gives back |
//! | [`Item::retry`] and [`Item::requeue_after`] keep the priority. | controller-runtime |
//! | [`Item::forget`] and [`Item::requeue_after`] clear the failures, [`Item::done`] and [`Item::put_back`] do not. | controller-runtime: result table |
//! | After shutdown adds are refused (and counted), what waits is dropped, what is ready is handed out. | client-go: `ShutDown` |
//! | A drain waits for all ready items, and for items that were added again while in flight. | client-go's intent; it returns early when nothing is in flight |
//! | An unsettled item that is dropped is settled as [`OnDrop`] configures. | ours |
//! | Slots of finished keys are freed in groups: up to 64 remain for a moment while others are ready or in flight. An idle queue keeps none; with a minimum interval, those of the last keys until the next hand-out. | ours |
//! | An item that has been ready for longer than [`Builder::ageing`] gets every second hand-out, whatever its priority. | ours |
//! | Within one priority, tenants with items take turns if [`Builder::fair_by`] is set. | ours |
//! | A key rests for [`Builder::min_interval`] after a hand-out; an add meanwhile waits for the rest. | ours |
//! | A failed item waits at least for its [`Cause::retry_after`]. | ours |
//! | A shutdown waits for nothing, or for items in flight, ready, or delayed, until a deadline, and reports what was left. | ours; client-go drops delayed items silently |
//!
//! # When things go wrong
//!
//! * *A worker panics, or its future is dropped*: its item is settled as [`OnDrop`] configures. A controller
//!   uses [`OnDrop::PutBack`], so that nothing is lost, and the loss of a lease is no failure of the items at work.
//! * *A waiting `get` is dropped*: it passes its wake-up on, and the timers if it drives them.
//! * *A waiting `get` is neither polled nor dropped*: an item it was woken for waits until another worker
//!   calls the queue, and so do the timers it drives. Any call takes both over.
//! * *A limiter, a tenant's function, a key's `Eq` or `Clone` panics*: the operation has no effect, and the
//!   queue is usable; an item whose limiter panicked is settled as done, also when it is dropped, and one that waits
//!   for a token when [`RateLimiter::release`] panics waits for another second. The record of
//!   another key that an operation drops goes also if the limiter panics; the panic's message is printed, and the
//!   caller does not see it. Items of a batch that were taken before are settled as [`OnDrop`] configures. An add that
//!   found the queue locked has returned by then: if its key's `Eq` panics, the panic's message is printed, and the
//!   caller does not see it.
//! * *Keys fail indefinitely*: the record of a key is one slot; records of keys that are no longer pending
//!   are bounded by [`Builder::failure_records`] and dropped after [`Builder::failure_expiry`].
//! * *A million items are due at once*: an operation moves up to 256 of them, so the lock is held briefly;
//!   the driver of the timers repeats at once.
//! * *A task adds many items and never yields*: tokio keeps the woken worker on the task's own thread,
//!   where it waits for the task to yield. Yield now and then, or add from a blocking thread.
//! * *Workers are slower than producers*: the queue holds each key once, so the number of keys bounds it.
//!
//! # Tests and their counterparts
//!
//! | client-go | here, in `tests/it/client_go.rs` |
//! |---|---|
//! | TestBasic | `fifty_producers_and_ten_workers_until_shutdown`, `…_until_drained` |
//! | TestAddWhileProcessing | `an_item_added_while_it_is_processed_runs_again` |
//! | TestLen | `len_counts_distinct_items_that_are_queued` |
//! | TestReinsert | `an_item_added_while_it_is_processed_is_queued_once_it_is_done` |
//! | TestCollapse | `adds_of_a_queued_item_collapse` |
//! | TestCollapseWhileProcessing | `adds_of_an_item_in_flight_collapse_and_no_second_worker_gets_it` |
//! | TestQueueDrainageUsingShutDownWithDrain | `a_drain_returns_when_everything_is_done`, `a_drain_waits_for_what_is_queued_though_nothing_is_in_flight` |
//! | TestNoQueueDrainageUsingShutDown | `an_immediate_shutdown_does_not_wait_for_items_in_flight` |
//! | TestForceQueueShutdownUsingShutDown | `an_immediate_shutdown_ends_a_drain` |
//! | TestQueueDrainageUsingShutDownWithDrainWithDirtyItem | `a_drain_includes_an_item_that_was_added_while_it_was_processed` |
//! | TestGarbageCollection | `nothing_holds_on_to_items_that_are_done` |
//! | TestSimpleQueue | `a_delayed_item_comes_when_it_is_due_and_not_before` |
//! | TestDeduping | `of_two_delays_the_earlier_wins_in_either_order` |
//! | TestAddTwoFireEarly | `two_items_with_different_delays_come_apart` |
//! | TestCopyShifting | `items_added_late_still_come_in_the_order_of_their_times` |
//! | TestRateLimitingQueue | `each_item_has_a_back_off_of_its_own_and_forget_resets_it` |
//! | TestMetrics | `metrics_have_exact_values` |
//! | TestMetricShutdown | `gauges_end_with_their_queue` (there is no task to stop) |
//! | TestItemExponentialFailureRateLimiter, …OverFlow, TestItemFastSlowRateLimiter, TestMaxOfRateLimiter, TestWithMaxWaitRateLimiter | the tests in `src/limiter.rs`, `tests/it/limits.rs` |
//! | TestParallelizeUntil | none: not a queue |
//!
//! | controller-runtime's priority queue | here, in `tests/it/priority.rs` |
//! |---|---|
//! | order, dedupe | `higher_priorities_come_first_and_equal_ones_in_the_order_of_adds`, `many_priorities_keep_their_order` |
//! | max priority kept, never lowered | `an_item_added_twice_is_handed_out_once_with_the_higher_priority` |
//! | priority raise | `an_item_whose_priority_rises_goes_to_the_end_of_its_new_priority` |
//! | locked items, unlock hand-out | `an_item_in_flight_is_skipped_and_handed_out_after_with_its_new_priority` |
//! | min delay | `of_two_delays_the_earlier_wins_in_either_order`, `of_a_delay_and_the_limiter_the_earlier_counts_and_so_does_the_failure` |
//! | Len excludes delayed, ready exactly when due | `delayed_items_do_not_count_and_are_ready_exactly_when_due` |
//! | delayed high beats low when due | `a_delayed_item_of_high_priority_beats_ready_ones_once_it_is_due` |
//! | delayed re-added without delay | `a_delayed_item_added_without_delay_is_ready_now_and_its_timer_is_gone` |
//! | rate-limited items independent | `each_item_has_a_back_off_of_its_own_and_forget_resets_it` |
//! | shutdown unblocks Get, no deadlock | `shutdown_with_many_workers_never_hangs`, `tests/it/schedules.rs` |
//! | metric consistency | the depth is read, not counted: `metrics_have_exact_values`, `tests/it/prometheus.rs` |
//! | fuzz | `no_add_of_many_threads_is_missed_and_no_item_is_with_two_workers`, `tests/it/model` |
//! | virtual time | every test with a delay runs under tokio's paused time |
//!
//! | neither has | here |
//! |---|---|
//! | equal shares | `of_keys_that_all_requeue_at_once_each_runs_as_often` (`tests/it/liveness.rs`), `keys_that_requeue_at_once_run_equally_often_…` (`tests/it/fairness.rs`) |
//! | ageing | `an_overdue_item_gets_every_second_hand_out`, `urgent_work_that_never_ends_does_not_starve_the_rest` (`tests/it/fairness.rs`) |
//! | turns of tenants | `tenants_take_turns_within_a_priority`, `a_tenant_of_weight_two_has_two_items_a_turn`, `a_tenant_that_comes_and_goes_gains_nothing` |
//! | the end of an item and the next one in one operation | `the_next_item_is_the_one_that_a_get_after_the_end_would_return` and others (`tests/it/chains.rs`) |
//! | batches | `a_batch_waits_for_the_first_item_and_takes_what_is_ready_with_it`, `a_batch_that_is_given_up_loses_nothing` (`tests/it/features.rs`, as those below) |
//! | intervals | `a_key_is_not_handed_out_again_before_its_interval_has_passed` |
//! | causes | `an_item_waits_as_long_as_it_was_asked_to_at_least`, `a_limiter_sees_why_an_item_failed_and_so_does_a_snapshot` |
//! | drains with deadlines | `a_drain_ends_at_its_deadline_and_says_what_was_left`, `a_drain_of_what_is_delayed_waits_until_it_is_due_and_done` |
//! | memory | `memory_is_given_back_after_a_burst_though_a_few_keys_stay` (`src/state/tests.rs`) |
//! | deferred operations | `adds_do_not_wait_for_the_lock_and_keep_their_order`, `what_is_left_during_an_operation_that_panics_wakes_a_worker_all_the_same` and others in `tests/it/deferred.rs`; `tests/it/schedules.rs` |
//! | a key whose own code panics | `a_key_that_panics_leaves_the_queue_in_order` (`tests/it/panics.rs`) |
//!
//! `tests/it/model` holds random sequences of all operations against a reference implementation;
//! `tests/it/schedules.rs` explores schedules of the lock and the wakers (with `--cfg shuttle`).
//!
//! # Features
//!
//! * `prometheus` (off by default): the seven workqueue metrics through `prometheus-client`.
//! * `serde` (off by default): [`Snapshot`] can be serialised.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod builder;
mod cause;
mod fairness;
#[cfg(any(doc, doctest))]
pub mod guide;
mod item;
mod item_state;
mod lanes;
mod limiter;
mod metrics;
mod now;
mod options;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod queue;
mod ready;
mod reason;
mod shared;
mod shutdown;
mod slab;
mod slots;
mod snapshot;
mod sparse_map;
mod state;
mod sync;
mod timers;
mod wait;
mod waiters;

pub use builder::Builder;
pub use cause::Cause;
pub use fairness::Tenant;
pub use item::Item;
pub use limiter::{
    Delay, Failure, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, TokenBucket,
    WithMaxWait, default_controller_rate_limiter,
};
pub use metrics::{Gauges, MetricsProvider, QueueMetrics, Readings};
pub use options::{AddOptions, LOW_PRIORITY, OnDrop};
pub use queue::Queue;
pub use reason::Reason;
pub use shutdown::{Drain, Left};
pub use snapshot::{ItemStatus, Snapshot, SnapshotItem};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
