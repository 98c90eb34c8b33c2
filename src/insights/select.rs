//! Lists of selected columns: what `select`, `where` and `orderBy` of a question say, and the SQL of them ([`Select`]).
//! What they say is parsed one by one, and put into the statement as syntax trees, so that none of it can be more than an
//! expression.

use crate::ProjectSettings;
use crate::node::{Node, NodeError};
use weir_query::dialect::composed::{Composed, Places};
use weir_query::dialect::expression::Expression;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// Most columns that are selected, and most conditions.
const EXPRESSIONS_MAX: usize = 100;

/// Most expressions by which rows are ordered.
const ORDERS_MAX: usize = 20;

/// Rows of a page, unless the question says otherwise (PostHog's figure).
const LIMIT: usize = 100;

/// Most rows of a page (PostHog's figure).
const LIMIT_MAX: usize = 50_000;

/// Most rows that are left out before a page.
const OFFSET_MAX: usize = 1_000_000_000;

/// What one kind of rows has besides expressions: cells that are made of several columns.
pub trait Special: Copy + PartialEq + std::fmt::Debug {
    /// The cell with this name.
    fn named(name: &str) -> Option<Self>;

    /// The columns that it is made of, as SQL.
    fn parts(self) -> &'static [&'static str];

    /// What rows are ordered by that are ordered by it, as SQL.
    fn order(self, owner: &ProjectSettings) -> String;

    /// What rows are ordered by if it comes first and nothing else is said: SQL, and whether the largest comes first.
    fn first_order(self, owner: &ProjectSettings) -> (String, bool) {
        (self.order(owner), false)
    }
}

/// What is selected of some rows.
#[derive(Clone, Debug)]
pub struct Select<S> {
    items: Vec<Item<S>>,
    conditions: Vec<Expression>,
    /// `None` for the usual order.
    orders: Option<Vec<(What<S>, bool)>>,
    /// What rows are ordered by unless they are told together or it is sent; `None` for what follows from the columns.
    usual: Option<(&'static str, bool)>,
    /// Most rows, and rows left out before.
    pub page: (usize, usize),
}

/// One column.
#[derive(Clone, Debug)]
struct Item<S> {
    /// What it is called in the answer.
    name: String,
    /// The name that it has behind AS.
    alias: Option<String>,
    what: What<S>,
}

#[derive(Clone, Debug, PartialEq)]
enum What<S> {
    Expression(Expression),
    Special(S),
}

/// The SQL of a list.
#[derive(Debug)]
pub struct Written<S> {
    /// It, without a limit.
    pub sql: Composed,
    /// The times of the rows that the conditions of rows leave over.
    pub times: Composed,
    /// The columns of the answer, and the columns of the SQL that each is made of.
    pub columns: Vec<(String, Option<S>, Vec<usize>)>,
    /// Whether the rows are single ones, the newest first.
    pub is_newest_first: bool,
}

impl<S: Special> Select<S> {
    /// Reads `select`, which is `usual` unless it is sent, `where`, `orderBy`, `limit` and `offset`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or has too much.
    pub fn parse(node: &Node<'_>, usual: &[&str]) -> Result<Self, NodeError> {
        let sent = texts(node, "select", EXPRESSIONS_MAX)?;
        let selected = if sent.is_empty() { usual.to_vec() } else { sent };
        let item = |text: &&str| Item::parse(text).map_err(|error| wrong(node, "select", &error));
        let condition =
            |text: &&str| Expression::parse(text).map_err(|error| wrong(node, "where", &error));
        let order = |text: &&str| Self::order(text).map_err(|error| wrong(node, "orderBy", &error));
        let orders = texts(node, "orderBy", ORDERS_MAX)?;
        let orders: Vec<Vec<_>> = orders.iter().map(order).collect::<Result<_, _>>()?;
        let orders: Vec<_> = orders.into_iter().flatten().collect();
        if orders.len() > ORDERS_MAX {
            return Err(
                node.refuse("orderBy", format!("Expected at most {ORDERS_MAX} expressions."))
            );
        }
        let limit = node.number("limit")?.filter(|limit| *limit > 0).unwrap_or(LIMIT);
        let offset = node.number("offset")?.unwrap_or(0);
        if offset > OFFSET_MAX {
            return Err(node.refuse("offset", format!("Expected at most {OFFSET_MAX}.")));
        }
        let items: Vec<Item<S>> = selected.iter().map(item).collect::<Result<_, _>>()?;
        let conditions = texts(node, "where", EXPRESSIONS_MAX)?;
        let conditions = conditions.iter().map(condition).collect::<Result<_, _>>()?;
        Ok(Self {
            items,
            conditions,
            orders: Some(orders).filter(|orders| !orders.is_empty()),
            usual: None,
            page: (limit.min(LIMIT_MAX), offset),
        })
    }

