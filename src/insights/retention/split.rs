//! Splits the activity of an actor by breakdown value: [`Splitter`].

use serde::{Deserialize, Serialize};

use crate::retention::rows::{Activity, NAMED, Rule, TARGET};
use crate::retention::sums::value_of;
use weir_api::nodes::insights::RetentionType;
use weir_query::events::histories::Row;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Which parts the texts of rows have.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Split {
    /// Whether there is a breakdown by properties.
    pub(super) is_split: bool,
    /// Whether texts begin with the number of the aggregated property.
    pub(super) has_numbers: bool,
}

/// Splits the rows of an actor by breakdown value.
///
/// As in PostHog, events with different values are independent: an actor that begins with one value and comes back
/// with another one has not returned, and it has a first time for each value. Only with [`RetentionType::FirstEver`]
/// the first event covers all values, and its value is that of the actor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Splitter {
    pub(super) rule: Rule,
    split: Split,
    #[serde(skip)]
    activity: Activity,
    #[serde(skip)]
    own: Vec<Row>,
}

impl Splitter {
    pub(super) fn new(rule: Rule, split: Split) -> Self {
        Self { rule, split, activity: Activity::default(), own: Vec::new() }
    }

    /// Calls `found` with each value for which the actor is in a row, and with its activity and its rows; with the
    /// empty value if there is no breakdown. `rows` are ordered by position.
    pub(super) fn each(
        &mut self,
        rows: &[Row],
        texts: &Interner,
        mut found: impl FnMut(&Rule, &str, (&Activity, &[Row])) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let Self { rule, split: Split { is_split, has_numbers }, activity, own } = self;
        let value = |row: &Row| match *has_numbers {
            true => texts.get(row.text).map(value_of),
            false => texts.get(row.text),
        };
        let mut show = |rows: &[Row], value: Option<&str>| {
            rule.read(rows.iter().map(|row| (row.at, row.mask)), activity);
            match activity.starts.is_empty() {
                true => Ok(()),
                false => found(rule, value.unwrap_or_default(), (&*activity, rows)),
            }
        };
        if !*is_split {
            return show(rows, None);
        }
        if rule.kind == RetentionType::FirstEver {
            let first = rows.iter().find(|row| row.mask & NAMED != 0);
            let is_first = |row: &&Row| {
                row.mask & TARGET != 0 && first.is_some_and(|first| first.at == row.at)
            };
            // Of several simultaneous events the smallest value, so that the result does not depend on their order.
            let values = rows.iter().filter(is_first).filter_map(value);
            return show(rows, values.min());
        }
        own.clear();
        own.extend_from_slice(rows);
        // The sort is stable: the rows of each value keep their order.
        if *has_numbers {
            own.sort_by(|a, b| value(a).cmp(&value(b)));
        } else {
            own.sort_by_key(|row| row.text);
        }
        let is_same = |a: &Row, b: &Row| a.text == b.text || (*has_numbers && value(a) == value(b));
        own.chunk_by(is_same).try_for_each(|rows| show(rows, rows.first().and_then(value)))
    }
}
