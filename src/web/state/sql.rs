//! SQL equivalent of an insight: [`of`] for the SQL page, [`of_files`] for DuckDB over the files. Where no short SQL
//! gives the same numbers, there is a reason instead.

use crate::parts::literal;
use crate::state::filters::Filter;
use crate::state::insight::{Options, Question};
use crate::state::series::{Event, LETTERS, Series};

/// The resolved time range, as of when the query ran.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// The first moment (RFC 3339).
    pub from: String,
    /// The last moment.
    pub to: String,
    /// The time zone in which days begin.
    pub zone: String,
    /// Whether weeks begin on Monday.
    pub is_monday_first: bool,
}

/// Why there is no SQL.
pub type Reason = &'static str;

const OF_STEPS: Reason =
    "No short SQL query returns the same: it depends on the order of each person's events.";
const OF_RETURNS: Reason =
    "No short SQL query returns the same: it depends on each person's first event.";
const OF_OPTIONS: Reason = "No short SQL query returns the same with these options.";
const OF_FILTERS: Reason = "No short SQL query returns the same with these filters.";
/// Where persons are counted.
pub const OF_PERSONS: Reason =
    "Persons are merged after their events were stored, so the files alone are not sufficient.";

/// For a saved query that no address of a page can represent.
pub const OF_SAVED: Reason =
    "No short SQL query returns the same: the query has options that this page cannot show.";
/// For lists that the server joins from persons, groups and settings.
pub const OF_LISTS: Reason = "The files do not have this list: it is in the settings of the server, or changes with each merge of persons.";

/// For SQL that the user wrote.
pub const OF_SQL: Reason =
    "DuckDB has other names for properties and persons; Settings shows where the files are.";

/// Aggregations that SQL has a function for.
const OF_NUMBERS: [&str; 4] = ["sum", "avg", "min", "max"];

#[derive(Clone, Copy, Debug)]
enum SqlTarget<'a> {
    /// The page of SQL.
    Server,
    /// DuckDB, on the table of events at a path, for one project.
    Files(&'a str, i64),
}

/// The SQL that gives the numbers of a query: rows of the interval, if there are any, the series and the value; values
/// of 0 have no row.
///
/// # Errors
///
/// The reason why there is none.
pub fn of(question: &Question, span: &Span) -> Result<String, Reason> {
    Writer { question, span, place: SqlTarget::Server }.text()
}

/// The same for DuckDB: `table` is the directory of the events. Files contain flushed events only, and persons as of
/// ingestion, so there is no SQL where persons are counted.
///
/// # Errors
///
/// The reason why there is none.
pub fn of_files(
    question: &Question,
    span: &Span,
    (table, project): (&str, i64),
) -> Result<String, Reason> {
    Writer { question, span, place: SqlTarget::Files(table, project) }.text()
}

/// `FROM` and `WHERE` for the events of a series.
///
/// # Errors
///
/// The reason why no short SQL selects them.
pub fn source(question: &Question, series: &Series, span: &Span) -> Result<String, Reason> {
    Writer { question, span, place: SqlTarget::Server }.source(series)
}

struct Writer<'a> {
    question: &'a Question,
    span: &'a Span,
    place: SqlTarget<'a>,
}

