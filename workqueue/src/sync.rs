//! The types the lock-and-waker core is built of, switchable to those of the model checker.

#[cfg(not(shuttle))]
pub(crate) use parking_lot::Mutex;

#[cfg(shuttle)]
pub(crate) use checked::Mutex;

#[cfg(shuttle)]
mod checked {
    /// shuttle's mutex with the face of parking_lot's.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}
