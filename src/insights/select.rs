//! Lists of selected columns: parses `select`, `where` and `orderBy` of a request, and composes the SQL query
//! ([`Select`]). Each entry is parsed on its own, so that none can be more than an expression.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;

use crate::answered::Answered;
use crate::{InsightError, ProjectSettings};
use weir_api::node::{NodeError, Texts};
use weir_api::nodes::lists::ListQuery;
use weir_event::id::ProjectId;
use weir_query::dialect::composed::Composed;
use weir_query::dialect::expression::Expression;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;
use weir_query::output::lists;
use weir_query::output::lists::{Content, Layout};

/// Most selected columns, and most conditions.
const EXPRESSIONS_MAX: usize = 100;

/// Most sort expressions.
const ORDERS_MAX: usize = 20;

/// Default number of rows of a page (PostHog's figure).
const LIMIT: usize = 100;

/// Most rows of a page (PostHog's figure).
const LIMIT_MAX: usize = 50_000;

/// Largest offset of a page.
const OFFSET_MAX: usize = 1_000_000_000;

/// Columns that one kind of list has besides expressions, with cells computed from several columns of the query.
pub trait Special: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// How many of the requested rows no longer exist; `None` if the response has no such number.
    const MISSING: Option<usize>;

    /// The special column with this name.
    fn named(name: &str) -> Option<Self>;

    /// The columns of the query from which its cells are computed, as SQL.
    fn parts(self) -> &'static [&'static str];

    /// The sort expression of the column, as SQL.
    fn order(self, owner: &ProjectSettings) -> String;

    /// The sort expression if the column is the first one and the request has no order: SQL, and whether it is
    /// descending.
    fn first_order(self, owner: &ProjectSettings) -> (String, bool) {
        (self.order(owner), false)
    }
}

/// A parsed selection of columns, with conditions, order and page.
#[derive(Clone, Debug)]
pub struct Select<S> {
    items: Vec<Item<S>>,
    conditions: Vec<Expression>,
    /// The order of the request; `None` for the default.
    orders: Option<Vec<(What<S>, bool)>>,
    /// The default order of rows that are not aggregated, with whether it is descending; `None` for one derived from
    /// the columns.
    usual: Option<(&'static str, bool)>,
    /// Limit and offset.
    page: (usize, usize),
}

/// A column of the response.
#[derive(Clone, Debug)]
struct Item<S> {
    /// Its name in the response.
    name: String,
    /// Its alias, from `AS`.
    alias: Option<String>,
    what: What<S>,
}

#[derive(Clone, Debug, PartialEq)]
enum What<S> {
    Expression(Expression),
    Special(S),
}

/// A composed query.
#[derive(Debug)]
pub struct Written<S> {
    /// The query, without a limit.
    pub query: Composed,
    /// The column `timestamp` of the rows that meet the conditions on single rows.
    pub times: Composed,
    /// The columns of the response, each with the columns of the query from which it is computed.
    pub columns: Vec<Shown<S>>,
    /// Whether rows are neither aggregated nor windowed, and ordered by `timestamp`, newest first.
    pub is_newest_first: bool,
}

impl<S: Special> Select<S> {
    /// Parses the selection of a list, with the columns `usual` as the default.
    ///
    /// # Errors
    ///
    /// An expression is malformed, or there are too many entries.
    pub fn of(sent: &ListQuery, usual: &[&str]) -> Result<Self, NodeError> {
        let ListQuery { select, conditions, order_by, limit, offset, .. } = sent;
        let expression =
            |name: &'static str| move |error: QueryError| NodeError::new(name, error.to_string());
        let sent = bounded(select, "select", EXPRESSIONS_MAX)?;
        let selected = if sent.is_empty() { usual.to_vec() } else { sent };
        let item = |text: &&str| Item::parse(text).map_err(expression("select"));
        let condition = |text: &&str| Expression::parse(text).map_err(expression("where"));
        let order = |text: &&str| Self::order(text).map_err(expression("orderBy"));
        let orders = bounded(order_by, "orderBy", ORDERS_MAX)?;
        let orders: Vec<Vec<_>> = orders.iter().map(order).collect::<Result<_, _>>()?;
        let orders: Vec<_> = orders.into_iter().flatten().collect();
        if orders.len() > ORDERS_MAX {
            let detail = format!("Expected at most {ORDERS_MAX} expressions.");
            return Err(NodeError::new("orderBy", detail));
        }
        let limit = limit.filter(|limit| *limit > 0).unwrap_or(LIMIT);
        let offset = offset.unwrap_or(0);
        if offset > OFFSET_MAX {
            return Err(NodeError::new("offset", format!("Expected at most {OFFSET_MAX}.")));
        }
        let items: Vec<Item<S>> = selected.iter().map(item).collect::<Result<_, _>>()?;
        let conditions = bounded(conditions, "where", EXPRESSIONS_MAX)?;
        let conditions = conditions.iter().map(condition).collect::<Result<_, _>>()?;
        Ok(Self {
            items,
            conditions,
            orders: Some(orders).filter(|orders| !orders.is_empty()),
            usual: None,
            page: (limit.min(LIMIT_MAX), offset),
        })
    }

