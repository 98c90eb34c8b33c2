//! A tree of filters as a condition of a plan: [`condition`].
//!
//! A filter on a property of events that has a column reads the column. A filter on persons alone is asked once for
//! each person. What is left is asked row by row of the JSON text ([`matches`]). All of them ask the predicates
//! that flags ask, so that they always agree.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::prelude::{ident, lit};
use serde_json::Value;

use crate::events::{expression_columns, session_columns};
use crate::filter::condition::{About, Content, Pace};
use crate::filter::content::{ConditionContent, OfColumn};
use crate::filter::matches::Subjects;
use crate::filter::{condition, matches};
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::tree::Tree;
use weir_event::predicate::{Condition, Equality, Predicate, Test};
use weir_event::schema::{PROMOTED, PropertyType, TEXT_OF_SCALARS, promoted_column_name};

/// The condition that a tree of filters holds for an event, and its person and groups as of now. It is true or
/// false, never null. Where it asks of sessions or has expressions, the events have their columns beside them: see
/// [`with_columns`](expression_columns::with_columns).
pub fn condition(tree: Tree, subjects: Subjects) -> Expr {
    compiled(tree, &Arc::new(subjects))
}

fn compiled(tree: Tree, subjects: &Arc<Subjects>) -> Expr {
    match tree {
        Tree::All(trees) => all(joined(trees, Tree::All, subjects)),
        Tree::Any(trees) => any(joined(trees, Tree::Any, subjects)),
        Tree::Leaf { filter: Filter::Property { scope: Scope::Event, predicate }, negated } => {
            let holds = of_event(predicate, subjects);
            if negated { !holds } else { holds }
        }
        Tree::Leaf { filter: Filter::Property { scope: Scope::Session, predicate }, negated } => {
            let holds = session_columns::condition(predicate, subjects.now);
            if negated { !holds } else { holds }
        }
        Tree::Leaf {
            filter: Filter::Property { scope: Scope::Expression, predicate },
            negated,
        } => {
            let holds = expression_columns::condition(&predicate.key);
            if negated { !holds } else { holds }
        }
        leaf @ Tree::Leaf { .. } => matches::condition(leaf, Arc::clone(subjects)),
    }
}

/// Whether all conditions of a group hold.
pub(crate) fn all(conditions: Vec<Expr>) -> Expr {
    conditions.into_iter().reduce(Expr::and).unwrap_or_else(|| lit(true))
}

/// Whether one of them holds. A group without values restricts nothing, whatever its type.
pub(crate) fn any(conditions: Vec<Expr>) -> Expr {
    conditions.into_iter().reduce(Expr::or).unwrap_or_else(|| lit(true))
}

/// The conditions of a group. Those that need each row's JSON text are one, so that a text is read once; and so are
/// those of persons, so that each person is.
fn joined(
    trees: Vec<Tree>,
    join: impl Fn(Vec<Tree>) -> Tree,
    subjects: &Arc<Subjects>,
) -> Vec<Expr> {
    let (mut conditions, mut of_persons, mut of_texts) = (Vec::new(), Vec::new(), Vec::new());
    for tree in trees {
        match &tree {
            _ if matches::is_of_persons(&tree) => of_persons.push(tree),
            Tree::Leaf { filter: Filter::Property { scope: Scope::Event, predicate }, .. }
                if promoted(&predicate.key).is_none() =>
            {
                of_texts.push(tree);
            }
            _ => conditions.push(compiled(tree, subjects)),
        }
    }
    for trees in [of_persons, of_texts] {
        if !trees.is_empty() {
            conditions.push(matches::condition(join(trees), Arc::clone(subjects)));
        }
    }
    conditions
}

fn promoted(key: &str) -> Option<PropertyType> {
    PROMOTED.iter().find(|(own, _)| *own == key).map(|(_, kind)| *kind)
}

