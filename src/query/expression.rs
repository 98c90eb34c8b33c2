//! One expression of HogQL about a row, such as what a step of a path is called, or a column of a list: [`Expression`]. It
//! is what SQL may say of a row of `events`, its person included, or of another table that it is asked of, and asks no
//! tables itself.

use std::ops::ControlFlow;

use datafusion::dataframe::DataFrame;
use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Function;
use datafusion::sql::sqlparser::ast::OrderByExpr;
use datafusion::sql::sqlparser::ast::visit_expressions;
use datafusion::sql::sqlparser::ast::visit_relations;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use datafusion::sql::sqlparser::tokenizer::Tokenizer;

use crate::query::asked::asked;
use crate::query::clickhouse;
use crate::query::complexity;
use crate::query::error::QueryError;
use crate::query::filtered;
use crate::query::sql_text::identifier;
use crate::query::sql_text::prints_itself;
use crate::query::view::View;

/// Longest text of an expression.
const TEXT_MAX_BYTES: usize = 8192;

/// Words and operators of an expression at most: it is parsed and printed by recursion, on the stack of whoever asks.
const WORDS_MAX: usize = 200;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    names_columns: bool,
    has_window: bool,
}

impl Expression {
    /// Reads the text of one expression.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: it is none, is too long, or asks a table.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        match Self::parse_named(text)? {
            (expression, None) => Ok(expression),
            _ => Err(refused("an expression has no name")),
        }
    }

    /// Reads the text of one expression that may have a name: `count() AS n`.
    ///
    /// # Errors
    ///
    /// See [`Expression::parse`].
    pub fn parse_named(text: &str) -> Result<(Self, Option<String>), QueryError> {
        let mut parser = parser(text)?;
        let parsed = parser.parse_expr_with_alias().map_err(|error| invalid(&error))?;
        let own = Self::of(&mut parser, &parsed.expr)?;
        Ok((own, parsed.alias.map(|alias| alias.value)))
    }

    /// Reads the expressions by which rows are ordered: `timestamp DESC, uuid`. Says of each whether the largest one comes
    /// first.
    ///
    /// # Errors
    ///
    /// See [`Expression::parse`].
    pub fn parse_orders(text: &str) -> Result<Vec<(Self, bool)>, QueryError> {
        let mut parser = parser(text)?;
        let parsed = parser.parse_comma_separated(Parser::parse_order_by_expr);
        let parsed = parsed.map_err(|error| invalid(&error))?;
        let order = |order: &OrderByExpr| {
            if order.with_fill.is_some() || order.options.nulls_first.is_some() {
                let why = "what rows are ordered by has ASC or DESC behind it, and no more";
                return Err(refused(why));
            }
            Ok((Self::of(&mut parser, &order.expr)?, order.options.asc == Some(false)))
        };
        parsed.iter().map(order).collect()
    }

    /// What a parser has read to its end.
    fn of(parser: &mut Parser<'_>, expression: &Expr) -> Result<Self, QueryError> {
        if parser.peek_token().token != Token::EOF {
            return Err(refused("there is more behind the expression"));
        }
        if visit_relations(expression, |_| ControlFlow::Break(())).is_break() {
            return Err(refused("an expression asks no tables"));
        }
        let (mut names_columns, mut has_window) = (false, false);
        let _ = visit_expressions(expression, |part| {
            match part {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => names_columns = true,
                Expr::Function(call) => has_window |= call.over.is_some(),
                _ => {}
            }
            ControlFlow::<()>::Continue(())
        });
        Ok(Self { text: expression.to_string(), names_columns, has_window })
    }

    /// The expression as it was understood.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it names columns; else it is the same for all rows.
    pub fn names_columns(&self) -> bool {
        self.names_columns
    }

    /// Whether it looks at other rows with OVER.
    pub fn has_window(&self) -> bool {
        self.has_window
    }

    /// Whether it is computed of several rows together.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: a function has other arguments than it takes.
    pub fn is_aggregate(&self, view: &View) -> Result<bool, QueryError> {
        let mut statements = DFParser::parse_sql(&format!("SELECT {}", self.text))?;
        let Some(mut statement) = statements.pop_front() else { return Ok(false) };
        clickhouse::rewrite(&mut statement, "UTC")?;
        let Some(query) = asked(&mut statement) else { return Ok(false) };
        let found = visit_expressions(&*query, |part| match part {
            Expr::Function(call) if call.over.is_none() && is_aggregate(call, view) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        Ok(found.is_break())
    }

    /// `events`, which have the columns of [`View::events`] and others, with what expressions are of each as further
    /// columns.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with the explanation of what is wrong with an expression.
    pub async fn add_all(
        view: &View,
        events: DataFrame,
        values: &[(&Self, Taken, &str)],
    ) -> Result<DataFrame, QueryError> {
        for (expression, ..) in values {
            if expression.has_window() || expression.is_aggregate(view)? {
                let text = &expression.text;
                let why =
                    format!("{text} is computed of several events, where one of each is asked for");
                return Err(refused(why));
            }
        }
        let fields = events.schema().fields().iter();
        let mut items: Vec<String> = fields.map(|field| identifier(field.name())).collect();
        for (expression, value, name) in values {
            let (text, kind, name) = (&expression.text, value.sql(), identifier(name));
            items.push(format!("CAST(({text}) AS {kind}) AS {name}"));
        }
        view.name_rows("events", events)?;
        view.sql(&format!("SELECT {} FROM {}.events", items.join(", "), filtered::SCHEMA)).await
    }

    /// What the expression, which is computed of several events together, is of `events` that have the same `keys`: rows
    /// with these and the number `name`.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with the explanation of what is wrong with the expression.
    pub async fn grouped(
        &self,
        view: &View,
        events: DataFrame,
        (keys, name): (&[String], &str),
    ) -> Result<DataFrame, QueryError> {
        if self.has_window() || !self.is_aggregate(view)? {
            let text = &self.text;
            let why =
                format!("{text} is of each event, where something like sum({text}) is asked for");
            return Err(refused(why));
        }
        view.name_rows("events", events)?;
        let keys: Vec<String> = keys.iter().map(|key| identifier(key)).collect();
        let (keys, text, schema) = (keys.join(", "), &self.text, filtered::SCHEMA);
        let number = Taken::Number.sql();
        view.sql(&format!(
            "SELECT {keys}, CAST(({text}) AS {number}) AS {} FROM {schema}.events GROUP BY {keys}",
            identifier(name)
        ))
        .await
    }
}

/// What an expression is taken as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A text.
    Text,
    /// A number.
    Number,
    /// True or false.
    Truth,
}