    /// Sets the default order of rows that are not aggregated: SQL, and whether it is descending.
    pub fn usually(self, order: (&'static str, bool)) -> Self {
        Self { usual: Some(order), ..self }
    }

    fn order(text: &str) -> Result<Vec<(What<S>, bool)>, QueryError> {
        let name = uncommented(text);
        let (name, is_descending) = match name.rsplit_once(' ') {
            Some((name, last)) if last.eq_ignore_ascii_case("desc") => (name.trim_end(), true),
            Some((name, last)) if last.eq_ignore_ascii_case("asc") => (name.trim_end(), false),
            _ => (name, false),
        };
        // A comment may be before the direction: `person_display_name -- Person DESC`.
        let is_descending = is_descending || text.trim_end().to_lowercase().ends_with(" desc");
        if let Some(special) = S::named(name) {
            return Ok(vec![(What::Special(special), is_descending)]);
        }
        let is_descending = is_descending && text.contains("--");
        let order =
            |(expression, is_said)| (What::Expression(expression), is_said || is_descending);
        Ok(Expression::parse_orders(text)?.into_iter().map(order).collect())
    }

    /// Composes the query. In rows that are not aggregated, ties are ordered by `ties`, each with whether it is
    /// descending.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: a function has wrong arguments, or a condition has an aggregate and `select` has
    /// none.
    pub async fn written(
        &self,
        engine: &Engine,
        (view, owner): (&Arc<View>, &ProjectSettings),
        ties: &'static [(&'static str, bool)],
    ) -> Result<Written<S>, QueryError> {
        let (own, view, owner) = (self.clone(), Arc::clone(view), owner.clone());
        engine.planned(async move { own.composed((&view, &owner), ties) }).await
    }

