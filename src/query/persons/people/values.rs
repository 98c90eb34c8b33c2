//! The values that a property has, and how many persons have each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::kernel::engine::Engine;
use crate::kernel::error::QueryError;
use weir_event::id::ProjectId;
use weir_identity::row::Key;
use weir_identity::view::{Flow, View};
use weir_identity::{IdentityError, row};

impl Engine {
    /// Shows the values that a property has among the newest persons, at most `persons_max`, with a
    /// number of persons that have it. From a column, if there is one, a value is shown once, and the
    /// most frequent first; otherwise as often as it is met.
    pub async fn person_values<T: Send + 'static>(
        &self,
        project: ProjectId,
        key: String,
        persons_max: usize,
        mut seen: T,
        count: impl Fn(&mut T, &Value, usize) + Send + 'static,
    ) -> Result<T, QueryError> {
        let columns = Arc::clone(&self.shared.columns);
        self.read(move |view, stop| {
            if let Some(values) = columns.values(project, &key, persons_max, stop)? {
                values.iter().for_each(|(value, persons)| count(&mut seen, value, *persons));
                return Ok(seen);
            }
            let visit = |value: &Value| count(&mut seen, value, 1);
            scan(&view, project, &key, persons_max, stop, visit)?;
            Ok(seen)
        })
        .await
    }
}

fn scan(
    view: &View,
    project: ProjectId,
    key: &str,
    persons_max: usize,
    stop: &AtomicBool,
    mut visit: impl FnMut(&Value),
) -> Result<(), IdentityError> {
    let (key, mut left) = (Key::new(key), persons_max);
    view.scan_newest_rows(project, |row| {
        if let Some(json) = row.property(&key) {
            visit(&row::value(json)?);
        }
        left = left.saturating_sub(1);
        let goes_on = left > 0 && !stop.load(Ordering::Relaxed);
        Ok(if goes_on { Flow::Continue(()) } else { Flow::Break(()) })
    })
}