impl Writer<'_> {
    fn text(&self) -> Result<String, Reason> {
        if self.question.is_without_tests || self.question.group.is_some() {
            return Err(OF_OPTIONS);
        }
        match &self.question.options {
            Options::Trends { breakdown, compare, shown, formulas, smoothing } => {
                let is_more = compare.is_some() || !formulas.is_empty() || smoothing.is_some();
                if is_more || *shown == "cumulative" || breakdown.keys.len() > 1 {
                    return Err(OF_OPTIONS);
                }
                let split = match breakdown.keys.first() {
                    Some((owner, key)) => Some(self.value(owner, key)?),
                    None => None,
                };
                let is_total =
                    matches!(*shown, "number" | "totals" | "pie" | "countries" | "table");
                self.trends(split.as_deref(), is_total)
            }
            Options::Stickiness { compare, interval_count, is_cumulative, criteria } => {
                let is_more = compare.is_some() || *is_cumulative || criteria.is_some();
                if is_more || interval_count.is_some_and(|count| count != 1) {
                    return Err(OF_OPTIONS);
                }
                self.stickiness()
            }
            Options::Funnel { .. } | Options::Paths { .. } => Err(OF_STEPS),
            Options::Retention { .. } | Options::Lifecycle { .. } => Err(OF_RETURNS),
        }
    }

    fn trends(&self, split: Option<&str>, is_total: bool) -> Result<String, Reason> {
        let bucket = if is_total { None } else { Some(self.bucket()) };
        let mut selects = Vec::new();
        for (series, letter) in self.question.series.iter().zip(LETTERS) {
            let value = self.aggregate(series)?;
            let mut columns = Vec::new();
            if self.question.series.len() > 1 {
                columns.push(format!("{} AS series", literal(&letter.to_uppercase())));
            }
            columns.extend(bucket.as_ref().map(|bucket| format!("{bucket} AS bucket")));
            columns.extend(split.map(|split| format!("nullif({split}, '') AS split")));
            columns.push(format!("{value} AS value"));
            // The name of one of several series is a constant, which needs no `GROUP BY`.
            let groups: Vec<&str> = [bucket.as_ref().map(|_| "bucket"), split.map(|_| "split")]
                .into_iter()
                .flatten()
                .collect();
            let grouped = match groups.is_empty() {
                true => String::new(),
                false => format!("\nGROUP BY {}", groups.join(", ")),
            };
            let (columns, source) = (columns.join(", "), self.source(series)?);
            selects.push(format!("SELECT {columns}\n{source}{grouped}"));
        }
        let order: Vec<&str> = [
            (self.question.series.len() > 1).then_some("series"),
            bucket.as_ref().map(|_| "bucket"),
            split.map(|_| "value DESC"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let ordered = match order.is_empty() {
            true => String::new(),
            false => format!("\nORDER BY {}", order.join(", ")),
        };
        Ok(selects.join("\nUNION ALL\n") + &ordered)
    }

    fn stickiness(&self) -> Result<String, Reason> {
        let [series] = self.question.series.as_slice() else { return Err(OF_OPTIONS) };
        if matches!(self.place, SqlTarget::Files(..)) {
            return Err(OF_PERSONS);
        }
        if !["total", "dau"].contains(&series.math) {
            return Err(OF_OPTIONS);
        }
        let (bucket, source) = (self.bucket(), self.source(series)?);
        Ok(format!(
            "SELECT intervals, count(*) AS value FROM (\n\
             SELECT person_id, count(DISTINCT {bucket}) AS intervals\n{source}\nGROUP BY person_id\n\
             ) AS persons\nGROUP BY intervals\nORDER BY intervals"
        ))
    }

    fn aggregate(&self, series: &Series) -> Result<String, Reason> {
        match (series.math, &series.math_property, self.place) {
            ("total", _, _) => Ok("count(*)".to_owned()),
            ("dau", _, SqlTarget::Server) => Ok("count(DISTINCT person_id)".to_owned()),
            ("dau", _, SqlTarget::Files(..)) => Err(OF_PERSONS),
            (math, Some(key), _) if OF_NUMBERS.contains(&math) => {
                Ok(format!("{math}({})", self.number(&self.whole(key)?)))
            }
            _ => Err(OF_OPTIONS),
        }
    }

    /// `FROM` and `WHERE` for a series.
    fn source(&self, series: &Series) -> Result<String, Reason> {
        let mut conditions = Vec::new();
        let table = match self.place {
            SqlTarget::Server => "events".to_owned(),
            SqlTarget::Files(table, project) => {
                conditions.push(format!("project_id = {project}"));
                format!("delta_scan({})", literal(table))
            }
        };
        let (from, to) = (literal(&self.span.from), literal(&self.span.to));
        conditions.push(format!("timestamp BETWEEN {from} AND {to}"));
        match &series.event {
            Event::All => {}
            Event::Named(name) => conditions.push(format!("event = {}", literal(name))),
            Event::Action(_) => return Err(OF_FILTERS),
        }
        for filter in self.question.filters.iter().chain(&series.filters) {
            conditions.push(self.condition(filter)?);
        }
        Ok(format!("FROM {table}\nWHERE {}", conditions.join("\n  AND ")))
    }

    fn condition(&self, filter: &Filter) -> Result<String, Reason> {
        let value = match filter.owner {
            "event" => self.whole(&filter.key)?,
            owner => self.value(owner, &filter.key)?,
        };
        let lower = lowered(&filter.values).ok_or(OF_FILTERS)?;
        let first = lower.first().cloned().unwrap_or_default();
        let not = |condition: String| format!("NOT {condition}");
        let is_one_of = one_of(&value, &lower);
        let contains = format!("coalesce(strpos(lower({value}), {first}) > 0, false)");
        let compared = |sign: &str| match filter.values.as_slice() {
            [one] if one.parse::<f64>().is_ok_and(f64::is_finite) => {
                Ok(format!("coalesce({} {sign} {one}, false)", self.number(&value)))
            }
            _ => Err(OF_FILTERS),
        };
        match (filter.operator, lower.len()) {
            ("exact", _) => Ok(is_one_of),
            ("is_not", _) => Ok(not(is_one_of)),
            ("icontains", 1) => Ok(contains),
            ("not_icontains", 1) => Ok(not(contains)),
            ("gt", _) => compared(">"),
            ("gte", _) => compared(">="),
            ("lt", _) => compared("<"),
            ("lte", _) => compared("<="),
            _ => Err(OF_FILTERS),
        }
    }

    /// A property of an event as text, whatever its type.
    fn whole(&self, key: &str) -> Result<String, Reason> {
        match self.place {
            SqlTarget::Server => Ok(path_in_server(key)),
            SqlTarget::Files(..) => in_file(key),
        }
    }

    /// A property as text, in the form by which results are split.
    fn value(&self, owner: &str, key: &str) -> Result<String, Reason> {
        match (owner, self.place) {
            ("event", SqlTarget::Server) => Ok(format!("properties[{}]", literal(key))),
            ("event", SqlTarget::Files(..)) => in_file(key),
            ("person", SqlTarget::Server) => Ok(format!("person.properties[{}]", literal(key))),
            ("person", SqlTarget::Files(..)) => Err(OF_PERSONS),
            _ => Err(OF_FILTERS),
        }
    }

    fn number(&self, text: &str) -> String {
        format!("try_cast({text} AS double)")
    }

    /// The start of an event's interval, in the zone of the project.
    fn bucket(&self) -> String {
        let zone = literal(&self.span.zone);
        let local = format!("timestamp AT TIME ZONE {zone}");
        match self.question.interval.unwrap_or("day") {
            // Weeks of `date_trunc` begin on Monday.
            "week" if !self.span.is_monday_first => {
                format!("date_trunc('week', {local} + INTERVAL '1 day') - INTERVAL '1 day'")
            }
            interval => format!("date_trunc('{interval}', {local})"),
        }
    }
}

fn in_file(key: &str) -> Result<String, Reason> {
    path_in_file(key).ok_or(OF_FILTERS)
}

/// Condition that a property equals a text, as filters compare it; `None` where no short SQL compares in the same way.
/// `property` is an SQL expression for the property's text.
pub fn exactly(property: &str, text: &str) -> Option<String> {
    Some(one_of(property, &lowered(&[text.to_owned()])?))
}

fn one_of(property: &str, lower: &[String]) -> String {
    format!("coalesce(lower({property}) IN ({}), false)", lower.join(", "))
}

/// Values of a filter, in lower case and as literals; `None` if one of them is `true`, `false` or `null`, by which a
/// filter tests for a boolean or null, or has letters beyond ASCII, which may have several lower-case forms.
fn lowered(texts: &[String]) -> Option<Vec<String>> {
    let lower = |text: &String| {
        let lower = text.to_ascii_lowercase();
        let is_plain = text.is_ascii() && !["true", "false", "null"].contains(&lower.as_str());
        is_plain.then(|| literal(&lower))
    };
    texts.iter().map(lower).collect()
}

/// A property in the server's JSON, as text whatever its type.
pub fn path_in_server(key: &str) -> String {
    format!("(properties ->> {})", literal(key))
}

/// A property in the JSON of a file, for DuckDB; `None` for a name that no JSON path can contain.
pub fn path_in_file(key: &str) -> Option<String> {
    match key.contains(['"', '\\']) {
        true => None,
        false => Some(format!("(properties ->> {})", literal(&format!("$.\"{key}\"")))),
    }
}

#[cfg(test)]
mod tests {
    use super::{OF_FILTERS, OF_OPTIONS, OF_PERSONS, OF_RETURNS, OF_STEPS, Span, of, of_files};
    use crate::state::insight::{Kind, Question};

    fn span() -> Span {
        Span {
            from: "2026-01-01T00:00:00Z".to_owned(),
            to: "2026-01-02T00:00:00Z".to_owned(),
            zone: "Europe/Berlin".to_owned(),
            is_monday_first: false,
        }
    }

    #[test]
    fn texts_of_anybody_stay_in_their_literals() {
        let query = "a=it's'--&a.f1.key=k'&a.f1.value=v'&by1.key=b'";
        let question = Question::parse(Kind::Trends, query).unwrap();
        let sql = of(&question, &span()).unwrap();
        for part in ["event = 'it''s''--'", "->> 'k'''", "IN ('v''')", "properties['b''']"] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
        let sql = of_files(&question, &span(), ("/d'", 7)).unwrap();
        for part in ["delta_scan('/d''')", "project_id = 7", "->> '$.\"k''\"'"] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
    }

    #[test]
    fn what_sql_cannot_say_has_a_reason() {
        for (kind, query, reason) in [
            (Kind::Trends, "a=x&a.f1.key=k&a.f1.value=true", OF_FILTERS),
            (Kind::Trends, "a=x&a.f1.key=k&a.f1.op=regex&a.f1.value=t", OF_FILTERS),
            (Kind::Trends, "a=x&a.f1.key=7&a.f1.of=cohort", OF_FILTERS),
            (Kind::Trends, "a=action:7", OF_FILTERS),
            (Kind::Trends, "a=x&a.math=weekly_active", OF_OPTIONS),
            (Kind::Trends, "a=x&compare=previous", OF_OPTIONS),
            (Kind::Trends, "a=x&formula=A", OF_OPTIONS),
            (Kind::Trends, "a=x&show=cumulative", OF_OPTIONS),
            (Kind::Trends, "a=x&without_tests=1", OF_OPTIONS),
            (Kind::Trends, "a=x&by1.key=k&by2.key=l", OF_OPTIONS),
            (Kind::Stickiness, "a=x&cumulative=1", OF_OPTIONS),
            (Kind::Funnel, "a=x&b=y", OF_STEPS),
            (Kind::Paths, "", OF_STEPS),
            (Kind::Retention, "a=x", OF_RETURNS),
            (Kind::Lifecycle, "a=x", OF_RETURNS),
        ] {
            let question = Question::parse(kind, query).unwrap();
            assert_eq!(of(&question, &span()), Err(reason), "{query}");
        }
        for query in ["a=x&a.math=dau", "a=x&by1.of=person&by1.key=k"] {
            let question = Question::parse(Kind::Trends, query).unwrap();
            assert_eq!(of_files(&question, &span(), ("t", 1)), Err(OF_PERSONS), "{query}");
        }
    }
}
