//! ClickHouse functions of HogQL, rewritten to SQL that DataFusion plans: [`rewrite`]. Each is a template with
//! placeholders for arguments. Nodes that are copied because a template uses an argument twice are counted and limited,
//! so that nesting cannot grow a statement exponentially.

mod aggregates;
mod built;
mod dates;
mod parts;
#[cfg(test)]
mod tests;
mod times;
mod values;

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, Select, Value, VisitorMut,
};

pub(crate) use crate::dialect::clickhouse::built::{call, step};

use crate::dialect::clickhouse::parts::Parts;
use crate::dialect::clickhouse::times::{
    added, as_instant, diff, of_unit, start_of_interval, start_of_week,
};
use crate::dialect::item_names::ItemNames;
use crate::dialect::statements;
use crate::functions::calendar::Calendar;
use crate::functions::{local_time, quantile};
use crate::guard::complexity;
use crate::kernel::error::QueryError;

/// Templates of functions by name and number of arguments. Names are spelled as in ClickHouse, but matched without
/// regard to case. `$zone` is the time zone of the project.
const TEMPLATES: &[(&str, usize, &str)] = &[
    // Times.
    ("toStartOfSecond", 1, "date_trunc('second', $1)"),
    ("toStartOfMinute", 1, "date_trunc('minute', $1)"),
    (
        "toStartOfFiveMinutes",
        1,
        "CAST(date_bin(INTERVAL '5 minutes', $1) AS TIMESTAMP(6) WITH TIME ZONE)",
    ),
    (
        "toStartOfFifteenMinutes",
        1,
        "CAST(date_bin(INTERVAL '15 minutes', $1) AS TIMESTAMP(6) WITH TIME ZONE)",
    ),
    ("toStartOfHour", 1, "date_trunc('hour', $1 AT TIME ZONE $zone)"),
    ("toStartOfDay", 1, "date_trunc('day', $1 AT TIME ZONE $zone)"),
    ("toMonday", 1, "date_trunc('week', $1 AT TIME ZONE $zone)"),
    ("toStartOfMonth", 1, "date_trunc('month', $1 AT TIME ZONE $zone)"),
    ("toStartOfQuarter", 1, "date_trunc('quarter', $1 AT TIME ZONE $zone)"),
    ("toStartOfYear", 1, "date_trunc('year', $1 AT TIME ZONE $zone)"),
    ("toDate", 1, "CAST($1 AT TIME ZONE $zone AS DATE)"),
    ("toDateTime", 1, "CAST(CAST($1 AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP(6) WITH TIME ZONE)"),
    (
        "toDateTime64",
        1,
        "CAST(CAST($1 AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP(6) WITH TIME ZONE)",
    ),
    ("toYear", 1, "date_part('year', $1 AT TIME ZONE $zone)"),
    ("toQuarter", 1, "date_part('quarter', $1 AT TIME ZONE $zone)"),
    ("toMonth", 1, "date_part('month', $1 AT TIME ZONE $zone)"),
    ("toDayOfYear", 1, "date_part('doy', $1 AT TIME ZONE $zone)"),
    ("toDayOfMonth", 1, "date_part('day', $1 AT TIME ZONE $zone)"),
    // 1 is Monday.
    ("toDayOfWeek", 1, "((date_part('dow', $1 AT TIME ZONE $zone) + 6) % 7 + 1)"),
    ("toHour", 1, "date_part('hour', $1 AT TIME ZONE $zone)"),
    ("toMinute", 1, "date_part('minute', $1 AT TIME ZONE $zone)"),
    ("toSecond", 1, "CAST(floor(date_part('second', $1 AT TIME ZONE $zone)) AS BIGINT)"),
    ("toUnixTimestamp", 1, "CAST(floor(date_part('epoch', $1 AT TIME ZONE $zone)) AS BIGINT)"),
    ("fromUnixTimestamp", 1, "CAST(to_timestamp($1) AS TIMESTAMP(6) WITH TIME ZONE)"),
    ("yesterday", 0, "(CAST(now() AT TIME ZONE $zone AS DATE) - INTERVAL '1 day')"),
    ("today", 0, "CAST(now() AT TIME ZONE $zone AS DATE)"),
    // Conditions.
    ("if", 3, "CASE WHEN $1 THEN $2 ELSE $3 END"),
    ("ifNull", 2, "coalesce($1, $2)"),
    ("isNull", 1, "($1 IS NULL)"),
    ("isNotNull", 1, "($1 IS NOT NULL)"),
    ("equals", 2, "($1 = $2)"),
    ("notEquals", 2, "($1 <> $2)"),
    ("less", 2, "($1 < $2)"),
    ("lessOrEquals", 2, "($1 <= $2)"),
    ("greater", 2, "($1 > $2)"),
    ("greaterOrEquals", 2, "($1 >= $2)"),
    // Conversions.
    ("toString", 1, "CAST($1 AS VARCHAR)"),
];

