//! Rewrites plans of numbers of persons to plans of their keys, which are the same in all processes: [`keyed`]. Numbers
//! ([`PersonNumbers`](crate::persons::person_numbers::PersonNumbers)) are those of one process.
//!
//! A key has another type than a number, so it is allowed only where it is passed on, grouped by or counted. A plan that
//! does anything else with numbers, such as to make bitmaps of them, is not rewritten.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::expr_fn::count_distinct;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Union};

use crate::events::resolve_person;
use crate::events::resolve_person::KEY;
use crate::functions::number_set;
use crate::persons::person_numbers;

/// The plan in which persons have keys instead of numbers; unchanged if it has no numbers. Columns keep their names.
///
/// # Errors
///
/// The plan has a use for numbers that keys do not have.
pub(crate) fn keyed(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has_numbers(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let plan = plan.transform_up(keyed_node)?.data;
    plan.apply(|node| check(node).map(|()| TreeNodeRecursion::Continue))?;
    Ok(Transformed::yes(plan))
}

/// Whether a plan gives keys of persons.
pub(crate) fn gives_keys(plan: &LogicalPlan) -> bool {
    plan.schema().fields().iter().any(|field| *field.data_type() == KEY)
}

fn has_numbers(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            found |= expression.exists(|part| match part {
                Expr::ScalarFunction(call) => Ok(person_numbers::keys_of(&call.func).is_some()),
                _ => Ok(false),
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn keyed_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Union(union) = node {
        // Its types are those of its inputs when it was made.
        let union = Union::try_new_with_loose_types(union.inputs)?;
        return Ok(Transformed::yes(LogicalPlan::Union(union)));
    }
    let names = NamePreserver::new(&node);
    let changed = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let changed = expression.transform_up(keyed_expression)?;
        Ok(changed.update_data(|changed| name.restore(changed)))
    })?;
    // The types of inputs may have changed.
    changed.map_data(LogicalPlan::recompute_schema)
}

fn keyed_expression(expression: Expr) -> Result<Transformed<Expr>> {
    Ok(match expression {
        Expr::ScalarFunction(call) => match person_numbers::keys_of(&call.func) {
            Some(keys) => Transformed::yes(keys.call(call.args)),
            None => Transformed::no(Expr::ScalarFunction(call)),
        },
        Expr::AggregateFunction(call) => match call.params.args.as_slice() {
            [number] if number_set::is_count_of_numbers(&call.func) => {
                Transformed::yes(count_distinct(number.clone()))
            }
            _ => Transformed::no(Expr::AggregateFunction(call)),
        },
        other => Transformed::no(other),
    })
}

/// Checks that no expression of a node computes with keys.
fn check(node: &LogicalPlan) -> Result<()> {
    let may_be_key = matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_));
    for input in node.inputs() {
        node.apply_expressions(|expression| match fits(expression, input.schema(), may_be_key) {
            true => Ok(TreeNodeRecursion::Continue),
            false => Err(refused(node)),
        })?;
    }
    // Columns that are united have one type.
    let of_inputs = |at: usize| {
        let key = |input: &&LogicalPlan| {
            input.schema().fields().get(at).is_some_and(|field| *field.data_type() == KEY)
        };
        (node.inputs().iter().any(key), node.inputs().iter().all(key))
    };
    let is_union = matches!(node, LogicalPlan::Union(_));
    let columns = node.schema().fields().len();
    match is_union && (0..columns).any(|at| matches!(of_inputs(at), (true, false))) {
        true => Err(refused(node)),
        false => Ok(()),
    }
}

/// Whether an expression has keys only where they mean the same as numbers. It may be a key itself if `may_be_key`.
fn fits(expression: &Expr, schema: &DFSchema, may_be_key: bool) -> bool {
    let is_key = |own: &Expr| {
        matches!(own, Expr::Column(column) if schema.is_column_from_schema(column)
            && own.get_type(schema).is_ok_and(|found| found == KEY))
    };
    match expression {
        Expr::Alias(alias) => fits(&alias.expr, schema, may_be_key),
        Expr::Column(_) => may_be_key || !is_key(expression),
        Expr::IsNull(inner) | Expr::IsNotNull(inner) if is_key(inner) => true,
        Expr::AggregateFunction(call) if is_distinct_count(call) => {
            call.params.args.iter().all(|own| fits(own, schema, true))
        }
        Expr::ScalarFunction(call) if resolve_person::gives_keys(&call.func) => may_be_key,
        other => {
            let mut fit = true;
            let looked = other.apply_children(|child| {
                fit &= fits(child, schema, false);
                Ok(TreeNodeRecursion::Continue)
            });
            fit && looked.is_ok()
        }
    }
}

/// Whether a call counts distinct values.
fn is_distinct_count(call: &AggregateFunction) -> bool {
    let params = &call.params;
    call.func.name() == "count"
        && params.distinct
        && params.filter.is_none()
        && params.order_by.is_empty()
}

