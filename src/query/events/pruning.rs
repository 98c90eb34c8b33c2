//! Prunes data files before a plan lists them: compares the column bounds in the table's log with the project and the
//! filters of a query. Row groups and pages are pruned by Parquet statistics when a file is read.
//!
//! The bounds cover rows of all projects, so a user's expression that fails on them is not an error: the files stay,
//! and the expression fails on rows of its own project or not at all.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, ColumnStatistics, ScalarValue, Statistics};
use datafusion::physical_expr::expressions::CaseExpr;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;

use crate::events::deleted;
use crate::events::scoped::{PROJECT, Scope};
use weir_base::clock::UnixMicros;
use weir_storage::delta::DataFile;
use weir_storage::delta::stats::{ColumnStats, Value};

/// The files that may have rows of the scope that match all `filters`, expressions over `schema`.
pub(crate) fn prune(
    files: &[Arc<DataFile>],
    scope: &Scope,
    filters: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
) -> Vec<Arc<DataFile>> {
    let may_have = |file: &&Arc<DataFile>| {
        file.stats.may_have(PROJECT, scope.project.0) && may_be_kept(file, scope.kept_from)
    };
    let own = files.iter().filter(may_have);
    let own: Vec<Arc<DataFile>> = own.cloned().collect();
    let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let conditions = filters.iter().flat_map(split_conjunction).filter(|own| !has_case(own));
    let filter = conjunction(conditions.cloned());
    let Some(predicate) = builder.build(filter) else { return own };
    let Ok(kept) = predicate.prune(&FileBounds { files: &own, schema }) else { return own };
    own.into_iter().zip(kept).filter(|(_, is_kept)| *is_kept).map(|(file, _)| file).collect()
}

/// Whether a condition contains a CASE. It cannot be used to prune, and the predicate builder prints expressions that
/// it does not support: with nested ones, the printed text doubles at each level.
fn has_case(condition: &Arc<dyn PhysicalExpr>) -> bool {
    condition.exists(|part| Ok(part.is::<CaseExpr>())).unwrap_or(true)
}

fn may_be_kept(file: &DataFile, kept_from: Option<UnixMicros>) -> bool {
    let max = file.stats.columns.get(deleted::TIMESTAMP).and_then(|stats| stats.max.as_ref());
    match (kept_from, max) {
        (Some(from), Some(Value::Timestamp(max))) => *max >= from,
        _ => true,
    }
}

/// The bounds of files; each file is a container of [`PruningStatistics`].
struct FileBounds<'f> {
    files: &'f [Arc<DataFile>],
    schema: &'f SchemaRef,
}

impl FileBounds<'_> {
    fn stats<'s>(&'s self, column: &'s Column) -> impl Iterator<Item = Option<&'s ColumnStats>> {
        self.files.iter().map(|file| file.stats.columns.get(&column.name))
    }

    fn bounds(
        &self,
        column: &Column,
        bound: impl Fn(&ColumnStats) -> Option<&Value>,
    ) -> Option<ArrayRef> {
        let unknown = self.schema.field_with_name(&column.name).ok()?.data_type();
        let unknown = ScalarValue::try_from(unknown).ok()?;
        let value = |stats: Option<&ColumnStats>| {
            stats.and_then(&bound).map_or_else(|| unknown.clone(), scalar)
        };
        ScalarValue::iter_to_array(self.stats(column).map(value)).ok()
    }
}

impl PruningStatistics for FileBounds<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |stats| stats.min.as_ref())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |stats| stats.max.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let counts = self.stats(column).map(|stats| stats?.null_count);
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.files.iter().map(|file| Some(file.rows)).collect::<UInt64Array>()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// The bounds of a file as DataFusion's statistics, by which it is pruned once more when it is about to be opened, with
/// values that are available only then.
pub(crate) fn statistics(file: &DataFile, schema: &SchemaRef) -> Statistics {
    let bound = |value: &Option<Value>| match value {
        Some(value @ Value::Int(_)) => Precision::Exact(scalar(value)),
        // Bounds of texts are truncated, times are in milliseconds, and the text of a double may round to a
        // neighbouring value: such a bound need not occur.
        Some(value) => Precision::Inexact(scalar(value)),
        None => Precision::Absent,
    };
    let exact = |count: u64| usize::try_from(count).map_or(Precision::Absent, Precision::Exact);
    let column = |name: &str| match file.stats.columns.get(name) {
        Some(stats) => ColumnStatistics {
            null_count: stats.null_count.map_or(Precision::Absent, exact),
            min_value: bound(&stats.min),
            max_value: bound(&stats.max),
            ..ColumnStatistics::new_unknown()
        },
        None => ColumnStatistics::new_unknown(),
    };
    Statistics {
        num_rows: exact(file.rows),
        total_byte_size: Precision::Absent,
        column_statistics: schema.fields().iter().map(|field| column(field.name())).collect(),
    }
}