/// Conversions to numbers, which are null if a text is not a number.
const INTEGERS: [&str; 10] = [
    "toInt", "toInt8", "toInt16", "toInt32", "toInt64", "toUInt8", "toUInt16", "toUInt32",
    "toUInt64", "toUInt",
];
const FLOATS: [&str; 4] = ["toFloat", "toFloat32", "toFloat64", "toDecimal"];

/// Functions that return the quantile at one level, which defaults to the median, with the number of their arguments.
const QUANTILE: [(&str, usize); 4] =
    [("quantile", 1), ("quantileIf", 2), ("median", 1), ("medianIf", 2)];

/// The same functions for a list of the quantiles at several levels.
const QUANTILES: [(&str, usize); 2] = [("quantiles", 1), ("quantilesIf", 2)];

/// Functions that require a number in a separate parameter list before the arguments.
const PARAMETRIC: [&str; 4] = ["topK", "topKIf", "uniqUpTo", "windowFunnel"];

/// The level of the median.
const MEDIAN: f64 = 0.5;

/// Maximum steps of `windowFunnel`.
const STEPS_MAX: usize = 32;

/// Maximum levels of `quantiles`.
const LEVELS_MAX: usize = 100;

/// Functions that templates apply to the result of an aggregate.
const AROUND: [&str; 6] =
    ["array_slice", "least", quantile::NAME, "list_or_empty", "most_frequent", "window_funnel"];

/// Rewrites the ClickHouse functions of a statement to functions that DataFusion has.
///
/// # Errors
///
/// A function has invalid arguments, or the statement becomes too long.
pub(crate) fn rewrite(statement: &mut Statement, calendar: &Calendar) -> Result<()> {
    let Some(query) = statements::query_in(statement) else { return Ok(()) };
    let names = ItemNames::default();
    let mut functions = Functions { calendar, is_changed: false, names, copied: 0 };
    statements::rewrite_part(query, &mut functions)?;
    match functions.is_changed.then(|| complexity::check_tree(query)) {
        Some(Err(QueryError::Invalid(why))) => Err(DataFusionError::Plan(why)),
        _ => Ok(()),
    }
}

/// The same for one expression.
pub(crate) fn rewrite_expression(expression: &mut Expr, calendar: &Calendar) -> Result<()> {
    let names = ItemNames::default();
    let mut functions = Functions { calendar, is_changed: false, names, copied: 0 };
    statements::rewrite_part(expression, &mut functions)
}

/// All tables of templates.
fn tables() -> [&'static [(&'static str, usize, &'static str)]; 4] {
    [TEMPLATES, aggregates::TEMPLATES, dates::TEMPLATES, values::TEMPLATES]
}

/// Names of the ClickHouse functions that are supported.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let of_templates = tables().into_iter().flatten().map(|(name, ..)| *name);
    let others = [
        "age",
        "and",
        "arrayIntersect",
        "dateAdd",
        "dateDiff",
        "dateSub",
        "multiIf",
        "or",
        "toStartOfInterval",
    ];
    let of_levels = QUANTILE.into_iter().chain(QUANTILES).map(|(name, _)| name);
    let of_numbers = INTEGERS.into_iter().chain(FLOATS).chain(PARAMETRIC).chain(others);
    of_templates.chain(of_levels).chain(of_numbers).chain(built::names()).chain(values::names())
}

struct Functions<'r> {
    calendar: &'r Calendar,
    is_changed: bool,
    names: ItemNames,
    /// Number of nodes of arguments that templates use more than once.
    copied: usize,
}

