#![doc = "[peers]: https://docs.rs/crate/reeve-workqueue/latest\n[decisions]: https://docs.rs/crate/reeve-workqueue/latest\n\n"]
#![doc = include_str!("../guide/queue.md")]
