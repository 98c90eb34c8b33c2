//! SELECTs from tables that are always empty, which have no rows ([`prune`]), the names of columns ([`name_columns`]), and
//! joins with the items of a list ([`unnested`]).

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, GroupByExpr, Ident, Join, JoinOperator, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins, Value, Visitor, VisitorMut,
};

use crate::dialect::postgres::literals::literal;
use crate::dialect::postgres::{AGGREGATES, last, text, type_name};
use crate::dialect::statements::{cast, query_of, take};
use crate::dialect::walk::walk;

/// What precedes the number of a mark in the name of a column, and what follows it.
const MARK: (&str, char) = ("weir:", ':');

/// The name of a column without its mark.
pub(crate) fn unmarked(name: &str) -> &str {
    let behind = name.strip_prefix(MARK.0).and_then(|rest| rest.split_once(MARK.1));
    match behind {
        Some((number, name)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    }
}

/// Whether a query has no rows, because a table that all of them come from is always empty.
pub(super) fn reads_nothing(query: &Query, is_empty: &dyn Fn(&str) -> bool) -> bool {
    match &*query.body {
        SetExpr::Select(select) => selects_nothing(select, is_empty),
        SetExpr::Query(inner) => reads_nothing(inner, is_empty),
        _ => false,
    }
}

fn selects_nothing(select: &Select, is_empty: &dyn Fn(&str) -> bool) -> bool {
    let is_of_none = |table: &TableFactor| match table {
        TableFactor::Table { name, .. } => is_empty(&last(name)),
        TableFactor::Derived { subquery, .. } => reads_nothing(subquery, is_empty),
        _ => false,
    };
    let is_grouped =
        !matches!(&select.group_by, GroupByExpr::Expressions(own, _) if own.is_empty());
    // Aggregates of no rows are a row.
    let is_aggregate = !is_grouped && select.projection.iter().any(has_aggregate);
    let is_of_no_kind = select.selection.as_ref().is_some_and(is_of_no_constraint);
    let is_from_nothing = || {
        select.from.iter().any(|from| {
            let inner = from.joins.iter().filter(|join| {
                matches!(
                    join.join_operator,
                    JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
                )
            });
            let is_kept = from.joins.iter().all(|join| {
                !matches!(
                    join.join_operator,
                    JoinOperator::Right(_)
                        | JoinOperator::RightOuter(_)
                        | JoinOperator::FullOuter(_)
                )
            });
            is_kept
                && (is_of_none(&from.relation) || inner.map(|join| &join.relation).any(is_of_none))
        })
    };
    !is_aggregate && (is_of_no_kind || is_from_nothing())
}

/// Whether there is an aggregate in an item, outside of subqueries.
fn has_aggregate(item: &SelectItem) -> bool {
    #[derive(Default)]
    struct Aggregates {
        /// Subqueries around the current place.
        depth: usize,
    }
    impl Visitor for Aggregates {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth = self.depth.saturating_add(1);
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth = self.depth.saturating_sub(1);
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match expression {
                Expr::Function(own)
                    if self.depth == 0 && AGGREGATES.contains(&last(&own.name).as_str()) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let (SelectItem::UnnamedExpr(own) | SelectItem::ExprWithAlias { expr: own, .. }) = item else {
        return false;
    };
    walk(own, &mut Aggregates::default()).is_break()
}

/// Whether a condition asks for a kind of constraint of which there are none: all of them are keys.
fn is_of_no_constraint(condition: &Expr) -> bool {
    match condition {
        Expr::Nested(inner) => is_of_no_constraint(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            is_of_no_constraint(left) || is_of_no_constraint(right)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let is_kind = match &**left {
                Expr::Identifier(name) => name.value == "contype",
                Expr::CompoundIdentifier(names) => {
                    names.last().is_some_and(|own| own.value == "contype")
                }
                _ => false,
            };
            is_kind && literal(right).is_some_and(|own| own != "p")
        }
        _ => false,
    }
}

/// The name that PostgreSQL gives a column.
fn name_of(expression: &Expr) -> String {
    match expression {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => {
            names.last().map(|own| own.value.clone()).unwrap_or_default()
        }
        Expr::Function(function) => last(&function.name),
        Expr::Cast { expr, data_type, .. } => match name_of(expr) {
            name if name == "?column?" => type_name(data_type),
            name => name,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner),
        Expr::Case { .. } => "case".to_owned(),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => "bool".to_owned(),
        Expr::Exists { .. } => "exists".to_owned(),
        _ => "?column?".to_owned(),
    }
}

/// Gives the columns of a SELECT the names that PostgreSQL gives them, different ones.
fn name_columns(select: &mut Select) {
    let is_wild = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    let has_wildcard = select.projection.iter().any(is_wild);
    let mut seen: Vec<String> = Vec::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let (name, is_column) = match item {
            SelectItem::UnnamedExpr(own) => {
                let is_column = matches!(own, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                (name_of(own), is_column)
            }
            SelectItem::ExprWithAlias { alias, .. } => (alias.value.clone(), false),
            _ => continue,
        };
        let is_twice = seen.contains(&name) || has_wildcard && is_column;
        seen.push(name.clone());
        if is_column && !is_twice {
            continue;
        }
        let name = if is_twice { format!("{}{at}{}{name}", MARK.0, MARK.1) } else { name };
        let alias = Ident::with_quote('"', name);
        match item {
            SelectItem::UnnamedExpr(own) => {
                *item = SelectItem::ExprWithAlias { expr: take(own), alias }
            }
            SelectItem::ExprWithAlias { alias: own, .. } if is_twice => *own = alias,
            _ => {}
        }
    }
}

/// Makes `t CROSS JOIN unnest(t.x) AS y` a table with the column `y`: DataFusion has no lateral join of this kind.
///
/// # Errors
///
/// The table has no form as a query: a bug.
fn unnested(from: &mut TableWithJoins) -> Result<(), DataFusionError> {
    let list_of = |join: &Join| match &join.relation {
        TableFactor::UNNEST { array_exprs, alias: Some(alias), .. } => match array_exprs.as_slice()
        {
            [Expr::Identifier(list)] => Some((list.clone(), alias.name.clone())),
            [Expr::CompoundIdentifier(names)] => Some((names.last()?.clone(), alias.name.clone())),
            _ => None,
        },
        _ => None,
    };
    let found = from.joins.iter().enumerate().find_map(|(at, join)| Some((at, list_of(join)?)));
    let TableFactor::Table { name, alias, .. } = &from.relation else { return Ok(()) };
    let Some((at, (list, item))) = found else { return Ok(()) };
    let subquery = query_of(&format!("SELECT *, unnest({list}) AS {item} FROM {name}"))?;
    let alias = alias.clone();
    from.relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    from.joins.remove(at);
    Ok(())
}

/// Prunes SELECTs, and names columns.
pub(super) struct Pruned<'r> {
    pub(super) is_empty: &'r (dyn Fn(&str) -> bool + Send + Sync),
}

impl VisitorMut for Pruned<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        if prune(&mut query.body, &self.is_empty) {
            query.order_by = None;
            query.limit_clause = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        name_columns(select);
        match select.from.iter_mut().try_for_each(unnested) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        // Grafana looks for tables in the schemas of the search path by a long way around.
        if let Expr::InSubquery { expr, subquery, negated } = expression
            && subquery.to_string().contains("current_setting('search_path')")
        {
            let (expr, negated) = (Box::new(take(expr)), *negated);
            *expression = Expr::InList { expr, list: vec![text("public")], negated };
        }
        ControlFlow::Continue(())
    }
}

/// Whether a query was found to have no rows.
pub(super) fn is_pruned(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_false =
        |own: &Expr| matches!(own, Expr::Value(value) if value.value == Value::Boolean(false));
    select.selection.as_ref().is_some_and(is_false)
}

/// Makes the SELECTs without rows plain. Returns whether the whole is one.
fn prune(body: &mut SetExpr, is_empty: &dyn Fn(&str) -> bool) -> bool {
    match body {
        SetExpr::Select(select) => {
            let is_wild = |item: &SelectItem| {
                !matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            if !selects_nothing(select, is_empty) || select.projection.iter().any(is_wild) {
                return false;
            }
            name_columns(select);
            for item in &mut select.projection {
                let null = Expr::Value(Value::Null.into());
                let (own, alias) = match item {
                    SelectItem::UnnamedExpr(own) => (own.clone(), None),
                    SelectItem::ExprWithAlias { expr, alias } => {
                        (expr.clone(), Some(alias.clone()))
                    }
                    _ => continue,
                };
                let alias = alias.unwrap_or_else(|| Ident::with_quote('"', name_of(&own)));
                *item = SelectItem::ExprWithAlias { expr: cast(null, DataType::Text), alias };
            }
            select.from.clear();
            select.selection = Some(Expr::Value(Value::Boolean(false).into()));
            select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
            (select.having, select.distinct) = (None, None);
            true
        }
        SetExpr::SetOperation { left, right, .. } => {
            prune(left, is_empty);
            prune(right, is_empty);
            false
        }
        _ => false,
    }
}