impl VisitorMut for Functions<'_> {
    type Break = DataFusionError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        self.names.enter(select);
        // PREWHERE is equivalent to a WHERE that is evaluated first.
        if let Some(first) = select.prewhere.take() {
            select.selection = Some(match select.selection.take() {
                Some(second) => both(first, second),
                None => first,
            });
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        self.names.leave(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        let written = match expression {
            Expr::Function(function) => self.written(function),
            _ => Ok(None),
        };
        match written {
            Ok(Some(written)) => {
                self.is_changed = true;
                *expression = written;
            }
            Ok(None) if local_time::is_utc(&self.calendar.zone) => {}
            Ok(None) => as_instant(expression),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Functions<'_> {
    /// The replacement of a call; `None` if it is not a function of ClickHouse only.
    fn written(&mut self, call: &mut Function) -> Result<Option<Expr>> {
        let [name] = call.name.0.as_slice() else { return Ok(None) };
        let Some(name) = name.as_ident().map(|name| name.value.as_str()) else { return Ok(None) };
        let name = match values::renamed(name) {
            Some(renamed) => {
                values::check_frame(name, call.over.as_ref())?;
                self.is_changed = true;
                call.name = ObjectName::from(vec![Ident::new(renamed)]);
                renamed.to_owned()
            }
            None => name.to_owned(),
        };
        let FunctionArguments::List(list) = &call.args else { return Ok(None) };
        let plain = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument.clone()),
            _ => None,
        };
        let arguments: Option<Vec<Expr>> = list.args.iter().map(plain).collect();
        let sent = parameters(&name, &call.parameters)?;
        let Some(mut arguments) = arguments.filter(|_| list.duplicate_treatment.is_none()) else {
            // Whatever function it is, its parameters would be dropped.
            return match sent {
                None => Ok(None),
                Some(_) => Err(not_here(&name)),
            };
        };
        let mut written = match self.filled(&name, sent, &mut arguments)? {
            Some(written) => written,
            None => return Ok(None),
        };
        let has_more = !list.clauses.is_empty()
            || call.null_treatment.is_some()
            || !call.within_group.is_empty();
        if has_more {
            let why = format!("{name} takes no ORDER BY, WITHIN GROUP or NULLS");
            return Err(DataFusionError::Plan(why));
        }
        if let Some(filter) = &call.filter {
            let inner = aggregate_of(&mut written);
            let inner = inner.ok_or_else(|| takes_no(&name, "FILTER"))?;
            inner.filter = Some(match inner.filter.take() {
                Some(own) => Box::new(both(*own, (**filter).clone())),
                None => filter.clone(),
            });
        }
        match (&mut written, &call.over) {
            (_, None) => {}
            (Expr::Function(inner), Some(over)) if takes_over(inner) => {
                inner.over = Some(over.clone());
            }
            _ => return Err(takes_no(&name, "OVER")),
        }
        Ok(Some(written))
    }

    /// The replacement of a function with these arguments.
    fn filled(
        &mut self,
        name: &str,
        parameters: Option<Vec<f64>>,
        arguments: &mut Vec<Expr>,
    ) -> Result<Option<Expr>> {
        let usual = || is_quantile(name).then(|| vec![MEDIAN]);
        let template = match parameters.or_else(usual) {
            Some(parameters) => Some(parametric(name, &parameters, arguments)?),
            None => match built::built(name, arguments)? {
                Some(built) => return Ok(Some(built)),
                None => match several(name, arguments)? {
                    Some(template) => Some(template),
                    None => template(name, arguments, self.calendar)?,
                },
            },
        };
        let Some(template) = template else { return Ok(None) };
        let parsed = Parts::parsed(&template)?;
        let zone = match arguments.len() == Parts::width(&parsed) + 1 {
            // Time functions accept a time zone as an additional last argument.
            true => arguments.pop().as_ref().and_then(text),
            false => None,
        };
        let arguments = std::mem::take(arguments);
        let parts = Parts::of(&parsed, arguments, zone.as_deref().unwrap_or(&self.calendar.zone));
        self.copied = self.copied.saturating_add(parts.copied());
        if self.copied > complexity::WORDS_MAX {
            let why = format!("the arguments of {name} are too long");
            return Err(DataFusionError::Plan(why));
        }
        parts.filled(parsed).map(Some)
    }
}

fn takes_no(name: &str, what: &str) -> DataFusionError {
    DataFusionError::Plan(format!("{name} takes no {what}"))
}

/// The conjunction of both conditions.
fn both(left: Expr, right: Expr) -> Expr {
    let nested = |part: Expr| Box::new(Expr::Nested(Box::new(part)));
    Expr::BinaryOp { left: nested(left), op: BinaryOperator::And, right: nested(right) }
}

