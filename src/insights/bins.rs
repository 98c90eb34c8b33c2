//! Histogram bins of a numeric property: [`Bins`]. They are of equal width between the minimum and the maximum, as in
//! PostHog's trends since these compute a breakdown in one query; before, they were quantiles.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{max, min};
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::ident;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use weir_query::functions::serializable;
use weir_query::functions::serializable::SerializableFunction;
use weir_query::functions::text_number::number;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;

/// How far the label of the last bin extends beyond the maximum, which is in that bin (PostHog's figure).
const BEYOND_LARGEST: f64 = 0.01;

/// Numbers are printed with an exponent from `LARGE` on, and below `SMALL`.
const LARGE: f64 = 1e21;
const SMALL: f64 = 1e-6;

/// Bins of numbers, in ascending order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bins {
    /// The lower bound of each bin; empty if there are no numbers.
    starts: Vec<f64>,
    /// The label of each bin, such as `[10,17.5]`.
    labels: Vec<String>,
}

impl Bins {
    /// Splits the range from the smallest to the largest number into `count` bins.
    fn new((smallest, largest): (f64, f64), count: u16) -> Self {
        let width = (largest - smallest) / f64::from(count);
        let edge = |at: u16| match width * f64::from(at) + smallest {
            edge if edge.is_finite() => edge,
            // The width is not representable: interpolate between the bounds instead.
            _ => {
                let part = f64::from(at) / f64::from(count);
                largest * part + smallest * (1.0 - part)
            }
        };
        let end = |at: u16| if at == count { edge(at) + BEYOND_LARGEST } else { edge(at) };
        let label = |at: u16| label_of(edge(at), end(at + 1));
        Self { starts: (0..count).map(edge).collect(), labels: (0..count).map(label).collect() }
    }

    /// The bins of text columns, each with its number of bins: from the smallest to the largest finite number in
    /// `rows`.
    pub async fn measured(
        engine: &Engine,
        rows: DataFrame,
        columns: &[(String, u16)],
    ) -> Result<Vec<Self>, QueryError> {
        let mut found = Vec::with_capacity(columns.len() * 2);
        for (column, _) in columns {
            let number = number_of(column);
            found.push(min(number.clone()).alias(format!("{column}_min")));
            found.push(max(number).alias(format!("{column}_max")));
        }
        let batches = engine.compute(rows.aggregate(Vec::new(), found)?).await?;
        let of = |name: String| {
            let first = |column: &ArrayRef| column.as_primitive_opt::<Float64Type>()?.iter().next();
            batches.iter().find_map(|batch| first(batch.column_by_name(&name)?)).flatten()
        };
        let bins = |(column, count): &(String, u16)| {
            let range = of(format!("{column}_min")).zip(of(format!("{column}_max")));
            range.map_or(Self { starts: Vec::new(), labels: Vec::new() }, |range| {
                Self::new(range, *count)
            })
        };
        Ok(columns.iter().map(bins).collect())
    }

    /// The label of the bin that contains a number; `None` if none does.
    fn label(&self, number: f64) -> Option<&str> {
        if !number.is_finite() {
            return None;
        }
        let bin = self.starts.partition_point(|start| *start <= number).checked_sub(1)?;
        self.labels.get(bin).map(String::as_str)
    }

    /// Expression for the label of the bin of a text column that is parsed as a number; null if it is not numeric.
    pub fn labels_of(&self, column: &str) -> Expr {
        serializable::call(self.clone(), number_of(column))
    }
}

impl SerializableFunction for Bins {
    const NAME: &'static str = "bin_of";

    fn takes() -> DataType {
        DataType::Float64
    }

    fn gives() -> DataType {
        DataType::Utf8
    }

    fn invoke(&self, numbers: &ArrayRef) -> Result<ArrayRef> {
        let numbers = numbers.as_primitive_opt::<Float64Type>();
        let label = |number: Option<f64>| self.label(number?);
        let labels: StringArray = numbers.into_iter().flatten().map(label).collect();
        Ok(Arc::new(labels))
    }
}

/// Expression for a text column parsed as a number; null if it is not numeric.
fn number_of(column: &str) -> Expr {
    number(cast(ident(column), DataType::Utf8))
}

/// The label of a bin.
fn label_of(start: f64, end: f64) -> String {
    format!("[{},{}]", written(start), written(end))
}

/// The shortest decimal text that identifies a number.
fn written(number: f64) -> String {
    // Adding 0 turns -0 into 0.
    let number = number + 0.0;
    let size = number.abs();
    match size >= LARGE || (size < SMALL && size > 0.0) {
        true => format!("{number:e}"),
        false => number.to_string(),
    }
}

/// The label of the bin for a breakdown value that a client sends as a list of the bin's two bounds.
pub fn name_of(value: &Value) -> Option<String> {
    match value.as_array()?.as_slice() {
        [start, end] => Some(label_of(start.as_f64()?, end.as_f64()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Bins, name_of};

    #[test]
    fn bins_have_one_width() {
        // PostHog's own example: numbers from 10 to 40.
        let bins = Bins::new((10.0, 40.0), 4);
        assert_eq!(bins.labels, ["[10,17.5]", "[17.5,25]", "[25,32.5]", "[32.5,40.01]"]);
        for (number, label) in [
            (10.0, Some("[10,17.5]")),
            (17.4, Some("[10,17.5]")),
            (17.5, Some("[17.5,25]")),
            (40.0, Some("[32.5,40.01]")),
            (9.9, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(bins.label(number), label, "{number}");
        }
        assert_eq!(Bins::new((5.0, 5.0), 3).label(5.0), Some("[5,5.01]"), "the last one");
        assert_eq!(Bins::new((-0.0, 1.0), 1).labels, ["[0,1.01]"]);
    }

    #[test]
    fn every_number_has_a_bin() {
        let ranges = [
            (f64::MIN, f64::MAX),
            (1e300, 1.1e300),
            (5e-324, 1e-323),
            (1e18, 1e18 + 4096.0),
            (-1.0, 1e-300),
            (0.1, 0.3),
        ];
        for (smallest, largest) in ranges {
            for count in [1, 2, 3, 7, 500] {
                let bins = Bins::new((smallest, largest), count);
                assert!(bins.starts.is_sorted() && bins.starts.iter().all(|at| at.is_finite()));
                assert_eq!(bins.labels.len(), usize::from(count));
                for number in [smallest, smallest / 2.0 + largest / 2.0, largest] {
                    assert!(bins.label(number).is_some(), "{number} of {count}: {bins:?}");
                }
            }
        }
        assert_eq!(Bins::new((0.0, 1e300), 2).labels[0], "[0,5e299]");
    }

    #[test]
    fn lists_of_two_numbers_are_names() {
        for (sent, name) in [
            (json!([10, 17.5]), Some("[10,17.5]")),
            (json!([10.0, 40.01]), Some("[10,40.01]")),
            (json!(["a", "b"]), None),
            (json!([1]), None),
            (json!("[1,2]"), None),
        ] {
            assert_eq!(name_of(&sent).as_deref(), name, "{sent}");
        }
    }
}
