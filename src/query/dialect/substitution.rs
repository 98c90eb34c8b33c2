//! Scope-aware substitution of expressions for the names that a query defines for them: [`Substitution`]. In
//! subqueries, columns of their tables take precedence over these names.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem,
    SetExpr, TableFactor, Value as SqlValue, VisitMut, VisitorMut,
};

use crate::dialect::relations::{Relations, is_same};
use crate::dialect::walk::{each_expression, walk_mut};
use crate::dialect::{array_join, statements};
use crate::guard::complexity;

/// Names and the expressions that replace them.
#[derive(Debug)]
pub(crate) struct Substitution<'t> {
    relations: Relations<'t>,
    named: Vec<(Ident, Expr, usize)>,
    copied: usize,
    /// Number of queries around the place, within the visited tree.
    depth: usize,
    /// In how many of them the names take precedence over columns.
    own_depth: usize,
    /// For each query or SELECT around the place, the names that are columns of its tables.
    hidden: Vec<Vec<Ident>>,
    /// The same outside of each subquery in a FROM, which cannot refer to other tables of that FROM.
    outside: Vec<Vec<Vec<Ident>>>,
    /// The parameters of each lambda around the place, which take precedence over the names.
    parameters: Vec<Vec<Ident>>,
}

impl<'t> Substitution<'t> {
    /// An empty substitution at a place with these relations; `copied` nodes of expressions were copied before.
    pub(crate) fn within(relations: Relations<'t>, copied: usize) -> Self {
        Self {
            relations,
            named: Vec::new(),
            copied,
            depth: 0,
            own_depth: 0,
            hidden: Vec::new(),
            outside: Vec::new(),
            parameters: Vec::new(),
        }
    }

    /// Adds a name.
    pub(crate) fn add(&mut self, name: Ident, expression: Expr) {
        let mut parts = 0;
        let _ = each_expression(&expression, |_| {
            parts += 1;
            ControlFlow::<()>::Continue(())
        });
        self.named.push((name, expression, parts));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Number of expression nodes that were copied.
    pub(crate) fn copied(&self) -> usize {
        self.copied
    }

    /// Replaces the names by their expressions.
    ///
    /// # Errors
    ///
    /// The copies become too long.
    pub(crate) fn put(&mut self, place: &mut impl VisitMut) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        statements::rewrite_part(place, self)
    }

    /// The same for the query that defines the names, in which they take precedence over columns.
    pub(crate) fn put_into_own(&mut self, query: &mut Query) -> Result<()> {
        self.own_depth = 1;
        let put = self.put(query);
        self.own_depth = 0;
        put
    }

    /// Whether a name refers to something else at the place.
    fn is_hidden(&self, name: &Ident) -> bool {
        let parameters = self.parameters.iter().flatten();
        parameters.chain(self.hidden.iter().flatten()).any(|own| is_same(own, name))
    }

    /// The names that are columns of a SELECT's tables, where columns take precedence.
    fn columns_of(&mut self, select: &Select) -> Vec<Ident> {
        if self.depth <= self.own_depth {
            return Vec::new();
        }
        let relations = self.relations.of(select);
        let names = self.named.iter().map(|(name, ..)| name);
        names.filter(|name| relations.iter().any(|own| own.has(name))).cloned().collect()
    }

    /// The same, and the names of elements of its ARRAY JOIN, at any position.
    fn hidden_in(&mut self, select: &Select) -> Vec<Ident> {
        let mut hidden = self.columns_of(select);
        let joins = || select.from.iter().flat_map(|from| &from.joins);
        let is_element = |name: &&Ident| {
            joins()
                .flat_map(|join| array_join::elements(&join.relation))
                .any(|own| is_same(own, name))
        };
        hidden.extend(self.named.iter().map(|(name, ..)| name).filter(is_element).cloned());
        hidden
    }

    /// Visits the arrays of an ARRAY JOIN, in which the names of its elements are not yet in scope.
    fn visit_arrays(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let around = self.hidden.pop();
        let columns = self.columns_of(select);
        self.hidden.push(columns);
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            if let Some(arrays) = array_join::arrays(&mut join.relation) {
                walk_mut(arrays, self)?;
            }
        }
        self.hidden.pop();
        self.hidden.extend(around);
        ControlFlow::Continue(())
    }

    fn of(&mut self, name: &Ident) -> Result<Option<Expr>> {
        if self.is_hidden(name) {
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

    /// The same for an item of GROUP BY or ORDER BY, where a whole number literal would be taken as the position of a
    /// column.
    fn put_key(&mut self, key: &mut Expr) -> Result<()> {
        let Expr::Identifier(name) = &*key else { return Ok(()) };
        let Some(own) = self.of(name)? else { return Ok(()) };
        *key = match is_number(&own) {
            true => {
                let zero = Expr::Value(SqlValue::Number("0".to_owned(), false).into());
                Expr::BinaryOp {
                    left: Box::new(own),
                    op: BinaryOperator::Plus,
                    right: Box::new(zero),
                }
            }
            false => own,
        };
        Ok(())
    }
}

fn is_number(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) => is_number(inner),
        Expr::Value(value) => matches!(value.value, SqlValue::Number(..)),
        _ => false,
    }
}

impl VisitorMut for Substitution<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.enter(query);
        self.depth += 1;
        let hidden = match &*query.body {
            SetExpr::Select(select) => self.hidden_in(select),
            _ => Vec::new(),
        };
        self.hidden.push(hidden);
        if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &mut query.order_by {
            for key in keys {
                if let Err(error) = self.put_key(&mut key.expr) {
                    return ControlFlow::Break(error);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.relations.leave();
        self.depth = self.depth.saturating_sub(1);
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<DataFusionError> {
        if matches!(factor, TableFactor::Derived { lateral: false, .. }) {
            self.outside.push(std::mem::take(&mut self.hidden));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(
        &mut self,
        factor: &mut TableFactor,
    ) -> ControlFlow<DataFusionError> {
        if matches!(factor, TableFactor::Derived { lateral: false, .. }) {
            self.hidden = self.outside.pop().unwrap_or_default();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<DataFusionError> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        self.visit_arrays(select)?;
        let hidden = self.hidden_in(select);
        self.hidden.push(hidden);
        // A column keeps its name.
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
                && self.named.iter().any(|(own, ..)| is_same(own, name))
                && !self.is_hidden(name)
            {
                let (expr, alias) = (Expr::Identifier(name.clone()), name.clone());
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            for key in keys {
                if let Err(error) = self.put_key(key) {
                    return ControlFlow::Break(error);
                }
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