/// The aggregate that an expression is, or to whose result it applies a function.
fn aggregate_of(expression: &mut Expr) -> Option<&mut Function> {
    match expression {
        Expr::CompoundFieldAccess { root, .. } => aggregate_of(root),
        Expr::Function(function) => {
            if !is_around(function) {
                return Some(function);
            }
            let FunctionArguments::List(list) = &mut function.args else { return None };
            match list.args.first_mut()? {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(first)) => aggregate_of(first),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a function is one that templates apply to the result of an aggregate.
fn is_around(function: &Function) -> bool {
    let name = function.name.to_string();
    AROUND.contains(&name.as_str())
}

/// Whether the function can be used with OVER: window functions of the first and last row support neither FILTER nor
/// ORDER BY.
fn takes_over(function: &Function) -> bool {
    let has_order =
        matches!(&function.args, FunctionArguments::List(list) if !list.clauses.is_empty());
    let is_of_rows = ["first_value", "last_value"].contains(&function.name.to_string().as_str());
    !is_around(function) && !(is_of_rows && (has_order || function.filter.is_some()))
}

/// The first of two argument lists, as numbers; `None` if there is only one list.
fn parameters(name: &str, sent: &FunctionArguments) -> Result<Option<Vec<f64>>> {
    let number = |parameter: &FunctionArg| match parameter {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => match &value.value {
            Value::Number(number, _) => number.parse::<f64>().ok(),
            _ => None,
        },
        _ => None,
    };
    let numbers = match sent {
        FunctionArguments::None => return Ok(None),
        FunctionArguments::List(list) => list.args.iter().map(number).collect(),
        FunctionArguments::Subquery(_) => None,
    };
    let wrong = || DataFusionError::Plan(format!("{name} takes numbers in its first parentheses"));
    numbers.map(Some).ok_or_else(wrong)
}

/// The template of an aggregate with a separate parameter list.
fn parametric(name: &str, parameters: &[f64], arguments: &[Expr]) -> Result<String> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    for (own, width) in QUANTILE.into_iter().chain(QUANTILES) {
        if is(own) {
            let is_one = is_quantile(name);
            check_width(name, arguments, width)?;
            check_levels(name, parameters, if is_one { 1 } else { LEVELS_MAX })?;
            let lists = quantiles(parameters, width);
            return Ok(if is_one { format!("{lists}[1]") } else { lists });
        }
    }
    let whole = match parameters {
        [number] if number.fract() == 0.0 => format!("{number}").parse::<u32>().ok(),
        _ => None,
    };
    let Some(whole) = whole.filter(|number| (1..=1_000_000_000).contains(number)) else {
        return Err(not_here(name));
    };
    if is("windowFunnel") && (2..=STEPS_MAX + 1).contains(&arguments.len()) {
        return Ok(aggregates::window_funnel(whole, arguments.len()));
    }
    let (width, template) = aggregates::of_most(name, whole).ok_or_else(|| not_here(name))?;
    check_width(name, arguments, width)?;
    Ok(template)
}

fn not_here(name: &str) -> DataFusionError {
    DataFusionError::Plan(format!(
        "{name} with these arguments in two parentheses is not available"
    ))
}

fn check_width(name: &str, arguments: &[Expr], width: usize) -> Result<()> {
    let sent = arguments.len();
    if sent == width {
        return Ok(());
    }
    let why = format!("{name} takes {width} arguments, and has {sent}");
    Err(DataFusionError::Plan(why))
}

/// The template of quantiles of an argument; with two arguments, over the rows for which the second one is true.
fn quantiles(levels: &[f64], width: usize) -> String {
    let gathered = match width {
        1 => "array_agg(try_cast($1 AS DOUBLE))",
        _ => "array_agg(try_cast($1 AS DOUBLE)) FILTER (WHERE $2)",
    };
    // With a fractional part: a number without one would be of another type.
    let levels: Vec<String> = levels.iter().map(|level| format!("{level:?}")).collect();
    format!("{}({gathered}, make_array({}))", quantile::NAME, levels.join(", "))
}

fn is_quantile(name: &str) -> bool {
    QUANTILE.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
}

/// Checks that there are 1 to `most` levels, each from 0 to 1.
fn check_levels(name: &str, levels: &[f64], most: usize) -> Result<()> {
    let refused = |why: String| Err(DataFusionError::Plan(why));
    if !levels.iter().all(|level| (0.0..=1.0).contains(level)) {
        return refused(format!("the levels of {name} are numbers from 0 to 1"));
    }
    if levels.is_empty() || levels.len() > most {
        return refused(format!("{name} takes at least one level and at most {most}"));
    }
    Ok(())
}

/// The template of a function with a variable number of arguments.
fn several(name: &str, arguments: &mut Vec<Expr>) -> Result<Option<String>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let count = arguments.len();
    let joined = |sign: &str| {
        let parts: Vec<String> = (1..=count).map(|at| format!("CAST(${at} AS BOOLEAN)")).collect();
        Some(format!("({})", parts.join(sign)))
    };
    Ok(match count {
        2.. if is("and") => joined(" AND "),
        2.. if is("or") => joined(" OR "),
        2.. if is("arrayIntersect") => Some(
            (2..=count).fold("$1".to_owned(), |all, at| format!("array_intersect({all}, ${at})")),
        ),
        // The argument is a precision, or a time zone: neither changes an instant.
        1 if is("now") => Some("CAST(now() AS TIMESTAMP(6) WITH TIME ZONE)".to_owned()),
        1.. if is("format") => Some(built::formatted(arguments)?),
        2 | 3 if is("toDateTime") || is("toDateTime64") => dates::in_zone(name, arguments)?,
        _ => aggregates::uniq_of_tuples(name, count),
    })
}

/// The template of a function; `None` if there is none.
fn template(name: &str, arguments: &[Expr], calendar: &Calendar) -> Result<Option<String>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let count = arguments.len();
    if let Some(template) = number(name, count) {
        return Ok(Some(template));
    }
    if let Some(template) = of_unit(name, count) {
        return Ok(Some(template));
    }
    for (own, sign) in [("dateAdd", '+'), ("dateSub", '-')] {
        if is(own) {
            return added(own, sign, arguments).map(Some);
        }
    }
    if is("toStartOfWeek") {
        let template = start_of_week(arguments, calendar.is_monday_first)?;
        return Ok(Some(template.to_owned()));
    }
    if is("toStartOfInterval") {
        return start_of_interval(arguments).map(Some);
    }
    if is("multiIf") && count >= 3 && count % 2 == 1 {
        let cases = (1..count).step_by(2).map(|at| format!("WHEN ${at} THEN ${} ", at + 1));
        return Ok(Some(format!("CASE {}ELSE ${count} END", cases.collect::<String>())));
    }
    if is("age") && count == 3 {
        return dates::age(arguments).map(Some);
    }
    if PARAMETRIC.iter().any(|own| is(own)) {
        return Err(DataFusionError::Plan(format!(
            "{name} takes a whole number in parentheses before those of its arguments"
        )));
    }
    if is("dateDiff") && count == 3 {
        return diff(arguments).map(Some);
    }
    let all = tables().into_iter().flatten();
    let counts: Vec<_> = all.filter(|(own, ..)| is(own)).collect();
    if counts.is_empty() {
        return Ok(None);
    }
    if let Some((.., template)) = counts.iter().find(|(_, own, _)| *own == count) {
        return Ok(Some((*template).to_owned()));
    }
    let is_zoned = |(_, own, template): &&&(&str, usize, &str)| {
        *own + 1 == count && template.contains("$zone") && arguments.last().and_then(text).is_some()
    };
    if let Some((.., template)) = counts.iter().find(is_zoned) {
        return Ok(Some((*template).to_owned()));
    }
    let wanted: Vec<String> = counts.iter().map(|(_, count, _)| count.to_string()).collect();
    let wanted = wanted.join(" or ");
    Err(DataFusionError::Plan(format!("{name} takes {wanted} arguments, and has {count}")))
}