fn scalar(value: &Value) -> ScalarValue {
    match value {
        Value::Int(number) => ScalarValue::Int64(Some(*number)),
        Value::Float(number) => ScalarValue::Float64(Some(*number)),
        Value::Text(text) => ScalarValue::Utf8View(Some(text.clone())),
        Value::Timestamp(time) => {
            ScalarValue::TimestampMicrosecond(Some(time.0), Some("UTC".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::common::DFSchema;
    use datafusion::logical_expr::{Expr, cast};
    use datafusion::prelude::{SessionContext, col, lit, when};

    use super::{Scope, Value, prune, scalar};
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_event::schema::events_schema;
    use weir_storage::delta::DataFile;
    use weir_storage::delta::stats::{ColumnStats, FileStats};
    use weir_storage::derived::DerivedTag;
    use weir_storage::exact::ExactColumns;

    fn file(path: &str, bounds: &[(&str, Value, Value)]) -> Arc<DataFile> {
        let columns = bounds.iter().map(|(name, min, max)| {
            let (min, max) = (Some(min.clone()), Some(max.clone()));
            ((*name).to_owned(), ColumnStats { min, max, null_count: Some(0) })
        });
        let stats = FileStats { columns: columns.collect() };
        Arc::new(DataFile {
            path: path.to_owned(),
            size_bytes: 9,
            rows: 9,
            partition: None,
            stats,
            exact: ExactColumns::ALL,
            derived: DerivedTag::default(),
        })
    }

    /// Files `a` and `b` of project 7, `c` of projects 1 to 9, `d` of project 8, `u` without bounds.
    fn files() -> Vec<Arc<DataFile>> {
        let projects = |min, max| ("project_id", Value::Int(min), Value::Int(max));
        let text = |text: &str| Value::Text(text.to_owned());
        let at = |micros| Value::Timestamp(UnixMicros(micros));
        vec![
            file(
                "a",
                &[projects(7, 7), ("event", text("a"), text("m")), ("timestamp", at(0), at(100))],
            ),
            file(
                "b",
                &[projects(7, 7), ("event", text("n"), text("z")), ("timestamp", at(50), at(200))],
            ),
            file(
                "c",
                &[projects(1, 9), ("event", text("k"), text("p")), ("timestamp", at(300), at(300))],
            ),
            file(
                "d",
                &[projects(8, 8), ("event", text("a"), text("z")), ("timestamp", at(0), at(900))],
            ),
            file("u", &[]),
        ]
    }

    fn time(micros: i64) -> Expr {
        lit(scalar(&Value::Timestamp(UnixMicros(micros))))
    }

    /// Goal: a file is pruned only if none of its rows can match, whatever the filter is.
    #[test]
    fn files_without_matching_rows_are_pruned() {
        let event = |name: &str| col("event").eq(lit(name));
        let unreadable = cast(col("event"), arrow::datatypes::DataType::Int64).gt(lit(5));
        for (filter, expected) in [
            (lit(true), "abcu"),
            (event("b"), "au"),
            (event("o"), "bcu"),
            (event("b").or(event("x")), "abu"),
            (col("timestamp").gt(time(100)), "bcu"),
            (col("timestamp").gt_eq(time(100)).and(event("l")), "acu"),
            (col("timestamp").between(time(201), time(299)), "u"),
            (col("event").in_list(vec![lit("b"), lit("l")], false), "acu"),
            (col("event").is_null(), "u"),
            (col("p_revenue").gt(lit(5.0)), "abcu"),
            (col("uuid").eq(lit("x")), "abcu"),
            (unreadable.clone(), "abcu"),
            (unreadable.and(event("b")), "au"),
        ] {
            assert_eq!(kept(&filter), expected, "{filter}");
        }
    }

    /// Goal: pruning takes time and memory linear in the length of the filter. Method: a CASE that contains 45 others,
    /// each nested in the one before, besides a condition that can be used to prune.
    #[test]
    fn nested_cases_say_nothing_of_files() {
        let event = |name: &str| col("event").eq(lit(name));
        let nested = (0..45).fold(lit(2), |otherwise, _| {
            when(event("b"), lit(1)).otherwise(otherwise).expect("a CASE")
        });
        assert_eq!(kept(&nested.clone().eq(lit(1))), "abcu");
        assert_eq!(kept(&nested.eq(lit(1)).and(event("b"))), "au");
    }

    fn kept(filter: &Expr) -> String {
        kept_since(filter, None)
    }

    #[test]
    fn files_with_old_rows_only_are_pruned() {
        for (from, expected) in [(0, "abcu"), (100, "abcu"), (101, "bcu"), (201, "cu"), (301, "u")]
        {
            assert_eq!(kept_since(&lit(true), Some(UnixMicros(from))), expected, "{from}");
        }
    }

    fn kept_since(filter: &Expr, kept_from: Option<UnixMicros>) -> String {
        let schema = events_schema();
        let named = DFSchema::try_from(Arc::clone(&schema)).expect("names are unique");
        let physical = SessionContext::new().create_physical_expr(filter.clone(), &named);
        let physical = physical.expect("a physical form");
        let scope = Scope { project: ProjectId(7), deletions: None, kept_from };
        let kept = prune(&files(), &scope, &[physical], &schema);
        kept.iter().map(|file| file.path.as_str()).collect()
    }
}