    /// The same, where single rows are ordered by this SQL unless a request says otherwise; with whether the largest comes
    /// first.
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
        // A comment may stand before the direction: `person_display_name -- Person DESC`.
        let is_descending = is_descending || text.trim_end().to_lowercase().ends_with(" desc");
        if let Some(special) = S::named(name) {
            return Ok(vec![(What::Special(special), is_descending)]);
        }
        let is_descending = is_descending && text.contains("--");
        let order =
            |(expression, is_said)| (What::Expression(expression), is_said || is_descending);
        Ok(Expression::parse_orders(text)?.into_iter().map(order).collect())
    }

    /// The SQL over rows that `from` names, where ties are ordered by the SQL of `ties`.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: a function has other arguments than it takes, or conditions of groups have none.
    pub fn written(
        &self,
        (view, owner): (&View, &ProjectSettings),
        from: &str,
        ties: &[&str],
    ) -> Result<Written<S>, QueryError> {
        let mut places = Places::default();
        let columns = self.columns(view, &mut places)?;
        let is_aggregated = columns.0.iter().any(|column| column.role == Role::Aggregate);
        let (of_rows, of_groups) = self.conditions_of(view, &mut places)?;
        if !of_groups.is_empty() && !is_aggregated {
            let why = "a condition in where has an aggregate, and select has none";
            return Err(QueryError::Invalid(why.to_owned()));
        }
        let orders = self.orders_of((&columns, &mut places), owner);
        let has_window = self.expressions().any(Expression::has_window);
        let is_newest_first = !is_aggregated
            && !has_window
            && orders
                .first()
                .is_some_and(|(order, is_descending)| *is_descending && order.text == "timestamp");
        let mut order: Vec<String> = orders
            .iter()
            .map(|(Order { sql, .. }, is_descending)| {
                format!("{sql} {} NULLS LAST", if *is_descending { "DESC" } else { "ASC" })
            })
            .collect();
        let groups = columns.0.iter().filter(|column| column.role == Role::Group);
        let groups: Vec<&Column> = groups.collect();
        match is_aggregated {
            true => order.extend(groups.iter().filter_map(|group| columns.alias_of(&group.text))),
            false => order.extend(ties.iter().map(|tie| (*tie).to_owned())),
        }
        let selected: Vec<String> = (0..)
            .zip(&columns.0)
            .map(|(at, column)| format!("{} AS {}", column.sql, Columns::alias(at)))
            .collect();
        let mut sql = format!("SELECT {} FROM {from}", selected.join(", "));
        let mut times = format!("SELECT timestamp FROM {from}");
        if !of_rows.is_empty() {
            let condition = format!(" WHERE {}", of_rows.join(" AND "));
            sql.push_str(&condition);
            times.push_str(&condition);
        }
        let mut add = |word: &str, parts: &[&str]| {
            if !parts.is_empty() {
                sql.push_str(&format!(" {word} {}", parts.join(", ")));
            }
        };
        if is_aggregated {
            let groups: Vec<&str> = groups.iter().map(|group| group.sql.as_str()).collect();
            add("GROUP BY", &groups);
        }
        let having = of_groups.join(" AND ");
        add("HAVING", Some(having.as_str()).filter(|having| !having.is_empty()).as_slice());
        add("ORDER BY", &order.iter().map(String::as_str).collect::<Vec<_>>());
        let columns = self.items.iter().map(|item| {
            let (special, at) = match &item.what {
                What::Expression(expression) => (None, vec![columns.at(expression.text())]),
                What::Special(special) => {
                    let parts = special.parts().iter();
                    (Some(*special), parts.map(|part| columns.at(part)).collect())
                }
            };
            (item.name.clone(), special, at)
        });
        Ok(Written {
            columns: columns.collect(),
            sql: Composed::new(sql, &places),
            times: Composed::new(times, &places),
            is_newest_first,
        })
    }

