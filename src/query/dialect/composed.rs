//! A query over rows of a plan, composed of users' expressions: [`Composed`]. Its syntax tree is built from their
//! trees, so that they mean what was parsed and checked; their texts are not parsed again.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, OrderBy, OrderByExpr, OrderByKind, OrderByOptions,
    SelectItem, SetExpr,
};

use crate::dialect::expression::Expression;
use crate::dialect::filtered;
use crate::dialect::statements::query_of;
use crate::guard::complexity::WORDS_MAX;
use crate::kernel::error::QueryError;

/// The clauses of a query, without the rows in its FROM; see [`View::composed`](crate::kernel::view::View::composed).
#[derive(Clone, Debug, Default)]
pub struct Composed {
    /// SELECT; each with a name, unless it is a column and keeps its own.
    pub columns: Vec<(Expression, Option<String>)>,
    /// WHERE: all must be true of a row.
    pub conditions: Vec<Expression>,
    /// GROUP BY.
    pub groups: Vec<Expression>,
    /// HAVING: all must be true of a group.
    pub of_groups: Vec<Expression>,
    /// ORDER BY, each with whether it is descending. Nulls come last.
    pub orders: Vec<(Expression, bool)>,
}

impl Composed {
    /// The syntax tree, over the table of this name.
    ///
    /// # Errors
    ///
    /// The query is too long.
    pub(crate) fn statement(self, table: &str) -> Result<Statement, QueryError> {
        let Self { columns, conditions, groups, of_groups, orders } = self;
        let selected = columns.iter().map(|(own, _)| own);
        let others = [&conditions, &groups, &of_groups].into_iter().flatten();
        let all = selected.chain(others).chain(orders.iter().map(|(own, _)| own));
        let words = all.map(Expression::words).fold(0, usize::saturating_add);
        if words > WORDS_MAX {
            let why = format!(
                "the expressions of a query have at most {WORDS_MAX} words and operators together"
            );
            return Err(QueryError::Invalid(why));
        }
        let mut query = query_of(&format!("SELECT 1 FROM {}.{table}", filtered::SCHEMA))?;
        if let SetExpr::Select(select) = &mut *query.body {
            let item = |(own, name): (Expression, Option<String>)| match name {
                Some(name) => SelectItem::ExprWithAlias {
                    expr: operand(&own),
                    alias: Ident::with_quote('"', name),
                },
                None => SelectItem::UnnamedExpr(Expr::clone(own.tree())),
            };
            select.projection = columns.into_iter().map(item).collect();
            select.selection = all_of(&conditions);
            select.group_by =
                GroupByExpr::Expressions(groups.iter().map(operand).collect(), Vec::new());
            select.having = all_of(&of_groups);
        }
        let orders = orders.iter().map(|(own, is_descending)| OrderByExpr {
            expr: operand(own),
            options: OrderByOptions { asc: Some(!is_descending), nulls_first: Some(false) },
            with_fill: None,
        });
        let kind = OrderByKind::Expressions(orders.collect());
        query.order_by = Some(OrderBy { kind, interpolate: None });
        Ok(Statement::Statement(Box::new(query.into())))
    }
}

/// An expression in parentheses, as an operand of another one.
fn operand(own: &Expression) -> Expr {
    Expr::Nested(Box::new(Expr::clone(own.tree())))
}

/// The conjunction of conditions.
fn all_of(conditions: &[Expression]) -> Option<Expr> {
    conditions.iter().map(operand).reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    })
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::Composed;
    use crate::dialect::expression::Expression;
    use crate::guard::complexity::WORDS_MAX;

    /// Goal: an expression remains one operand, however its tree prints. Method: expressions that print as more or less
    /// than they are, in a query that they would change.
    #[tokio::test]
    async fn expressions_are_put_in_as_trees() {
        let context = SessionContext::new();
        for sql in ["CREATE SCHEMA filtered", "CREATE TABLE filtered.events AS SELECT 7 AS n"] {
            context.sql(sql).await.unwrap();
        }
        let state = context.state();
        for (text, expected) in [
            ("- -1", "1"),
            ("'it''s'", "it's"),
            (r"'a\'", r"a\"),
            ("'a'' OR 1=1 --'", "a' OR 1=1 --"),
            ("1 + 1", "2"),
            ("'$1'", "$1"),
        ] {
            let own = Expression::parse(text).unwrap();
            let n = Expression::parse("n").unwrap();
            let composed = Composed {
                columns: vec![(own.clone(), Some("a".into())), (own, Some("b".into())), (n, None)],
                ..Composed::default()
            };
            let statement = composed.statement("events").unwrap();
            let plan = state.statement_to_plan(statement).await.unwrap();
            let rows = context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
            let cell = |at: usize| array_value_to_string(rows[0].column(at), 0).unwrap();
            assert_eq!([cell(0), cell(1), cell(2)], [expected, expected, "7"], "{text}");
        }
    }

    #[test]
    fn expressions_of_a_query_are_bounded_together() {
        let own = Expression::parse(&vec!["event"; 100].join(" || ")).unwrap();
        let of = |count: usize| {
            let columns = vec![(own.clone(), None); count];
            Composed { columns, ..Composed::default() }.statement("events")
        };
        assert!(of(WORDS_MAX / 200 - 1).is_ok());
        assert!(of(WORDS_MAX / 200 + 1).is_err());
    }
}
