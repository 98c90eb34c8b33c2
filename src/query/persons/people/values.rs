//! The values that a property has, and how many persons have each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde_json::Value;

use crate::kernel::engine::Engine;
use crate::kernel::error::QueryError;
use crate::persons::person_rows::Selecting;
use crate::persons::person_scan::PersonsProvider;
use crate::persons::person_table::{Parts, PersonTable};
use weir_event::id::ProjectId;
use weir_identity::row::{Key, Row};
use weir_identity::view::{Flow, View};
use weir_identity::{IdentityError, row};

impl Engine {
    /// Shows the values that a property has among the newest persons, at most `persons_max`, with a
    /// number of persons that have it. From columns of files, if there are any, a value is shown once, and the
    /// most frequent first; otherwise as often as it is met.
    pub async fn person_values<T: Send + 'static>(
        &self,
        project: ProjectId,
        key: String,
        persons_max: usize,
        mut seen: T,
        count: impl Fn(&mut T, &Value, usize) + Send + 'static,
    ) -> Result<T, QueryError> {
        let table = self.shared.sources.persons.clone();
        self.read(move |view, stop| {
            let persons = PersonsProvider::new(Arc::new(view), project, table);
            if let Some(values) = persons.newest_values(&key, persons_max, stop)? {
                for (json, persons) in values {
                    count(&mut seen, &row::value(&json)?, persons);
                }
                return Ok(seen);
            }
            let visit = |value: &Value| count(&mut seen, value, 1);
            scan(&persons.view, project, &key, persons_max, stop, visit)?;
            Ok(seen)
        })
        .await
    }
}

impl PersonsProvider {
    /// The values of a property, as compact JSON, and how many of the newest persons, at most `persons_max`, have each, the
    /// most frequent first; `None` if rows have to be read.
    pub(super) fn newest_values(
        &self,
        key: &str,
        persons_max: usize,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<(String, usize)>>, IdentityError> {
        let Some(table) = &self.table else { return Ok(None) };
        let Parts { store, parts, changed } =
            PersonTable::parts(Some(table), self.project, &self.view, 1)?;
        let (key, scan) = (Key::new(key), table.begin());
        let wanted = [Selecting::Own("id"), Selecting::Property(key.clone())];
        let (mut counts, mut left) =
            (HashMap::<String, usize, RandomState>::default(), persons_max);
        for part in parts.iter().rev().filter(|part| !part.numbers.is_empty()) {
            if left == 0 || stop.load(Ordering::Relaxed) {
                break;
            }
            let Some((store, file)) = store.as_ref().zip(part.file.as_ref()) else {
                return Ok(None);
            };
            let columns = table.columns(scan, store, file, self.project, &wanted);
            let Some([numbers, values]) = columns.as_deref() else { return Ok(None) };
            let numbers = numbers.as_primitive_opt::<Int64Type>();
            let values = values.as_any_dictionary_opt();
            let values = values.and_then(|own| Some((own, own.values().as_string_opt::<i32>()?)));
            let Some((numbers, (places, texts))) = numbers.zip(values) else { return Ok(None) };
            let mut own = vec![0_usize; texts.len()];
            // Of no value there is no place.
            let keys = match texts.is_empty() {
                true => vec![0; places.len()],
                false => places.normalized_keys(),
            };
            let mut rows = keys.iter().enumerate().zip(numbers.values()).rev().peekable();
            // Those who are not as the file says, the newest first.
            let mut others: Vec<(i64, Option<String>)> = Vec::new();
            for (_, number) in changed.within(&part.places(self.project)) {
                let value = |row: &Row<'_>| row.property(&key).map(str::to_owned);
                let value = self.view.ask_row(self.project, number, value)?;
                others.extend(value.map(|value| (number, value)));
            }
            let mut others = others.into_iter().rev().peekable();
            while left > 0 {
                let next = rows.peek().map(|(_, number)| **number);
                if let Some((_, value)) = others.next_if(|(number, _)| Some(*number) >= next) {
                    value.into_iter().for_each(|value| *counts.entry(value).or_default() += 1);
                    left -= 1;
                    continue;
                }
                let Some(((at, place), number)) = rows.next() else { break };
                if changed.contains((self.project, *number)) {
                    continue;
                }
                if places.is_valid(at)
                    && let Some(count) = own.get_mut(*place)
                {
                    *count += 1;
                }
                left -= 1;
            }
            for (text, count) in texts.iter().zip(own).filter(|(_, count)| *count > 0) {
                *counts.entry(text.unwrap_or_default().to_owned()).or_default() += count;
            }
        }
        let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
        counts.sort_unstable_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
        Ok(Some(counts))
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