    /// The columns of the SQL.
    fn columns(&self, view: &View, places: &mut Places) -> Result<Columns, QueryError> {
        let mut columns = Columns::default();
        for item in &self.items {
            match &item.what {
                What::Expression(expression) => {
                    let role = match expression.is_aggregate(view)? {
                        true => Role::Aggregate,
                        false if expression.names_columns() => Role::Group,
                        false => Role::Constant,
                    };
                    columns.add(expression.text(), places.place(expression), role);
                }
                What::Special(special) => {
                    for part in special.parts() {
                        columns.add(part, (*part).to_owned(), Role::Group);
                    }
                }
            }
        }
        Ok(columns)
    }

    /// The conditions of rows, and those of groups.
    fn conditions_of(
        &self,
        view: &View,
        places: &mut Places,
    ) -> Result<(Vec<String>, Vec<String>), QueryError> {
        let (mut of_rows, mut of_groups) = (Vec::new(), Vec::new());
        for condition in &self.conditions {
            let is_of_groups = condition.is_aggregate(view)?;
            let conditions = if is_of_groups { &mut of_groups } else { &mut of_rows };
            conditions.push(places.place(condition));
        }
        Ok((of_rows, of_groups))
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

    /// What rows are ordered by, and whether the largest comes first: what is sent; else the number of rows, another
    /// aggregate, or the time, the largest first; else the first column.
    fn orders_of(
        &self,
        (columns, places): (&Columns, &mut Places),
        owner: &ProjectSettings,
    ) -> Vec<(Order, bool)> {
        if let Some(orders) = &self.orders {
            let order = |(what, is_descending): &(What<S>, bool)| {
                (self.order_of(what, (columns, &mut *places), owner), *is_descending)
            };
            return orders.iter().map(order).collect();
        }
        let aggregates = columns.0.iter().filter(|column| column.role == Role::Aggregate);
        let first = aggregates.clone().find(|column| column.text == "count()");
        let timed = columns.0.iter().find(|column| {
            self.items.iter().any(|item| item.is_time() && item.text() == Some(&column.text))
        });
        if let Some(column) = first.or_else(|| aggregates.clone().next()).or(timed) {
            return vec![(columns.order(&column.text, || column.sql.clone()), true)];
        }
        if let Some((sql, is_descending)) = self.usual {
            return vec![(Order::of(sql), is_descending)];
        }
        match self.items.first().map(|item| &item.what) {
            Some(What::Special(special)) => {
                let (sql, is_descending) = special.first_order(owner);
                vec![(Order::of(&sql), is_descending)]
            }
            Some(What::Expression(expression)) => {
                let place = || places.place(expression);
                vec![(columns.order(expression.text(), place), false)]
            }
            None => Vec::new(),
        }
    }

    fn order_of(
        &self,
        what: &What<S>,
        (columns, places): (&Columns, &mut Places),
        owner: &ProjectSettings,
    ) -> Order {
        let expression = match what {
            What::Special(special) => return Order::of(&special.order(owner)),
            What::Expression(expression) => expression,
        };
        let is_named = |item: &&Item<S>| item.alias.as_deref() == Some(expression.text());
        let named = self.items.iter().find(is_named).and_then(Item::text);
        columns.order(named.unwrap_or(expression.text()), || places.place(expression))
    }
}

/// What rows are ordered by: SQL, and the expression that it stands for.
#[derive(Debug)]
struct Order {
    sql: String,
    text: String,
}

impl Order {
    fn of(sql: &str) -> Self {
        Self { sql: sql.to_owned(), text: sql.to_owned() }
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

    /// Whether it is when something happened.
    fn is_time(&self) -> bool {
        matches!(self.text(), Some("timestamp" | "created_at"))
    }
}

/// The columns of the SQL, each once.
#[derive(Debug, Default)]
struct Columns(Vec<Column>);

#[derive(Debug)]
struct Column {
    /// The expression as it was sent.
    text: String,
    /// It as SQL.
    sql: String,
    role: Role,
}

/// What a column is where rows are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Aggregate,
    /// What rows are grouped by.
    Group,
    /// The same for all rows.
    Constant,
}

impl Columns {
    fn add(&mut self, text: &str, sql: String, role: Role) {
        if !self.0.iter().any(|column| column.text == text) {
            self.0.push(Column { text: text.to_owned(), sql, role });
        }
    }

