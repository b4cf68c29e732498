//! Values that are used for a short time without looking whether they are still the same.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Remembers some values by their names.
pub struct Recent<V> {
    fresh: Duration,
    max: usize,
    known: Mutex<HashMap<String, (V, Instant)>>,
}

impl<V: Clone> Recent<V> {
    /// At most `max` values, each for this time.
    pub fn new(fresh: Duration, max: usize) -> Recent<V> {
        Recent { fresh, max, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, (V, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value with a name, if it may still be used.
    pub fn get(&self, name: &str) -> Option<V> {
        let known = self.known();
        known.get(name).filter(|(_, since)| since.elapsed() < self.fresh).map(|(value, _)| value.clone())
    }

    /// Remembers a value. `since` is when the read of it began.
    pub fn put(&self, name: &str, value: V, since: Instant) {
        let mut known = self.known();
        if known.len() >= self.max && !known.contains_key(name) {
            known.retain(|_, (_, since)| since.elapsed() < self.fresh);
            if known.len() >= self.max {
                known.clear();
            }
        }
        known.insert(name.to_owned(), (value, since));
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        self.known().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_remembered_for_a_time_and_up_to_a_number() {
        let recent = Recent::new(Duration::from_secs(60), 2);
        let (now, before) = (Instant::now(), Instant::now().checked_sub(Duration::from_secs(61)));
        recent.put("a", 1, now);
        recent.put("b", 2, before.unwrap_or(now));
        assert_eq!((recent.get("a"), recent.get("none")), (Some(1), None));
        if before.is_some() {
            assert_eq!(recent.get("b"), None);
            recent.put("c", 3, now);
            assert_eq!((recent.get("a"), recent.get("c")), (Some(1), Some(3)));
        }
        recent.put("d", 4, now);
        assert!(recent.known().len() <= 2);
        recent.clear();
        assert_eq!(recent.get("d"), None);
    }
}
