#![doc = "[peers]: https://docs.rs/crate/reeve-workqueue\n[decisions]: https://docs.rs/crate/reeve-workqueue\n\n"]
#![doc = include_str!("../guide/queue.md")]