    /// Runs the query that `planning` plans and encodes the page; `made` returns the cells of special columns.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn answered(
        &self,
        engine: &Engine,
        project: ProjectId,
        (columns, made): (Vec<Shown<S>>, impl Fn(S, &[usize]) -> Content),
        planning: BoxFuture<'static, Result<DataFrame, QueryError>>,
    ) -> Result<Answered, InsightError> {
        let (limit, offset) = self.page(engine);
        let columns = columns.into_iter().map(|(name, cell, places)| lists::Shown {
            name,
            content: match cell {
                Some(cell) => made(cell, &places),
                None => Content::Column(places.first().copied().unwrap_or_default()),
            },
        });
        let (layout, asked) = Layout::page(columns.collect(), limit, engine.rows_max());
        let planning =
            async move { planning.await?.limit(offset, Some(asked)).map_err(QueryError::from) };
        let lists = engine.lists(project, planning, layout).await?;
        Ok(Answered::of_page(lists, (limit, offset), S::MISSING)?)
    }

    /// Limit and offset of the page.
    pub fn page(&self, engine: &Engine) -> (usize, usize) {
        let (limit, offset) = self.page;
        (limit.min(engine.rows_max()).max(1), offset)
    }

    fn composed(
        &self,
        (view, owner): (&View, &ProjectSettings),
        ties: &[(&str, bool)],
    ) -> Result<Written<S>, QueryError> {
        let (columns, shown) = self.columns(view)?;
        let is_aggregated = columns.0.iter().any(|(_, role)| *role == Role::Aggregate);
        let (mut conditions, mut of_groups) = (Vec::new(), Vec::new());
        for condition in &self.conditions {
            let is_of_groups = condition.is_aggregate(view)?;
            if is_of_groups { &mut of_groups } else { &mut conditions }.push(condition.clone());
        }
        if !of_groups.is_empty() && !is_aggregated {
            let why = "a condition in where has an aggregate, and select has none";
            return Err(QueryError::Invalid(why.to_owned()));
        }
        let orders = self.orders_of(&columns, owner)?;
        let is_newest_first = !is_aggregated
            && !self.expressions().any(Expression::has_window)
            && orders
                .first()
                .is_some_and(|(own, is_descending)| *is_descending && own.text() == "timestamp");
        let grouped = columns.0.iter().filter(|(_, role)| is_aggregated && *role == Role::Group);
        let groups: Vec<Expression> = grouped.map(|(own, _)| own.clone()).collect();
        let ties = ties.iter().filter(|_| !is_aggregated);
        let ties = ties.map(|(name, is_descending)| (Expression::column(name), *is_descending));
        let of_ties = groups.iter().map(|own| (own.clone(), false)).chain(ties);
        let orders = orders.into_iter().chain(of_ties);
        let orders = orders.map(|(own, is_descending)| (columns.named(own), is_descending));
        let times = Composed {
            columns: vec![(Expression::column("timestamp"), None)],
            conditions: conditions.clone(),
            ..Composed::default()
        };
        let orders = orders.collect();
        let columns =
            (0..).zip(columns.0).map(|(at, (own, _))| (own, Some(Columns::name(at)))).collect();
        let query = Composed { columns, conditions, groups, of_groups, orders };
        Ok(Written { query, times, columns: shown, is_newest_first })
    }

    /// The columns of the query, and those of the response.
    fn columns(&self, view: &View) -> Result<(Columns, Vec<Shown<S>>), QueryError> {
        let mut columns = Columns::default();
        let mut shown = Vec::new();
        for item in &self.items {
            let (special, places) = match &item.what {
                What::Expression(own) => {
                    let role = match own.is_aggregate(view)? {
                        true => Role::Aggregate,
                        false if own.names_columns() => Role::Group,
                        false => Role::Constant,
                    };
                    (None, vec![columns.add(own.clone(), role)])
                }
                What::Special(special) => {
                    let parts = special.parts().iter();
                    let add = |part: &&str| Ok(columns.add(Expression::own(part)?, Role::Group));
                    (Some(*special), parts.map(add).collect::<Result<_, QueryError>>()?)
                }
            };
            shown.push((item.name.clone(), special, places));
        }
        Ok((columns, shown))
    }

    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let items = self.items.iter().map(|item| &item.what);
        let orders = self.orders.iter().flatten().map(|(what, _)| what);
        let what = items.chain(orders).filter_map(|what| match what {
            What::Expression(expression) => Some(expression),
            What::Special(_) => None,
        });
        what.chain(&self.conditions)
    }

    /// The sort expressions, each with whether it is descending: those of the request; else the number of rows,
    /// another aggregate, or the time, descending; else the first column.
    fn orders_of(
        &self,
        columns: &Columns,
        owner: &ProjectSettings,
    ) -> Result<Vec<(Expression, bool)>, QueryError> {
        if let Some(orders) = &self.orders {
            let order = |(what, is_descending): &(What<S>, bool)| {
                Ok((self.order_of(what, owner)?, *is_descending))
            };
            return orders.iter().map(order).collect();
        }
        let aggregates = columns.0.iter().filter(|(_, role)| *role == Role::Aggregate);
        let first = aggregates.clone().find(|(own, _)| own.text() == "count()");
        let timed = columns.0.iter().find(|(own, _)| {
            self.items.iter().any(|item| item.is_time() && item.text() == Some(own.text()))
        });
        if let Some((own, _)) = first.or_else(|| aggregates.clone().next()).or(timed) {
            return Ok(vec![(own.clone(), true)]);
        }
        let (sql, is_descending) = match (self.usual, self.items.first().map(|item| &item.what)) {
            (Some((sql, is_descending)), _) => (sql.to_owned(), is_descending),
            (None, Some(What::Special(special))) => special.first_order(owner),
            (None, Some(What::Expression(own))) => return Ok(vec![(own.clone(), false)]),
            (None, None) => return Ok(Vec::new()),
        };
        Ok(vec![(Expression::own(&sql)?, is_descending)])
    }

    fn order_of(&self, what: &What<S>, owner: &ProjectSettings) -> Result<Expression, QueryError> {
        let own = match what {
            What::Special(special) => return Expression::own(&special.order(owner)),
            What::Expression(own) => own,
        };
        let named = self.items.iter().find_map(|item| match &item.what {
            What::Expression(named) if item.alias.as_deref() == Some(own.text()) => Some(named),
            _ => None,
        });
        Ok(named.unwrap_or(own).clone())
    }
}

