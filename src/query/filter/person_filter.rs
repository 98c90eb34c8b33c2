//! A tree of filters on persons as a condition on rows of the table of persons: [`condition`]. A filter on a property
//! reads it alone, evaluated once for each value; only what columns do not tell, distinct ids and cohorts, is asked of each
//! person ([`matches`]).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{max, min};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::{col, ident, lit};
use serde_json::Value;

use crate::filter::condition::{About, Needs, Pace, RowTest};
use crate::filter::matches::Subjects;
use crate::filter::tree::{all, any};
use crate::filter::{condition, matches};
use weir_base::clock::UnixMicros;
use weir_event::predicate::filter::{Filter, Membership, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_event::predicate::{Condition, Predicate, Relation, Test};
use weir_identity::row;
use weir_identity::row::Key;

/// The property that has emails.
pub(crate) const EMAIL: &str = "email";

/// The condition that a tree of filters holds for a person, in rows with its columns `properties`, `created_at`,
/// `is_identified`, and its uuid as `id` and as `person_id`. It is true or false, never null. A filter that is not about
/// persons holds for nobody.
pub fn condition(tree: Tree, subjects: Subjects) -> Expr {
    compiled(about_persons(tree), &Arc::new(subjects))
}

fn about_persons(tree: Tree) -> Tree {
    let each = |trees: Vec<Tree>| trees.into_iter().map(about_persons).collect();
    match tree {
        Tree::All(trees) => Tree::All(each(trees)),
        Tree::Any(trees) => Tree::Any(each(trees)),
        Tree::Leaf { filter, negated } if !matches::asks_for_person(&filter) => {
            Tree::Leaf { filter: Filter::Cohort { id: 0, membership: Membership::Nobody }, negated }
        }
        leaf @ Tree::Leaf { .. } => leaf,
    }
}

fn compiled(tree: Tree, subjects: &Arc<Subjects>) -> Expr {
    match tree {
        Tree::All(trees) => {
            let (of_columns, others) = trees.into_iter().partition::<Vec<_>, _>(is_of_columns);
            let mut conditions: Vec<Expr> =
                of_columns.into_iter().map(|tree| compiled(tree, subjects)).collect();
            // One for all, so that each person is read once, and the last one, so that few are.
            if !others.is_empty() {
                conditions.push(matches::of_persons(Tree::All(others), Arc::clone(subjects)));
            }
            all(conditions)
        }
        Tree::Any(trees) if trees.iter().all(is_of_columns) => {
            any(trees.into_iter().map(|tree| compiled(tree, subjects)).collect())
        }
        Tree::Leaf { filter: Filter::Cohort { membership: Membership::Nobody, .. }, negated } => {
            lit(negated)
        }
        Tree::Leaf { filter: Filter::Property { scope, predicate }, negated }
            if is_told(scope, &predicate) =>
        {
            let holds = match scope {
                Scope::Person => of_property(predicate, subjects.now),
                _ => of_row(predicate, subjects.now),
            };
            if negated { !holds } else { holds }
        }
        tree => matches::of_persons(tree, Arc::clone(subjects)),
    }
}

fn is_of_columns(tree: &Tree) -> bool {
    tree.filters().into_iter().all(|filter| match filter {
        Filter::Property { scope, predicate } => is_told(*scope, predicate),
        Filter::Cohort { membership, .. } => *membership == Membership::Nobody,
        Filter::Flag { .. } => false,
    })
}

/// Whether columns of a person tell what a filter asks.
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
    condition::of_column(
        "matches_person",
        name,
        data_type,
        pace,
        move |column, call| match on_sides(column, &predicate, now) {
            Some(held) => Ok(held),
            None => condition::hold(column, call, without, |value| {
                predicate.matches_value(Some(&value), now)
            }),
        },
    )
}

