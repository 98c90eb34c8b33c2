//! A single HogQL expression over a row, such as the name of a path's step, or a column of a list: [`Expression`]. It
//! may use whatever SQL can on a row of `events`, including its person, or of another given table, but cannot contain
//! subqueries that read tables.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, Expr, Function, Ident};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};

use crate::dialect::composed::Composed;
use crate::dialect::hogql::Hogql;
use crate::dialect::offsets::Offsets;
use crate::dialect::sql_text::identifier;
use crate::dialect::statements::cast;
use crate::dialect::walk::{each_expression, has_relation};
use crate::dialect::{clickhouse, dashed_names};
use crate::functions::calendar::Calendar;
use crate::guard::complexity;
use crate::kernel::error::QueryError;
use crate::kernel::view::View;

/// Maximum length of an expression.
const TEXT_MAX_BYTES: usize = 8192;

/// Maximum words and operators of an expression. They are counted before parsing, and limit the depth of the tree, so
/// that any thread may parse it; plans made of it are deeper, and are made on planner threads with enough stack.
pub(crate) const WORDS_MAX: usize = 200;

/// A parsed expression. Two with the same text are equal.
#[derive(Clone, Debug)]
pub struct Expression {
    text: Arc<str>,
    tree: Arc<Expr>,
    words: usize,
    names_columns: bool,
    has_window: bool,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl Expression {
    /// Parses a single expression.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: it is not an expression, is too long, or reads a table.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        match Self::parse_named(text)? {
            (expression, None) => Ok(expression),
            _ => Err(refused("an expression has no name")),
        }
    }

    /// Parses an expression that we generate, of any length.
    ///
    /// # Errors
    ///
    /// It is not an expression: a bug.
    pub fn own(text: &str) -> Result<Self, QueryError> {
        Reader::unbounded(text)?.expression()
    }

    /// A column of the rows.
    pub fn column(name: &str) -> Self {
        Self {
            text: identifier(name).into(),
            tree: Arc::new(Expr::Identifier(Ident::with_quote('"', name))),
            words: 1,
            names_columns: true,
            has_window: false,
        }
    }

    /// The expression cast to a type.
    fn taken(&self, taken: Taken) -> Self {
        let tree = cast(Expr::clone(&self.tree), taken.data_type());
        Self { tree: Arc::new(tree), ..self.clone() }
    }

    /// Parses a single expression with an optional alias: `count() AS n`.
    pub fn parse_named(text: &str) -> Result<(Self, Option<String>), QueryError> {
        let mut reader = Reader::of(text)?;
        let own = reader.expression()?;
        let name = match reader.parser.parse_keyword(Keyword::AS) {
            true => Some(reader.parser.parse_identifier().map_err(|error| invalid(&error))?.value),
            false => None,
        };
        reader.end()?;
        Ok((own, name))
    }

    /// Parses a list of ORDER BY expressions: `timestamp DESC, uuid`. Each is returned with whether it is descending.
    pub fn parse_orders(text: &str) -> Result<Vec<(Self, bool)>, QueryError> {
        let mut reader = Reader::of(text)?;
        let mut orders = Vec::new();
        loop {
            let own = reader.expression()?;
            let is_ascending = reader.parser.parse_keyword(Keyword::ASC);
            let is_descending = !is_ascending && reader.parser.parse_keyword(Keyword::DESC);
            if reader.parser.parse_keyword(Keyword::NULLS)
                || reader.parser.parse_keyword(Keyword::WITH)
            {
                let why = "what rows are ordered by has ASC or DESC behind it, and no more";
                return Err(refused(why));
            }
            orders.push((own, is_descending));
            if !reader.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        reader.end()?;
        Ok(orders)
    }

    /// The expression as it was sent, without comments.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its syntax tree.
    pub(crate) fn tree(&self) -> &Arc<Expr> {
        &self.tree
    }

    /// Number of its words and operators.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Whether it refers to columns; otherwise it is the same for all rows.
    pub fn names_columns(&self) -> bool {
        self.names_columns
    }

    /// Whether it has window functions with OVER.
    pub fn has_window(&self) -> bool {
        self.has_window
    }

    /// Whether it aggregates several rows.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: a function has invalid arguments.
    pub fn is_aggregate(&self, view: &View) -> Result<bool, QueryError> {
        let mut tree = Expr::clone(&self.tree);
        clickhouse::rewrite_expression(&mut tree, &Calendar::default())?;
        let found = each_expression(&tree, |part| match part {
            Expr::Function(call) if call.over.is_none() && is_aggregate(call, view) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        Ok(found.is_break())
    }

    /// Adds the values of expressions as columns to `events`, which have the columns of [`View::events`] and others.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with an explanation of what is wrong with an expression.
    pub async fn add_all(
        view: &View,
        events: DataFrame,
        values: &[(&Self, Taken, &str)],
    ) -> Result<DataFrame, QueryError> {
        let owned = |(own, taken, name): &(&Self, Taken, &str)| {
            (Self::clone(own), *taken, (*name).to_owned())
        };
        let values: Vec<(Self, Taken, String)> = values.iter().map(owned).collect();
        view.on_planner(move |view| async move {
            for (expression, ..) in &values {
                if expression.has_window() || expression.is_aggregate(&view)? {
                    let text = &expression.text;
                    let why = format!(
                        "{text} is computed of several events, where one of each is asked for"
                    );
                    return Err(refused(why));
                }
            }
            let fields = events.schema().fields().iter();
            let own = fields.map(|field| (Self::column(field.name()), None));
            let added = values.into_iter().map(|(own, taken, name)| (own.taken(taken), Some(name)));
            let columns = own.chain(added).collect();
            view.composed(("events", events), Composed { columns, ..Composed::default() }).await
        })
        .await
    }

    /// Evaluates the expression, which is an aggregate, over `events` grouped by `keys`: rows with the keys and the
    /// number `name`.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with an explanation of what is wrong with the expression.
    pub async fn grouped(
        &self,
        view: &View,
        events: DataFrame,
        keys: &[String],
        name: &str,
    ) -> Result<DataFrame, QueryError> {
        let (own, name) = (self.clone(), name.to_owned());
        let groups: Vec<Self> = keys.iter().map(|key| Self::column(key)).collect();
        view.on_planner(move |view| async move {
            if own.has_window() || !own.is_aggregate(&view)? {
                let text = &own.text;
                let why = format!(
                    "{text} is of each event, where something like sum({text}) is asked for"
                );
                return Err(refused(why));
            }
            let number = (own.taken(Taken::Number), Some(name));
            let keys = groups.iter().map(|key| (key.clone(), None));
            let columns = keys.chain([number]).collect();
            let composed = Composed { columns, groups, ..Composed::default() };
            view.composed(("events", events), composed).await
        })
        .await
    }
}

/// The type to which an expression is cast.
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
    fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Varchar(None),
            Self::Number => DataType::Double(ExactNumberInfo::None),
            Self::Truth => DataType::Boolean,
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

/// Parser of the expressions in a text.
struct Reader {
    parser: Parser<'static>,
    /// The text of each token as the parser takes it, with comments left out.
    texts: Vec<String>,
    counted: Vec<usize>,
}

impl Reader {
    fn of(text: &str) -> Result<Self, QueryError> {
        let too_long = || {
            refused(format!(
                "an expression has at most {WORDS_MAX} words and operators, and {TEXT_MAX_BYTES} bytes"
            ))
        };
        if text.len() > TEXT_MAX_BYTES {
            return Err(too_long());
        }
        let reader = Self::unbounded(text)?;
        let is_long = reader.counted.last().is_some_and(|words| *words > WORDS_MAX);
        if is_long { Err(too_long()) } else { Ok(reader) }
    }

    /// In the text, a name with `$` after a dot needs no quotes, as in HogQL.
    fn unbounded(text: &str) -> Result<Self, QueryError> {
        let tokens = Tokenizer::new(&Hogql, text).tokenize_with_location();
        let mut tokens = tokens.map_err(|error| invalid(&error))?;
        dashed_names::check(&tokens).map_err(|error| invalid(&error))?;
        let counted = complexity::counted(&tokens).collect();
        let mut offsets = Offsets::of(text);
        let texts =
            as_read(&mut tokens, |token| text.get(offsets.range(token.span)).unwrap_or_default());
        let parser = Parser::new(&Hogql).with_tokens_with_locations(tokens);
        Ok(Self { parser, texts, counted })
    }

    /// Parses the expression that begins here.
    fn expression(&mut self) -> Result<Expression, QueryError> {
        let begin = self.parser.index();
        let tree = self.parser.parse_expr().map_err(|error| invalid(&error))?;
        if has_relation(&tree) {
            return Err(refused("an expression asks no tables"));
        }
        let (mut names_columns, mut has_window) = (false, false);
        let _ = each_expression(&tree, |part| {
            match part {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => names_columns = true,
                Expr::Function(call) => has_window |= call.over.is_some(),
                _ => {}
            }
            ControlFlow::<()>::Continue(())
        });
        let tokens = begin..self.parser.index();
        let words = self.words(&tokens);
        let text = self.texts.get(tokens).unwrap_or_default().concat();
        Ok(Expression {
            text: text.trim().into(),
            tree: Arc::new(tree),
            words,
            names_columns,
            has_window,
        })
    }

    fn words(&self, tokens: &Range<usize>) -> usize {
        let until = |at: usize| {
            at.checked_sub(1).and_then(|at| self.counted.get(at)).copied().unwrap_or_default()
        };
        until(tokens.end).saturating_sub(until(tokens.start))
    }

    /// Checks that the text ends here.
    fn end(&self) -> Result<(), QueryError> {
        match self.parser.peek_token().token {
            Token::EOF => Ok(()),
            _ => Err(refused("there is more behind the expression")),
        }
    }
}

/// Replaces placeholder tokens that are names here by names, and returns the text of each token.
fn as_read<'t>(
    tokens: &mut [TokenWithSpan],
    mut text_of: impl FnMut(&TokenWithSpan) -> &'t str,
) -> Vec<String> {
    let mut texts = Vec::with_capacity(tokens.len());
    let mut is_behind_point = false;
    for own in tokens {
        let text = text_of(&*own);
        texts.push(match &own.token {
            Token::Placeholder(name) if is_behind_point => {
                let quoted = identifier(name);
                own.token = Token::make_word(name, Some('"'));
                quoted
            }
            Token::Whitespace(
                Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_),
            ) => " ".to_owned(),
            _ => text.to_owned(),
        });
        is_behind_point = own.token == Token::Period;
    }
    texts
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
            let found = Expression::parse(text).ok().map(|own| own.text().to_owned());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("properties.$browser -- Browser", Some("properties.\"$browser\"")),
            ("person.properties.$initial_os", Some("person.properties.\"$initial_os\"")),
            ("properties.`a-b`", Some("properties.`a-b`")),
            ("properties.$a$b$", None),
        ] {
            let found = Expression::parse(text).ok().map(|own| own.text().to_owned());
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
