//! A small value that the writer of a log publishes and readers copy.
//!
//! Its lock is held for a copy and no longer, and nothing is done under it: so it is none of the writer's locks, which are held
//! while a disk works. An append publishes several of these, and a swap of pointers, which looks at what every thread of the
//! process may still read, cost it more than its checksum.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Published<T>(Mutex<T>);

impl<T: Copy + PartialEq> Published<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn load(&self) -> T {
        *self.lock()
    }

    pub fn store(&self, value: T) {
        *self.lock() = value;
    }

    /// Unless it is another than `known` meanwhile.
    pub fn replace(&self, known: T, value: T) {
        let mut published = self.lock();
        if *published == known {
            *published = value;
        }
    }
}

#[cfg(test)]
#[path = "published_test.rs"]
mod published_test;