impl<S: Special> Item<S> {
    fn parse(text: &str) -> Result<Self, QueryError> {
        if let Some(special) = S::named(uncommented(text)) {
            let (name, what) = (text.to_owned(), What::Special(special));
            return Ok(Self { name, alias: None, what });
        }
        let (expression, alias) = Expression::parse_named(text)?;
        let name = alias.clone().unwrap_or_else(|| text.to_owned());
        Ok(Self { name, alias, what: What::Expression(expression) })
    }

    fn text(&self) -> Option<&str> {
        match &self.what {
            What::Expression(expression) => Some(expression.text()),
            What::Special(_) => None,
        }
    }

    /// Whether it is the time of the row.
    fn is_time(&self) -> bool {
        matches!(self.text(), Some("timestamp" | "created_at"))
    }
}

/// A column of the response: its name, the special column if it is one, and the indexes of the columns of the query
/// from which it is computed.
type Shown<S> = (String, Option<S>, Vec<usize>);

/// The columns of the query, without duplicates.
#[derive(Debug, Default)]
struct Columns(Vec<(Expression, Role)>);

/// The role of a column in an aggregated query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Aggregate,
    /// Grouped by.
    Group,
    /// Constant in all rows.
    Constant,
}

impl Columns {
    /// The index of a column, which is added if it is new.
    fn add(&mut self, own: Expression, role: Role) -> usize {
        self.place(&own).unwrap_or_else(|| {
            self.0.push((own, role));
            self.0.len().saturating_sub(1)
        })
    }

    fn place(&self, own: &Expression) -> Option<usize> {
        self.0.iter().position(|(column, _)| column == own)
    }

    fn name(at: usize) -> String {
        format!("c{at}")
    }

    /// A reference to the column with this expression, if there is one; else the expression itself.
    fn named(&self, own: Expression) -> Expression {
        self.place(&own).map_or(own, |at| Expression::column(&Self::name(at)))
    }
}

/// Checks that there are at most `most` texts.
fn bounded<'t>(texts: &'t Texts, name: &str, most: usize) -> Result<Vec<&'t str>, NodeError> {
    let Texts(texts) = texts;
    if texts.len() > most {
        return Err(NodeError::new(name, format!("Expected at most {most} expressions.")));
    }
    Ok(texts.iter().map(String::as_str).collect())
}

/// A text without its trailing comment, which is the title of the column in clients.
fn uncommented(text: &str) -> &str {
    text.split("--").next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Columns, Role, Select, What, uncommented};
    use crate::event_list::EventCell;
    use weir_api::nodes::check::parse;
    use weir_api::nodes::lists::ListQuery;
    use weir_query::dialect::expression::Expression;

    #[test]
    fn orders_are_read_with_their_comments() {
        assert_eq!(Select::<EventCell>::order("event, uuid DESC").unwrap().len(), 2);
        for (text, expected) in [
            ("timestamp DESC", ("timestamp", true)),
            ("event", ("event", false)),
            ("event asc", ("event", false)),
            ("count() desc -- Number", ("count()", true)),
            ("person_display_name -- Person DESC", ("the name", true)),
            ("person_display_name -- Person ASC", ("the name", false)),
            ("person_display_name DESC", ("the name", true)),
            ("event -- Name DESC", ("event", true)),
        ] {
            let (what, is_descending) = Select::<EventCell>::order(text).unwrap().remove(0);
            let own = match &what {
                What::Expression(expression) => expression.text(),
                What::Special(EventCell::PersonName) => "the name",
                What::Special(_) => "another cell",
            };
            assert_eq!((own, is_descending), expected, "{text}");
        }
    }

    #[test]
    fn columns_are_there_once_and_have_the_names_that_were_sent() {
        let sent = json!({"select": ["event -- Event", "event", "count() AS n", "*"], "limit": 0});
        let sent = parse::<ListQuery>(&sent).unwrap();
        let select = Select::<EventCell>::of(&sent, &["uuid"]).unwrap();
        let names: Vec<&str> = select.items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["event -- Event", "event", "n", "*"]);
        assert_eq!(select.page, (100, 0));
        let mut columns = Columns::default();
        let own = |text: &str| Expression::parse(text).unwrap();
        let places = ["event", "uuid", "event"].map(|text| columns.add(own(text), Role::Group));
        assert_eq!((columns.0.len(), places), (2, [0, 1, 0]));
        for (text, named) in [("uuid", "\"c1\""), ("timestamp", "timestamp")] {
            assert_eq!(columns.named(own(text)).text(), named);
        }
        assert_eq!(uncommented(" person -- Person"), "person");
        let usual = Select::<EventCell>::of(&ListQuery::default(), &["uuid"]).unwrap();
        assert_eq!(usual.items[0].name, "uuid");
    }
}