/// The template of a conversion to a number: the result for anything else is null, or the one that its name defines.
fn number(name: &str, count: usize) -> Option<String> {
    let ends = |end: &str| {
        let at = name.len().checked_sub(end.len())?;
        let (base, own) = (name.get(..at)?, name.get(at..)?);
        own.eq_ignore_ascii_case(end).then_some(base)
    };
    let (base, otherwise) = match (ends("OrZero"), ends("OrDefault"), ends("OrNull")) {
        (Some(base), ..) => (base, Some("0")),
        (_, Some(base), _) => (base, Some(if count == 1 { "0" } else { "$2" })),
        (.., Some(base)) => (base, None),
        _ => (name, None),
    };
    let is = |own: &&str| own.eq_ignore_ascii_case(base);
    let has_default = otherwise == Some("$2");
    let converted = match () {
        () if INTEGERS.iter().any(is) && (count == 1 || has_default && count == 2) => {
            "try_cast($1 AS BIGINT)"
        }
        () if FLOATS.iter().any(is) && (1..=2).contains(&count) => "try_cast($1 AS DOUBLE)",
        () => return None,
    };
    Some(match otherwise {
        Some(otherwise) => {
            format!("CASE WHEN $1 IS NOT NULL THEN coalesce({converted}, {otherwise}) END")
        }
        None => converted.to_owned(),
    })
}

/// The text of a string literal.
fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Nested(inner) => text(inner),
        _ => None,
    }
}