fn refused(node: &LogicalPlan) -> DataFusionError {
    let why = format!("{} computes with numbers of persons", node.display());
    DataFusionError::NotImplemented(why)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch, StringViewArray, UInt32Array};
    use datafusion::dataframe::DataFrame;
    use datafusion::error::Result;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use datafusion::functions_aggregate::expr_fn::{count, min};
    use datafusion::logical_expr::cast;
    use datafusion::prelude::{SessionContext, ident, lit};
    use uuid::Uuid;

    use super::{gives_keys, keyed};
    use crate::functions::number_set::{count_numbers, number_set};
    use crate::persons::person_numbers::PersonNumbers;
    use weir_event::id::ProjectId;
    use weir_identity::limits::Limits;
    use weir_identity::store::Identities;

    /// Rows of seven events of three persons, with the numbers of these.
    fn events(context: &SessionContext, numbers: &Arc<PersonNumbers>) -> Result<DataFrame> {
        let person = |number: u128| Uuid::from_u128(number).to_string();
        let persons = [1, 2, 3, 1, 2, 1, 1].map(|number| Some(person(number)));
        let rows = RecordBatch::try_from_iter([
            ("person_id", Arc::new(StringViewArray::from_iter(persons)) as _),
            ("at", Arc::new(Int64Array::from_iter_values(0..7)) as _),
        ]);
        let rows = context.read_batch(rows?)?;
        rows.with_column("number", numbers.of_event(vec![ident("person_id")]))
    }

    /// What a plan does with numbers, and whether it may do so with keys.
    type Case = (&'static str, fn(&SessionContext, DataFrame) -> Result<DataFrame>, bool);

    const CASES: [Case; 12] = [
        (
            "passed on",
            |_, rows| rows.select(vec![ident("number").alias("actor"), ident("at")]),
            true,
        ),
        (
            "counted",
            |_, rows| rows.aggregate(vec![], vec![count_numbers(ident("number")).alias("n")]),
            true,
        ),
        (
            "counted by another column",
            |_, rows| {
                rows.aggregate(vec![ident("at") % lit(2_i64)], vec![count_numbers(ident("number"))])
            },
            true,
        ),
        (
            "grouped by",
            |_, rows| {
                rows.aggregate(vec![ident("number")], vec![min(ident("at"))])?
                    .aggregate(vec![], vec![count(lit(1))])
            },
            true,
        ),
        (
            "looked at for null",
            |_, rows| rows.filter(ident("number").is_not_null())?.select(vec![ident("at")]),
            true,
        ),
        (
            "united",
            |_, rows| {
                rows.clone().union(rows)?.aggregate(vec![], vec![count_numbers(ident("number"))])
            },
            true,
        ),
        ("compared with a number", |_, rows| rows.filter(ident("number").eq(lit(1_u32))), false),
        ("computed with", |_, rows| rows.select(vec![ident("number") + lit(1_u32)]), false),
        (
            "cast",
            |_, rows| rows.select(vec![cast(ident("number"), arrow::datatypes::DataType::Int64)]),
            false,
        ),
        (
            "made a bitmap of",
            |_, rows| rows.aggregate(vec![], vec![number_set(ident("number"))]),
            false,
        ),
        (
            "joined by",
            |_, rows| {
                let others = rows.clone().select(vec![ident("number").alias("other")])?;
                rows.join(
                    others,
                    datafusion::common::JoinType::Inner,
                    &["number"],
                    &["other"],
                    None,
                )
            },
            false,
        ),
        (
            "united with other numbers",
            |context, rows| {
                let others = RecordBatch::try_from_iter([(
                    "number",
                    Arc::new(UInt32Array::from_iter_values([1])) as _,
                )])?;
                rows.select(vec![ident("number")])?.union(context.read_batch(others)?)
            },
            false,
        ),
    ];

    #[tokio::test]
    async fn plans_are_rewritten_only_where_keys_mean_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let identities = Identities::open(directory.path(), Limits::SMALL).expect("a store");
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let overrides = Arc::new(identities.overrides());
        let numbers = Arc::new(PersonNumbers::new(ProjectId(1), overrides, &pool));
        let context = SessionContext::new();
        for (name, plan, may_be) in CASES {
            let rows = events(&context, &numbers).expect("a plan");
            let own = plan(&context, rows).expect(name);
            let (state, plan) = own.clone().into_parts();
            let changed = keyed(plan);
            assert_eq!(changed.is_ok(), may_be, "{name}: {changed:?}");
            let Ok(changed) = changed else { continue };
            assert!(changed.transformed, "{name}");
            let names = |frame: &DataFrame| {
                let fields = frame.schema().fields().iter();
                fields.map(|field| field.name().clone()).collect::<Vec<_>>()
            };
            let of_keys = gives_keys(&changed.data);
            let changed = DataFrame::new(state, changed.data);
            assert_eq!(names(&changed), names(&own), "{name}");
            assert_eq!(of_keys, name == "passed on", "{name}");
            let sorted = |frame: DataFrame| async {
                let first = frame.schema().fields().len().saturating_sub(1);
                let by = ident(frame.schema().field(first).name()).sort(true, true);
                frame.sort(vec![by]).expect("a plan").to_string().await
            };
            if !of_keys {
                assert_eq!(
                    sorted(changed).await.expect("rows"),
                    sorted(own).await.expect("rows"),
                    "{name}"
                );
            }
        }
        let rows = events(&context, &numbers).expect("a plan");
        let plain = rows.select(vec![ident("at")]).expect("a plan").into_optimized_plan();
        assert!(!keyed(plain.expect("a plan")).expect("a plan").transformed, "without numbers");
    }
}
