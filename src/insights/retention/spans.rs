//! The intervals that each cell of a row spans: [`Spans`].

use serde::{Deserialize, Serialize};

use weir_api::node::NodeError;

/// Most cells of a row.
pub(super) const INTERVALS_MAX: usize = 400;

/// Most intervals of one bracket.
const BRACKET_MAX: f64 = 10_000.0;

/// The cells of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Spans {
    /// This number of cells of one interval each.
    Single(usize),
    /// A cell for the interval of the row, and one for each bracket. The numbers, in ascending order, are the last
    /// interval of each bracket, counted from that of the row.
    Brackets(Vec<usize>),
}

impl Spans {
    /// Brackets with the lengths of `retentionCustomBrackets`; without any, `intervals` cells of one interval.
    pub(super) fn of(lengths: &[f64], intervals: usize) -> Result<Self, NodeError> {
        let refused =
            |detail: String| NodeError::new("retentionFilter.retentionCustomBrackets", detail);
        if lengths.is_empty() {
            return Ok(Self::Single(intervals));
        }
        let most = INTERVALS_MAX - 1;
        if lengths.len() > most {
            return Err(refused(format!("Expected at most {most} brackets.")));
        }
        let mut end = 0_usize;
        let bracket = |length: &f64| {
            // Clients may send whole numbers as floats.
            if length.fract() != 0.0 || !(1.0..=BRACKET_MAX).contains(length) {
                return Err(refused(format!("Expected whole numbers from 1 to {BRACKET_MAX}.")));
            }
            end += whole(*length);
            Ok(end)
        };
        Ok(Self::Brackets(lengths.iter().map(bracket).collect::<Result<_, _>>()?))
    }

    /// The number of cells.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Single(cells) => *cells,
            Self::Brackets(ends) => ends.len() + 1,
        }
    }

    /// The cell that contains the interval this many intervals after that of the row; `None` if it is after the last
    /// cell.
    pub(super) fn cell_of(&self, interval: usize) -> Option<usize> {
        let cell = match self {
            Self::Single(_) => interval,
            Self::Brackets(_) if interval == 0 => 0,
            Self::Brackets(ends) => ends.partition_point(|end| *end < interval) + 1,
        };
        (cell < self.len()).then_some(cell)
    }

    /// The label of a cell, such as `Day 2` or `Day 3-9`.
    pub(super) fn label(&self, period: &str, cell: usize) -> String {
        let Self::Brackets(ends) = self else { return format!("{period} {cell}") };
        let end_of = |cell: usize| ends.get(cell.checked_sub(1)?).copied();
        let Some(end) = end_of(cell) else { return format!("{period} 0") };
        let first = end_of(cell - 1).unwrap_or(0) + 1;
        if first == end { format!("{period} {end}") } else { format!("{period} {first}-{end}") }
    }
}

/// Converts a non-negative whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and whole")]
fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Spans;
    use weir_api::node::{Content, NodeError};
    use weir_api::nodes::insights::RetentionFilter;

    fn parsed(sent: &Value) -> Result<Spans, String> {
        let options =
            RetentionFilter::read(&json!({"retentionCustomBrackets": sent}), "retentionFilter");
        let spans = options.and_then(|own| Spans::of(&own.retention_custom_brackets, 7));
        spans.map_err(|error: NodeError| error.field)
    }

    #[test]
    fn brackets_are_lists_of_lengths() {
        let wrong = Err("retentionFilter.retentionCustomBrackets".to_owned());
        let long = vec![1; 400];
        for (sent, expected) in [
            (json!(null), Ok(Spans::Single(7))),
            (json!([]), Ok(Spans::Single(7))),
            (json!([1, 3, 10]), Ok(Spans::Brackets(vec![1, 4, 14]))),
            (json!([2.0]), Ok(Spans::Brackets(vec![2]))),
            (json!([10_000]), Ok(Spans::Brackets(vec![10_000]))),
            (json!([10_001]), wrong.clone()),
            (json!([1, 0]), wrong.clone()),
            (json!([-1]), wrong.clone()),
            (json!([1.5]), wrong.clone()),
            (json!([1e300]), wrong.clone()),
            (json!(["1"]), wrong.clone()),
            (json!([null]), wrong.clone()),
            (json!("1,3"), wrong.clone()),
            (json!(3), wrong.clone()),
            (json!(long), wrong.clone()),
            (json!(long[1..]), Ok(Spans::Brackets((1..400).collect()))),
        ] {
            assert_eq!(parsed(&sent), expected, "{sent}");
        }
    }

    #[test]
    fn intervals_are_in_the_cell_of_their_bracket() {
        let spans = Spans::Brackets(vec![1, 4, 14]);
        let cells: Vec<Option<usize>> = (0..17).map(|interval| spans.cell_of(interval)).collect();
        let mut expected = vec![Some(0), Some(1)];
        expected.extend([Some(2); 3]);
        expected.extend([Some(3); 10]);
        expected.extend([None; 2]);
        assert_eq!(cells, expected);
        let labels: Vec<String> = (0..spans.len()).map(|cell| spans.label("Day", cell)).collect();
        assert_eq!(labels, ["Day 0", "Day 1", "Day 2-4", "Day 5-14"]);
        let single = Spans::Single(3);
        assert_eq!((single.cell_of(2), single.cell_of(3)), (Some(2), None));
        assert_eq!((single.label("Week", 2), single.len()), ("Week 2".to_owned(), 3));
    }
}
