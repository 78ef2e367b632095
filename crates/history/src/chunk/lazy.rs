//! Columns that are widened at their first use.

use std::sync::{Mutex, OnceLock, PoisonError};

/// Values that are computed from a chunk's bytes at their first access, on any thread. Their memory is reused when another
/// chunk is read.
#[derive(Debug)]
pub(super) struct Lazy<T> {
    values: OnceLock<Vec<T>>,
    /// Memory of earlier values.
    spare: Mutex<Vec<T>>,
}

impl<T> Default for Lazy<T> {
    fn default() -> Lazy<T> {
        Lazy {
            values: OnceLock::new(),
            spare: Mutex::default(),
        }
    }
}

impl<T> Lazy<T> {
    /// Forgets the values.
    pub(super) fn reset(&mut self) {
        if let Some(values) = self.values.take() {
            *self.spare.get_mut().unwrap_or_else(PoisonError::into_inner) = values;
        }
    }

    /// Takes over the memory of `others`, for values that are not computed yet.
    pub(super) fn take_memory(&self, others: Lazy<T>) {
        let more = others.spare.into_inner();
        let more = more.unwrap_or_else(PoisonError::into_inner);
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.capacity() < more.capacity() {
            *spare = more;
        }
    }

    /// The values; at the first access `fill` appends them to an empty vector.
    pub(super) fn get(&self, fill: impl FnOnce(&mut Vec<T>)) -> &[T] {
        self.values.get_or_init(|| {
            let spare = self.spare.lock();
            let mut values = std::mem::take(&mut *spare.unwrap_or_else(PoisonError::into_inner));
            values.clear();
            fill(&mut values);
            values
        })
    }
}

impl<T: Clone> Clone for Lazy<T> {
    fn clone(&self) -> Lazy<T> {
        Lazy {
            values: self.values.clone(),
            spare: Mutex::default(),
        }
    }
}