    fn at(&self, text: &str) -> usize {
        self.0.iter().position(|column| column.text == text).unwrap_or_default()
    }

    fn alias(at: usize) -> String {
        format!("\"c{at}\"")
    }

    /// The name of the column that is this expression.
    fn alias_of(&self, text: &str) -> Option<String> {
        self.0.iter().position(|column| column.text == text).map(Self::alias)
    }

    /// The order by an expression: by the column that it is, else by the SQL of it.
    fn order(&self, text: &str, sql: impl FnOnce() -> String) -> Order {
        Order { sql: self.alias_of(text).unwrap_or_else(sql), text: text.to_owned() }
    }
}

/// A list of texts, or one of them.
fn texts<'n>(node: &Node<'n>, name: &str, most: usize) -> Result<Vec<&'n str>, NodeError> {
    if let Some(one) = node.value(name).and_then(|value| value.as_str()) {
        return Ok(Some(one).filter(|one| !one.is_empty()).into_iter().collect());
    }
    let list = node.list(name)?;
    if list.len() > most {
        return Err(node.refuse(name, format!("Expected at most {most} expressions.")));
    }
    let text = |value: &'n serde_json::Value| {
        value.as_str().ok_or_else(|| node.refuse(name, "Expected a list of expressions."))
    };
    list.iter().map(text).collect()
}

/// A text without the comment at its end, which says how a column is called on a page.
fn uncommented(text: &str) -> &str {
    text.split("--").next().unwrap_or_default().trim()
}

fn wrong(node: &Node<'_>, name: &str, error: &QueryError) -> NodeError {
    node.refuse(name, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Columns, Role, Select, What, uncommented};
    use crate::event_list::EventCell;
    use crate::node::Node;

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
        let node = Node::new(Some(&sent), "").unwrap();
        let select = Select::<EventCell>::parse(&node, &["uuid"]).unwrap();
        let names: Vec<&str> = select.items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["event -- Event", "event", "n", "*"]);
        assert_eq!(select.page, (100, 0));
        let mut columns = Columns::default();
        for text in ["event", "uuid", "event"] {
            columns.add(text, text.to_owned(), Role::Group);
        }
        assert_eq!((columns.0.len(), columns.at("uuid")), (2, 1));
        for (text, sql) in [("uuid", "\"c1\""), ("timestamp", "$1")] {
            let order = columns.order(text, || "$1".to_owned());
            assert_eq!((order.sql.as_str(), order.text.as_str()), (sql, text));
        }
        assert_eq!(uncommented(" person -- Person"), "person");
        let usual = Select::<EventCell>::parse(&Node::new(None, "").unwrap(), &["uuid"]).unwrap();
        assert_eq!(usual.items[0].name, "uuid");
    }
}
