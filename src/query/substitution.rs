//! Expressions in the place of names that a query has for them: [`Substitution`].

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::ast::Select;
use datafusion::sql::sqlparser::ast::SelectItem;
use datafusion::sql::sqlparser::ast::VisitMut;
use datafusion::sql::sqlparser::ast::VisitorMut;
use datafusion::sql::sqlparser::ast::visit_expressions;

use crate::query::complexity;

/// Names and what they stand for.
#[derive(Debug)]
pub(super) struct Substitution {
    named: Vec<(Ident, Expr, usize)>,
    copied: usize,
    /// The parameters of each lambda around the place, which come before the names of the query.
    parameters: Vec<Vec<Ident>>,
}

/// Whether two names are the same: without quotes their case does not matter.
pub(super) fn is_same(own: &Ident, other: &Ident) -> bool {
    match own.quote_style.or(other.quote_style) {
        Some(_) => own.value == other.value,
        None => own.value.eq_ignore_ascii_case(&other.value),
    }
}

impl Substitution {
    /// Nothing yet, where so many parts of expressions were copied before.
    pub(super) fn new(copied: usize) -> Self {
        Self { named: Vec::new(), copied, parameters: Vec::new() }
    }

    /// Adds a name.
    pub(super) fn add(&mut self, name: Ident, expression: Expr) {
        let mut parts = 0;
        let _ = visit_expressions(&expression, |_| {
            parts += 1;
            ControlFlow::<()>::Continue(())
        });
        self.named.push((name, expression, parts));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Parts of expressions that were copied.
    pub(super) fn copied(&self) -> usize {
        self.copied
    }

    /// Puts the expressions where their names stand.
    ///
    /// # Errors
    ///
    /// What is copied is too long.
    pub(super) fn put(&mut self, place: &mut impl VisitMut) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        match VisitMut::visit(place, self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn of(&mut self, name: &Ident) -> Result<Option<Expr>> {
        if self.parameters.iter().flatten().any(|own| is_same(own, name)) {
            return Ok(None);
        }
        let named = self.named.iter().find(|(own, ..)| is_same(own, name));
        let Some((_, expression, parts)) = named else { return Ok(None) };
        self.copied = self.copied.saturating_add(*parts);
        if self.copied > complexity::WORDS_MAX {
            let why = format!("what {name} stands for is too long to be put in its places");
            return Err(DataFusionError::Plan(why));
        }
        Ok(Some(Expr::Nested(Box::new(expression.clone()))))
    }
}

impl VisitorMut for Substitution {
    type Break = DataFusionError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        // A column keeps its name.
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
                && self.named.iter().any(|(own, ..)| is_same(own, name))
            {
                let (expr, alias) = (Expr::Identifier(name.clone()), name.clone());
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        if let Expr::Lambda(lambda) = expression {
            let parameters = lambda.params.iter().map(|own| own.name.clone());
            self.parameters.push(parameters.collect());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        if let Expr::Lambda(_) = expression {
            self.parameters.pop();
        }
        let Expr::Identifier(name) = expression else { return ControlFlow::Continue(()) };
        match self.of(name) {
            Err(error) => ControlFlow::Break(error),
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(own)) => {
                *expression = own;
                ControlFlow::Continue(())
            }
        }
    }
}
