//! A tree of filters on persons as a condition on rows of the table of persons: [`condition`]. A filter on a property
//! reads it from the JSON text of the row; only what a row does not tell, distinct ids and cohorts, is looked up for each
//! person ([`matches`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::{col, lit};

use crate::filter::condition::Pace;
use crate::filter::matches::Subjects;
use crate::filter::tree::{all, any};
use crate::filter::{condition, matches};
use weir_event::predicate::Predicate;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::row;

/// The condition that a tree of filters holds for a person, in rows with its columns `properties`, `created_at`,
/// `is_identified`, and its uuid as `id` and as `person_id`. It is true or false, never null.
pub fn condition(tree: Tree, subjects: Subjects) -> Expr {
    compiled(tree, &Arc::new(subjects))
}

fn compiled(tree: Tree, subjects: &Arc<Subjects>) -> Expr {
    match tree {
        Tree::All(trees) => all(joined(trees, Tree::All, subjects)),
        Tree::Any(trees) => any(joined(trees, Tree::Any, subjects)),
        Tree::Leaf { filter: Filter::Property { scope, predicate }, negated }
            if is_told(scope, &predicate) =>
        {
            let holds = match scope {
                Scope::Person => of_property(predicate, subjects.now),
                _ => of_row(predicate, subjects.now),
            };
            if negated { !holds } else { holds }
        }
        leaf @ Tree::Leaf { .. } => matches::condition(leaf, Arc::clone(subjects)),
    }
}

/// The conditions of a group. Those for which persons are looked up are one, so that each person is looked up once, and
/// the last one, so that few are.
fn joined(
    trees: Vec<Tree>,
    join: impl Fn(Vec<Tree>) -> Tree,
    subjects: &Arc<Subjects>,
) -> Vec<Expr> {
    let is_of_rows = |tree: &Tree| {
        tree.filters().into_iter().all(|filter| match filter {
            Filter::Property { scope, predicate } => is_told(*scope, predicate),
            Filter::Cohort { .. } | Filter::Flag { .. } => false,
        })
    };
    let (of_rows, looked_up): (Vec<_>, Vec<_>) = trees.into_iter().partition(is_of_rows);
    let mut conditions: Vec<Expr> =
        of_rows.into_iter().map(|tree| compiled(tree, subjects)).collect();
    if !looked_up.is_empty() {
        conditions.push(matches::condition(join(looked_up), Arc::clone(subjects)));
    }
    conditions
}

/// Whether the row of a person tells what a filter asks.
fn is_told(scope: Scope, predicate: &Predicate) -> bool {
    let is_column = scope == Scope::PersonMetadata && column(&predicate.key).is_some();
    scope == Scope::Person || is_column
}

/// The column with what filters of the type `person_metadata` ask of a person.
fn column(key: &str) -> Option<(&'static str, DataType)> {
    match key {
        "id" | "uuid" => Some(("id", DataType::Utf8View)),
        "created_at" => {
            Some(("created_at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))))
        }
        "is_identified" => Some(("is_identified", DataType::Boolean)),
        _ => None,
    }
}

fn pace(predicate: &Predicate) -> Pace {
    Pace::with(predicate.pattern().cloned().into_iter().collect(), Pace::Steady)
}

fn of_row(predicate: Predicate, now: Now) -> Expr {
    let without = predicate.matches_value(None, now);
    let Some((name, data_type)) = column(&predicate.key) else { return lit(without) };
    let pace = pace(&predicate);
    condition::of_column("matches_person", name, data_type, pace, move |column, call| {
        condition::hold(column, call, without, |value| predicate.matches_value(Some(&value), now))
    })
}

fn of_property(predicate: Predicate, now: Now) -> Expr {
    let properties = vec![col("properties"), lit(&*predicate.key)];
    let json = datafusion_functions_json::udfs::json_get_json_udf().call(properties);
    let json = cast(json, DataType::Utf8View);
    let without = predicate.matches_value(None, now);
    let pace = pace(&predicate);
    condition::of_value("matches_property", json, DataType::Utf8View, pace, move |column, call| {
        condition::hold(column, call, without, |json| {
            let value = json.as_str().and_then(|json| row::value(json).ok()).unwrap_or_default();
            predicate.matches_value(Some(&value), now)
        })
    })
}