/// A predicate on a property of the event.
fn of_event(predicate: Predicate, subjects: &Arc<Subjects>) -> Expr {
    let Some(kind) = promoted(&predicate.key).filter(|kind| is_told_by(*kind, &predicate)) else {
        return of_text(predicate, subjects);
    };
    let column = ident(promoted_column_name(&predicate.key));
    let now = subjects.now;
    let without = without_column(kind, &predicate).or_else(|| without_value(&predicate, subjects));
    if let Some(without) = without {
        return of_column(OfColumn { kind, predicate, now, without }).call(vec![column]);
    }
    let own = OfColumn { kind, predicate: predicate.clone(), now, without: false };
    let of_column = of_column(own).call(vec![column.clone()]);
    let where_there = vec![(Box::new(column.is_not_null()), Box::new(of_column))];
    Expr::Case(Case::new(None, where_there, Some(Box::new(of_text(predicate, subjects)))))
}

fn of_text(predicate: Predicate, subjects: &Arc<Subjects>) -> Expr {
    let filter = Filter::Property { scope: Scope::Event, predicate };
    matches::condition(Tree::Leaf { filter, negated: false }, Arc::clone(subjects))
}

/// Whether the value of the column says what the value in the JSON text would.
fn is_told_by(kind: PropertyType, predicate: &Predicate) -> bool {
    match (&predicate.test, kind) {
        (Test::Set | Test::NotSet | Test::Never, _) => true,
        // A column of scalars does not tell what a time is: a text, or a number.
        (Test::Is(test) | Test::IsNot(test), PropertyType::Text) => {
            !matches!(test, Condition::Date(..)) || !TEXT_OF_SCALARS.contains(&&*predicate.key)
        }
        // Nor one of numbers how they are written, nor which of several integers that are one double.
        (Test::Is(test) | Test::IsNot(test), PropertyType::Double) => match test {
            Condition::Number { bound, .. } => !bound.is_wide(),
            Condition::Between { low, high, .. } => !low.is_wide() && !high.is_wide(),
            _ => false,
        },
        (Test::Is(_) | Test::IsNot(_), PropertyType::Boolean) => true,
    }
}

/// What holds where the column is null: there is no property, or one of another type, which is in the JSON text
/// only. `None` if that matters.
fn without_column(kind: PropertyType, predicate: &Predicate) -> Option<bool> {
    // What no other JSON value is written as.
    let is_text = |text: &str| {
        let is_word = matches!(text, "true" | "false" | "null");
        !is_word && !text.starts_with(|first: char| matches!(first, '[' | '{' | '-' | '0'..='9'))
    };
    let is_of_texts = |condition: &Condition| match condition {
        Condition::Equal(Equality::Text(text)) => is_text(text),
        Condition::Equal(Equality::AnyOf(texts)) => texts.iter().all(|text| is_text(text)),
        _ => false,
    };
    match &predicate.test {
        Test::Never => Some(false),
        Test::Is(condition) if kind == PropertyType::Text && is_of_texts(condition) => Some(false),
        Test::IsNot(condition) if kind == PropertyType::Text && is_of_texts(condition) => {
            Some(true)
        }
        _ => None,
    }
}

/// What holds where the column is null and has every value: there is no property, or it is null. `None` if that is
/// not the same, or the column has not every value.
fn without_value(predicate: &Predicate, subjects: &Subjects) -> Option<bool> {
    let number = PROMOTED.iter().position(|(key, _)| *key == &*predicate.key);
    number.filter(|number| subjects.exact.has(*number))?;
    let [absent, null] =
        [None, Some(&Value::Null)].map(|value| predicate.matches_value(value, subjects.now));
    (absent == null).then_some(absent)
}

/// The condition of one column, as a function of it.
pub(crate) fn of_column(of: OfColumn) -> ScalarUDF {
    let content = Content::Known(Box::new(ConditionContent::Column(of.clone())));
    let OfColumn { kind, predicate, now, without } = of;
    let data_type = match kind {
        PropertyType::Text => DataType::Utf8View,
        PropertyType::Double => DataType::Float64,
        PropertyType::Boolean => DataType::Boolean,
    };
    let (name, about) = ("matches_column", About { content, ..About::default() });
    let pace = Pace::with(predicate.pattern().cloned().into_iter().collect(), Pace::Quick);
    let test = condition::of_one(name, move |column, call| {
        let holds = |value: Value| predicate.matches_value(Some(&value), now);
        condition::hold(column, call, without, holds)
    });
    condition::function(about, name, vec![data_type], pace, test)
}
