//! Substitution of arguments for the placeholders of a template: [`Parts`].

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Expr, Value, VisitorMut};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::dialect::statements::take;
use crate::dialect::walk::{each_expression, walk_mut};

/// The values of placeholders.
pub(super) struct Parts<'r> {
    arguments: Vec<Expr>,
    /// How often each argument is still to be inserted.
    uses: Vec<usize>,
    zone: &'r str,
}

impl<'r> Parts<'r> {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// It does not parse: a bug.
    pub(super) fn parsed(template: &str) -> Result<Expr> {
        let parsed = Parser::new(&GenericDialect {}).try_with_sql(template);
        let parsed = parsed.and_then(|mut parser| parser.parse_expr());
        parsed.map_err(|error| DataFusionError::Internal(error.to_string()))
    }

    /// Indexes of the arguments to which a template's placeholders refer.
    fn places(template: &Expr) -> Vec<usize> {
        let mut places = Vec::new();
        let _ = each_expression(template, |part| {
            places.extend(placeholder(part).and_then(place));
            ControlFlow::<()>::Continue(())
        });
        places
    }

    /// Number of arguments of a template.
    pub(super) fn width(template: &Expr) -> usize {
        Self::places(template).into_iter().map(|at| at + 1).max().unwrap_or(0)
    }

    /// The values for the placeholders of a template.
    pub(super) fn of(template: &Expr, arguments: Vec<Expr>, zone: &'r str) -> Self {
        let mut uses = vec![0; arguments.len()];
        for at in Self::places(template) {
            if let Some(uses) = uses.get_mut(at) {
                *uses += 1;
            }
        }
        Self { arguments, uses, zone }
    }

    /// Number of expression nodes in the copies of arguments.
    pub(super) fn copied(&self) -> usize {
        let parts = |argument: &Expr| {
            let mut parts = 0_usize;
            let _ = each_expression(argument, |_| {
                parts += 1;
                ControlFlow::<()>::Continue(())
            });
            parts
        };
        let copies = self.arguments.iter().zip(&self.uses).filter(|(_, uses)| **uses > 1);
        copies.fold(0, |sum: usize, (argument, uses)| {
            sum.saturating_add(parts(argument).saturating_mul(uses - 1))
        })
    }

    /// The template with arguments substituted for placeholders.
    ///
    /// # Errors
    ///
    /// It has a placeholder without an argument: a bug.
    pub(super) fn filled(mut self, mut template: Expr) -> Result<Expr> {
        match walk_mut(&mut template, &mut self) {
            ControlFlow::Break(missing) => {
                Err(DataFusionError::Internal(format!("{template} has {missing}")))
            }
            ControlFlow::Continue(()) => Ok(template),
        }
    }
}

/// The name of a placeholder.
fn placeholder(expression: &Expr) -> Option<&str> {
    let Expr::Value(value) = expression else { return None };
    match &value.value {
        Value::Placeholder(name) => Some(name),
        _ => None,
    }
}

/// Index of the argument to which a placeholder refers.
fn place(name: &str) -> Option<usize> {
    name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

impl VisitorMut for Parts<'_> {
    type Break = String;

    // Post-order, so that placeholders inside arguments are not replaced.
    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<String> {
        let Some(name) = placeholder(expression) else { return ControlFlow::Continue(()) };
        if name == "$zone" {
            *expression = Expr::Value(Value::SingleQuotedString(self.zone.to_owned()).into());
            return ControlFlow::Continue(());
        }
        let at = place(name);
        let argument =
            at.and_then(|at| Some((self.arguments.get_mut(at)?, self.uses.get_mut(at)?)));
        match argument {
            Some((argument, uses)) => {
                *uses = uses.saturating_sub(1);
                let argument = if *uses == 0 { take(argument) } else { argument.clone() };
                *expression = Expr::Nested(Box::new(argument));
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(name.to_owned()),
        }
    }
}