/// The answers of a filter that only asks on which side of a time others are; `None` if it asks anything else.
fn on_sides(times: &ArrayRef, predicate: &Predicate, now: Now) -> Option<BooleanArray> {
    let times = times.as_primitive_opt::<TimestampMicrosecondType>()?;
    let (Test::Is(condition) | Test::IsNot(condition)) = &predicate.test else { return None };
    let Condition::Date(relation, _) = condition else { return None };
    if matches!(relation, Relation::Equal | Relation::NotEqual) || times.null_count() > 0 {
        return None;
    }
    let holds =
        |time: i64| predicate.matches_value(Some(&Value::from(UnixMicros(time).to_rfc3339())), now);
    let (mut first, mut last) = (min(times)?, max(times)?);
    let at_first = holds(first);
    if holds(last) == at_first {
        let all = if at_first { BooleanBuffer::new_set } else { BooleanBuffer::new_unset };
        return Some(BooleanArray::new(all(times.len()), None));
    }
    // The first time with the other answer is behind `first` and not behind `last`.
    while last.saturating_sub(first) > 1 {
        let middle = first.midpoint(last);
        if holds(middle) == at_first {
            first = middle;
        } else {
            last = middle;
        }
    }
    let held = times.values().iter().map(|time| (*time < last) == at_first);
    Some(BooleanArray::new(held.collect(), None))
}

fn of_property(predicate: Predicate, now: Now) -> Expr {
    let without = predicate.matches_value(None, now);
    let (pace, key) = (pace(&predicate), predicate.key.clone());
    holds_for_property(&key, pace, without, move |json| {
        let value = row::value(json).unwrap_or_default();
        predicate.matches_value(Some(&value), now)
    })
}

/// The condition that a rule holds for a property of a person, which it gets as compact JSON.
fn holds_for_property(
    key: &str,
    pace: Pace,
    without: bool,
    holds: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Expr {
    let json = datafusion_functions_json::udfs::json_get_json_udf();
    let json = cast(json.call(vec![col("properties"), lit(key)]), DataType::Utf8View);
    let key = Key::new(key);
    condition::of_property("matches_property", key, json, pace, move |column, call| {
        condition::hold_texts(column, call, without, &holds)
    })
}

/// The condition that the email of a person has a part in any case; the part is in lower case.
pub(crate) fn has_email_part(part: String) -> Expr {
    holds_for_property(EMAIL, Pace::Steady, false, move |json| has_part(json, &part))
}

/// Whether a value, compact JSON, is a text that contains `part` in any case.
fn has_part(json: &str, part: &str) -> bool {
    let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return false;
    };
    if !json.is_ascii() || json.contains('\\') {
        let text = row::value(json).unwrap_or_default();
        return text.as_str().is_some_and(|text| text.to_lowercase().contains(part));
    }
    inner.to_ascii_lowercase().contains(part)
}

/// The condition that a test of the rows of persons holds, in rows with the uuid as `id`.
pub(crate) fn holds_for_row(pace: Pace, test: Arc<RowTest>) -> Expr {
    let about = About { needs: Needs::Row(test), ..About::default() };
    let types = vec![DataType::Utf8View];
    let function = condition::function(about, "holds_for_person", types, pace, |_, _| {
        // It is called for what is folded or not pushed into the scan, which is nothing.
        let error = "a condition on whole persons is evaluated by their table";
        Err(datafusion::error::DataFusionError::Internal(error.to_owned()))
    });
    function.call(vec![ident("id")])
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::has_part;

    #[test]
    fn a_part_of_an_email_is_found_in_any_case() {
        let emails = [
            r#""Ada@Example.com""#,
            r#""ADA""#,
            r#""""#,
            r#""\"ada\"@x""#,
            r#""b\\ada""#,
            r#""\u0041da""#,
            r#""ÄDA@é.fr""#,
            "7",
            "null",
            r#"{"ada":"ada"}"#,
            r#"["ada"]"#,
        ];
        for json in emails {
            for part in ["ada", "", "@example", "äda", "\"", "\\", "da", "7", "u0041"] {
                let expected = serde_json::from_str::<Value>(json).unwrap();
                let expected = expected.as_str().map(str::to_lowercase);
                let expected = expected.is_some_and(|text| text.contains(part));
                assert_eq!(has_part(json, part), expected, "{part} in {json}");
            }
        }
    }
}