impl Taken {
    fn sql(self) -> &'static str {
        match self {
            Self::Text => "VARCHAR",
            Self::Number => "DOUBLE",
            Self::Truth => "BOOLEAN",
        }
    }
}

fn is_aggregate(call: &Function, view: &View) -> bool {
    let [name] = call.name.0.as_slice() else { return false };
    name.as_ident().is_some_and(|name| view.is_aggregate(&name.value.to_lowercase()))
}

fn refused(why: impl Into<String>) -> QueryError {
    QueryError::Invalid(why.into())
}

fn invalid(error: &dyn std::error::Error) -> QueryError {
    let text = error.to_string();
    let reason = text.strip_prefix("sql parser error: ").unwrap_or(&text);
    refused(format!("this is not a valid expression: {reason}"))
}

/// A parser of the text, in which a name with `$` behind a point needs no quotes, as in HogQL.
fn parser(text: &str) -> Result<Parser<'static>, QueryError> {
    if text.len() > TEXT_MAX_BYTES || complexity::words(text) > WORDS_MAX {
        return Err(refused(format!(
            "an expression has at most {WORDS_MAX} words and operators, and {TEXT_MAX_BYTES} bytes"
        )));
    }
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize();
    let mut tokens = tokens.map_err(|error| invalid(&error))?;
    if !tokens.iter().all(prints_itself) {
        let why = "a text or name in an expression has no quote behind a backslash, and no two quotes in a row";
        return Err(refused(why));
    }
    let mut is_behind_point = false;
    for token in &mut tokens {
        if let Token::Placeholder(name) = &*token
            && is_behind_point
        {
            *token = Token::make_word(name, Some('"'));
        }
        is_behind_point = *token == Token::Period;
    }
    Ok(Parser::new(&GenericDialect {}).with_tokens(tokens))
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
            let found = Expression::parse(text).ok().map(|own| own.text);
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("properties.$browser -- Browser", Some("properties.\"$browser\"")),
            ("person.properties.$initial_os", Some("person.properties.\"$initial_os\"")),
            ("properties.`a-b`", Some("properties.`a-b`")),
            ("properties.$a$b$", None),
        ] {
            let found = Expression::parse(text).ok().map(|own| own.text);
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        let chain = |count: usize| vec!["event"; count].join(" || ");
        Expression::parse(&chain(100)).unwrap();
        Expression::parse(&chain(101)).unwrap_err();
        Expression::parse(&format!("'{}'", "x".repeat(9000))).unwrap_err();
        Expression::parse(&format!("{}1{}", "(".repeat(4000), ")".repeat(4000))).unwrap_err();
    }

    #[test]
    fn expressions_have_names_and_orders() {
        for (text, expected) in [
            ("count() AS n", Some(("count()", Some("n"), false))),
            ("count() AS \"my n\" -- Name", Some(("count()", Some("my n"), false))),
            ("event", Some(("event", None, true))),
            ("now() - 1", Some(("now() - 1", None, false))),
            ("a AS b, c", None),
            ("a AS b FROM persons", None),
            ("a b", None),
        ] {
            let found = Expression::parse_named(text).ok();
            let found = found
                .as_ref()
                .map(|(own, name)| (own.text(), name.as_deref(), own.names_columns()));
            assert_eq!(found, expected, "{text}");
        }
        for (text, expected) in [
            ("timestamp", Some(vec![("timestamp", false)])),
            ("timestamp desc -- Time", Some(vec![("timestamp", true)])),
            ("count() DESC", Some(vec![("count()", true)])),
            ("properties.$os ASC", Some(vec![("properties.\"$os\"", false)])),
            ("n DESC, uuid", Some(vec![("n", true), ("uuid", false)])),
            ("timestamp DESC NULLS FIRST", None),
            ("timestamp DESC,", None),
            ("timestamp LIMIT 1", None),
            ("(SELECT 1)", Some(vec![("(SELECT 1)", false)])),
            ("event, (SELECT max(name) FROM event_definitions)", None),
        ] {
            let found = Expression::parse_orders(text).ok();
            let found = found.as_ref().map(|orders| {
                let order = |(own, is_descending): &'_ (Expression, bool)| {
                    (own.text().to_owned(), *is_descending)
                };
                orders.iter().map(order).collect::<Vec<_>>()
            });
            let expected = expected.map(|orders| {
                orders.into_iter().map(|(text, last)| (text.to_owned(), last)).collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{text}");
        }
        let windowed = |text: &str| Expression::parse(text).unwrap().has_window();
        assert_eq!((windowed("row_number() OVER ()"), windowed("count()")), (true, false));
    }
}
