//! Templates with arguments in the places of their placeholders: [`Parts`].

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Expr, Value, VisitorMut};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::dialect::asked::take;
use crate::dialect::walk::{each_expression, walk_mut};

/// What placeholders stand for.
pub(super) struct Parts<'r> {
    arguments: Vec<Expr>,
    /// How often each argument is still to be put somewhere.
    uses: Vec<usize>,
    zone: &'r str,
}

impl<'r> Parts<'r> {
    /// A template as a tree.
    ///
    /// # Errors
    ///
    /// It is none: a bug.
    pub(super) fn parsed(template: &str) -> Result<Expr> {
        let parsed = Parser::new(&GenericDialect {}).try_with_sql(template);
        let parsed = parsed.and_then(|mut parser| parser.parse_expr());
        parsed.map_err(|error| DataFusionError::Internal(error.to_string()))
    }

    /// The places of the arguments that stand in a template.
    fn places(template: &Expr) -> Vec<usize> {
        let mut places = Vec::new();
        let _ = each_expression(template, |part| {
            places.extend(placeholder(part).and_then(place));
            ControlFlow::<()>::Continue(())
        });
        places
    }

    /// How many arguments a template has.
    pub(super) fn width(template: &Expr) -> usize {
        Self::places(template).into_iter().map(|at| at + 1).max().unwrap_or(0)
    }

    /// What the placeholders of a template stand for.
    pub(super) fn of(template: &Expr, arguments: Vec<Expr>, zone: &'r str) -> Self {
        let mut uses = vec![0; arguments.len()];
        for at in Self::places(template) {
            if let Some(uses) = uses.get_mut(at) {
                *uses += 1;
            }
        }
        Self { arguments, uses, zone }
    }

    /// How many parts arguments have where they are copies.
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

    /// The template with arguments in the place of placeholders.
    ///
    /// # Errors
    ///
    /// It names others than there are: a bug.
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

/// The place of the argument that a placeholder stands for.
fn place(name: &str) -> Option<usize> {
    name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

impl VisitorMut for Parts<'_> {
    type Break = String;

    // After its parts, so that placeholders in arguments stay what they are.
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
