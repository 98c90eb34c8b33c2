//! SQL of ours around expressions of users: [`Composed`]. The syntax trees of the expressions are put into that of the
//! statement, so that they mean what was read and checked; their texts are not parsed again.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Value, VisitorMut};

use crate::dialect::asked::asked;
use crate::dialect::expression::Expression;
use crate::dialect::walk::walk_mut;
use crate::guard::complexity;
use crate::guard::complexity::WORDS_MAX;
use crate::kernel::error::QueryError;

/// A statement with places for expressions.
#[derive(Clone, Debug, Default)]
pub struct Composed {
    /// SQL of ours, in which `$1` stands for the first expression.
    template: String,
    expressions: Vec<Expression>,
}

impl Composed {
    /// The statement with this text, where [`Places`] has the expressions that stand in it.
    pub fn new(template: String, places: &Places) -> Self {
        Self { template, expressions: places.0.clone() }
    }

    /// The same with more SQL behind it.
    #[must_use]
    pub fn followed_by(mut self, sql: &str) -> Self {
        self.template.push_str(sql);
        self
    }

    /// The syntax tree.
    ///
    /// # Errors
    ///
    /// The statement is too long, or no statement: a bug.
    pub(crate) fn statement(&self, state: &SessionState) -> Result<Statement, QueryError> {
        let dialect = state.config_options().sql_parser.dialect;
        let mut statement = state.sql_to_statement(&self.template, &dialect)?;
        let words = complexity::words(&self.template);
        let mut filling = Filling { expressions: &self.expressions, words };
        let Some(query) = asked(&mut statement) else { return Ok(statement) };
        match walk_mut(query, &mut filling) {
            ControlFlow::Continue(()) => Ok(statement),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

/// The expressions of a statement that is being written, each with its place.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Expression>);

impl Places {
    /// What stands for an expression, as an operand.
    pub fn place(&mut self, expression: &Expression) -> String {
        let known = self.0.iter().position(|own| own == expression);
        let at = known.unwrap_or_else(|| {
            self.0.push(expression.clone());
            self.0.len().saturating_sub(1)
        });
        format!("${}", at.saturating_add(1))
    }
}

struct Filling<'c> {
    expressions: &'c [Expression],
    words: usize,
}

impl VisitorMut for Filling<'_> {
    type Break = QueryError;

    // After its parts: placeholders in expressions stay what they are.
    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<QueryError> {
        let Expr::Value(value) = expression else { return ControlFlow::Continue(()) };
        let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        let at = name.strip_prefix('$').and_then(|at| at.parse::<usize>().ok()?.checked_sub(1));
        let Some(own) = at.and_then(|at| self.expressions.get(at)) else {
            let why = format!("nothing stands for {name}");
            return ControlFlow::Break(DataFusionError::Internal(why).into());
        };
        self.words = self.words.saturating_add(own.words());
        if self.words > WORDS_MAX {
            let why = format!(
                "the expressions of a query have at most {WORDS_MAX} words and operators together"
            );
            return ControlFlow::Break(QueryError::Invalid(why));
        }
        *expression = Expr::Nested(Box::new(Expr::clone(own.tree())));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::{Composed, Places};
    use crate::dialect::expression::Expression;
    use crate::guard::complexity::WORDS_MAX;

    /// Goal: an expression stays one, however its tree prints. Method: expressions that print as more or less than they
    /// are, in a statement that they would change.
    #[tokio::test]
    async fn expressions_are_put_in_as_trees() {
        let context = SessionContext::new();
        let state = context.state();
        for (text, expected) in [
            ("- -1", "1"),
            ("'it''s'", "it's"),
            (r"'a\'", r"a\"),
            ("'a'' OR 1=1 --'", "a' OR 1=1 --"),
            ("1 + 1", "2"),
            ("'$1'", "$1"),
        ] {
            let mut places = Places::default();
            let own = Expression::parse(text).unwrap();
            let template =
                format!("SELECT CAST({0} AS VARCHAR) AS a, {0} AS b, 7", places.place(&own));
            let composed = Composed::new(template, &places).followed_by(" LIMIT 1");
            let statement = composed.statement(&state).unwrap();
            let plan = state.statement_to_plan(statement).await.unwrap();
            let rows = context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
            let cell = arrow::util::display::array_value_to_string(rows[0].column(0), 0).unwrap();
            assert_eq!((cell.as_str(), rows[0].num_columns()), (expected, 3), "{text}");
        }
    }

    #[test]
    fn expressions_of_a_statement_are_bounded_together() {
        let state = SessionContext::new().state();
        let own = Expression::parse(&vec!["event"; 100].join(" || ")).unwrap();
        let of = |count: usize| {
            let mut places = Places::default();
            let items: Vec<String> = (0..count).map(|_| places.place(&own)).collect();
            Composed::new(format!("SELECT {}", items.join(", ")), &places).statement(&state)
        };
        assert!(of(WORDS_MAX / 200 - 1).is_ok());
        assert!(of(WORDS_MAX / 200 + 1).is_err());
    }
}
