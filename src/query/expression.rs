//! One expression of HogQL about an event, such as what a step of a path is called: [`Expression`]. It is what SQL may
//! say of a row of `events`, its person included, and asks no other tables.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::MemorySchemaProvider;
use datafusion::catalog::SchemaProvider;
use datafusion::dataframe::DataFrame;
use datafusion::prelude::ident;
use datafusion::sql::parser::DFParserBuilder;
use datafusion::sql::sqlparser::ast::visit_relations;
use datafusion::sql::sqlparser::dialect::GenericDialect;

use crate::query::complexity;
use crate::query::error::QueryError;
use crate::query::filtered;
use crate::query::view::View;

/// Longest text of an expression.
const TEXT_MAX_BYTES: usize = 8192;

/// Words and operators of an expression at most: it is parsed and printed by recursion, on the stack of whoever asks.
const WORDS_MAX: usize = 200;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression(String);

impl Expression {
    /// Reads the text of one expression.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: it is none, is too long, or asks a table.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let refused = |why: String| Err(QueryError::Invalid(why));
        if text.len() > TEXT_MAX_BYTES || complexity::words(text) > WORDS_MAX {
            return refused(format!(
                "an expression has at most {WORDS_MAX} words and operators, and {TEXT_MAX_BYTES} bytes"
            ));
        }
        let mut parser = DFParserBuilder::new(text).with_dialect(&GenericDialect {}).build()?;
        let parsed = parser.parse_into_expr()?;
        if parsed.alias.is_some() {
            return refused("an expression has no name".to_owned());
        }
        if visit_relations(&parsed.expr, |_| ControlFlow::Break(())).is_break() {
            return refused("an expression about an event asks no tables".to_owned());
        }
        Ok(Self(parsed.expr.to_string()))
    }

    /// The columns `kept` of `events`, which are those of [`View::events`] and these, and beside them what the
    /// expression is of each as the text column `name`.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with the explanation of what is wrong with the expression.
    pub async fn add_to(
        &self,
        view: &View,
        events: DataFrame,
        (name, kept): (&str, &[&str]),
    ) -> Result<DataFrame, QueryError> {
        let all = view.table("events").await?;
        let columns = all.schema().fields().iter().map(|field| ident(field.name()));
        let columns = columns.chain(kept.iter().map(|name| ident(*name)));
        let events = events.select(columns.collect::<Vec<_>>())?;
        let schema = MemorySchemaProvider::new();
        schema.register_table("events".to_owned(), events.into_view())?;
        view.register(filtered::SCHEMA, Arc::new(schema))?;
        let kept: String = kept.iter().map(|name| format!("\"{name}\", ")).collect();
        let Self(expression) = self;
        let schema = filtered::SCHEMA;
        view.sql(&format!(
            "SELECT {kept}CAST(({expression}) AS VARCHAR) AS \"{name}\" FROM {schema}.events"
        ))
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::Expression;

    #[test]
    fn expressions_are_one_and_ask_no_tables() {
        for (text, expected) in [
            ("event", Some("event")),
            (" properties.plan || '/' || event ", Some("properties.plan || '/' || event")),
            (
                "concat(person.properties.tier, ': ', event)",
                Some("concat(person.properties.tier, ': ', event)"),
            ),
            ("if(event = 'a', 'b', event)", Some("if(event = 'a', 'b', event)")),
            ("event -- a comment", Some("event")),
            ("", None),
            ("event, event", None),
            ("event) FROM persons --", None),
            ("event AS other", None),
            ("event; SELECT 1", None),
            ("SELECT 1", None),
            ("(SELECT max(name) FROM event_definitions)", None),
            ("event IN (SELECT name FROM event_definitions)", None),
            ("EXISTS (SELECT 1 FROM persons)", None),
            ("'", None),
        ] {
            let found = Expression::parse(text).ok().map(|Expression(text)| text);
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        let chain = |count: usize| vec!["event"; count].join(" || ");
        Expression::parse(&chain(100)).unwrap();
        Expression::parse(&chain(101)).unwrap_err();
        Expression::parse(&format!("'{}'", "x".repeat(9000))).unwrap_err();
        Expression::parse(&format!("{}1{}", "(".repeat(4000), ")".repeat(4000))).unwrap_err();
    }
}
