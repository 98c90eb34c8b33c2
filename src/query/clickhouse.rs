//! Functions of ClickHouse that HogQL has, in SQL that DataFusion plans: [`rewrite`]. Each is a template, in which a
//! placeholder stands for an argument. An argument stands in a template once, so that no nesting multiplies it.

#[cfg(test)]
mod tests;
mod times;

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Function;
use datafusion::sql::sqlparser::ast::FunctionArg;
use datafusion::sql::sqlparser::ast::FunctionArgExpr;
use datafusion::sql::sqlparser::ast::FunctionArguments;
use datafusion::sql::sqlparser::ast::Select;
use datafusion::sql::sqlparser::ast::Value;
use datafusion::sql::sqlparser::ast::VisitMut;
use datafusion::sql::sqlparser::ast::VisitorMut;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::query::asked::asked;
use crate::query::asked::take;
use crate::query::calendar::Calendar;
use crate::query::clickhouse::times::added;
use crate::query::clickhouse::times::as_instant;
use crate::query::clickhouse::times::diff;
use crate::query::clickhouse::times::of_unit;
use crate::query::clickhouse::times::start_of_interval;
use crate::query::clickhouse::times::start_of_week;
use crate::query::complexity;
use crate::query::error::QueryError;
use crate::query::item_names::ItemNames;
use crate::query::local_time;
use crate::query::quantile;

/// What a function is, by its name and the number of its arguments. Names have the case of ClickHouse, which does not
/// matter here. `$zone` is the time zone of the project.
const TEMPLATES: [(&str, usize, &str); 80] = [
    // Aggregates.
    ("countIf", 1, "count(*) FILTER (WHERE $1)"),
    ("countIf", 2, "count($1) FILTER (WHERE $2)"),
    ("sumIf", 2, "sum($1) FILTER (WHERE $2)"),
    ("avgIf", 2, "avg($1) FILTER (WHERE $2)"),
    ("minIf", 2, "min($1) FILTER (WHERE $2)"),
    ("maxIf", 2, "max($1) FILTER (WHERE $2)"),
    ("uniq", 1, "count(DISTINCT $1)"),
    ("uniqExact", 1, "count(DISTINCT $1)"),
    ("countDistinct", 1, "count(DISTINCT $1)"),
    ("uniqIf", 2, "count(DISTINCT $1) FILTER (WHERE $2)"),
    ("countDistinctIf", 2, "count(DISTINCT $1) FILTER (WHERE $2)"),
    ("argMin", 2, "first_value($1 ORDER BY $2 ASC NULLS LAST)"),
    ("argMax", 2, "first_value($1 ORDER BY $2 DESC NULLS LAST)"),
    ("groupArray", 1, "array_agg($1)"),
    ("groupUniqArray", 1, "array_agg(DISTINCT $1)"),
    ("any", 1, "first_value($1) IGNORE NULLS"),
    ("anyIf", 2, "first_value($1) FILTER (WHERE $2) IGNORE NULLS"),
    ("anyLast", 1, "last_value($1) IGNORE NULLS"),
    ("stddevPop", 1, "stddev_pop($1)"),
    ("stddevSamp", 1, "stddev_samp($1)"),
    ("varPop", 1, "var_pop($1)"),
    ("varSamp", 1, "var_samp($1)"),
    // Times.
    ("toStartOfSecond", 1, "date_trunc('second', $1)"),
    ("toStartOfMinute", 1, "date_trunc('minute', $1)"),
    ("toStartOfFiveMinutes", 1, "date_bin(INTERVAL '5 minutes', $1)"),
    ("toStartOfFifteenMinutes", 1, "date_bin(INTERVAL '15 minutes', $1)"),
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
    // Texts.
    ("empty", 1, "($1 = '')"),
    ("notEmpty", 1, "($1 <> '')"),
    ("lengthUTF8", 1, "char_length($1)"),
    ("lowerUTF8", 1, "lower($1)"),
    ("upperUTF8", 1, "upper($1)"),
    ("replaceAll", 3, "replace($1, $2, $3)"),
    ("replaceRegexpAll", 3, "regexp_replace($1, $2, $3, 'g')"),
    ("replaceRegexpOne", 3, "regexp_replace($1, $2, $3)"),
    ("splitByChar", 2, "string_to_array($2, $1)"),
    ("splitByString", 2, "string_to_array($2, $1)"),
    ("match", 2, "regexp_like($1, $2)"),
    ("startsWith", 2, "starts_with($1, $2)"),
    ("endsWith", 2, "ends_with($1, $2)"),
    ("JSONExtractString", 2, "json_as_text($1, $2)"),
    ("JSONExtractInt", 2, "json_get_int($1, $2)"),
    ("JSONExtractFloat", 2, "json_get_float($1, $2)"),
    ("JSONExtractBool", 2, "json_get_bool($1, $2)"),
    ("JSONHas", 2, "json_contains($1, $2)"),
    // Numbers. The quotient is cut off at its point, as of numbers with a fraction too.
    ("intDiv", 2, "CAST(trunc(try_cast($1 AS DOUBLE) / try_cast($2 AS DOUBLE)) AS BIGINT)"),
    // Conversions.
    ("toString", 1, "CAST($1 AS VARCHAR)"),
    ("arrayJoin", 1, "unnest($1)"),
    ("has", 2, "array_has($1, $2)"),
];

/// Conversions to numbers, which are null where a text is none.
const INTEGERS: [&str; 10] = [
    "toInt",
    "toInt8",
    "toInt16",
    "toInt32",
    "toInt64",
    "toUInt8",
    "toUInt16",
    "toUInt32",
    "toUInt64",
    "toIntOrNull",
];
const FLOATS: [&str; 5] = ["toFloat", "toFloat32", "toFloat64", "toFloatOrNull", "toDecimal"];

/// Functions that give the value at one level, the median unless it is sent, and the number of their arguments.
const QUANTILE: [(&str, usize); 4] =
    [("quantile", 1), ("quantileIf", 2), ("median", 1), ("medianIf", 2)];

/// The same that give a list of the values at several levels.
const QUANTILES: [(&str, usize); 2] = [("quantiles", 1), ("quantilesIf", 2)];

/// The level of the median.
const MEDIAN: f64 = 0.5;

/// Most levels of `quantiles`.
const LEVELS_MAX: usize = 100;

/// Writes the functions of ClickHouse in a statement as those that there are.
///
/// # Errors
///
/// One has other arguments than it takes, or the statement becomes too long.
pub(super) fn rewrite(statement: &mut Statement, calendar: &Calendar) -> Result<()> {
    let Some(query) = asked(statement) else { return Ok(()) };
    let mut functions = Functions { calendar, is_changed: false, names: ItemNames::default() };
    if let ControlFlow::Break(error) = VisitMut::visit(query, &mut functions) {
        return Err(error);
    }
    match functions.is_changed.then(|| complexity::check_tree(query)) {
        Some(Err(QueryError::Invalid(why))) => Err(DataFusionError::Plan(why)),
        _ => Ok(()),
    }
}

/// The same of one expression.
///
/// # Errors
///
/// See [`rewrite`].
pub(super) fn rewrite_expression(expression: &mut Expr, calendar: &Calendar) -> Result<()> {
    let mut functions = Functions { calendar, is_changed: false, names: ItemNames::default() };
    match VisitMut::visit(expression, &mut functions) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Functions<'r> {
    calendar: &'r Calendar,
    is_changed: bool,
    names: ItemNames,
}

impl VisitorMut for Functions<'_> {
    type Break = DataFusionError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        self.names.enter(select);
        // It says what WHERE says, and that it is to be asked first.
        if let Some(first) = select.prewhere.take() {
            let nested = |part: Expr| Box::new(Expr::Nested(Box::new(part)));
            select.selection = Some(match select.selection.take() {
                Some(second) => {
                    let (left, right) = (nested(first), nested(second));
                    Expr::BinaryOp { left, op: BinaryOperator::And, right }
                }
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
    /// What a call is; `None` if it is no function of ClickHouse alone.
    fn written(&self, call: &Function) -> Result<Option<Expr>> {
        let [name] = call.name.0.as_slice() else { return Ok(None) };
        let Some(name) = name.as_ident().map(|name| name.value.as_str()) else { return Ok(None) };
        let FunctionArguments::List(list) = &call.args else { return Ok(None) };
        let plain = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument.clone()),
            _ => None,
        };
        let arguments: Option<Vec<Expr>> = list.args.iter().map(plain).collect();
        let sent = parameters(name, &call.parameters)?;
        let Some(arguments) = arguments.filter(|_| list.duplicate_treatment.is_none()) else {
            // Whatever function it is, its parameters would be left out.
            return match sent {
                None => Ok(None),
                Some(_) => Err(not_here(name)),
            };
        };
        let usual = || is_quantile(name).then(|| vec![MEDIAN]);
        let template = match sent.or_else(usual) {
            Some(parameters) => parametric(name, &parameters, &arguments)?,
            None => match template(name, &arguments, self.calendar)? {
                Some(template) => template,
                None => return Ok(None),
            },
        };
        let parts = Parts { arguments, zone: &self.calendar.zone };
        let mut written = parts.filled(&template)?;
        let has_more = !list.clauses.is_empty()
            || call.null_treatment.is_some()
            || !call.within_group.is_empty();
        if has_more {
            let why = format!("{name} takes no ORDER BY, WITHIN GROUP or NULLS");
            return Err(DataFusionError::Plan(why));
        }
        match (&mut written, &call.filter) {
            (_, None) => {}
            (Expr::Function(inner), Some(filter))
                if !is_around(inner) && inner.filter.is_none() =>
            {
                inner.filter = Some(filter.clone());
            }
            _ => return Err(DataFusionError::Plan(format!("{name} takes no FILTER"))),
        }
        match (&mut written, &call.over) {
            (_, None) => {}
            (Expr::Function(inner), Some(over)) if !is_around(inner) => {
                inner.over = Some(over.clone());
            }
            _ => return Err(DataFusionError::Plan(format!("{name} takes no OVER"))),
        }
        Ok(Some(written))
    }
}

/// Whether a function is one of what an aggregate gives.
fn is_around(function: &Function) -> bool {
    let name = function.name.to_string();
    ["array_slice", "least", quantile::NAME].contains(&name.as_str())
}

/// The first of two lists of arguments: numbers; `None` if there is but one list.
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

/// The template of an aggregate that takes parameters in parentheses of their own.
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
    let most = match parameters {
        [most] if most.fract() == 0.0 && (1.0..=1e9).contains(most) => Some(*most),
        _ => None,
    };
    let template = match most {
        Some(most) if is("groupArray") => format!("array_slice(array_agg($1), 1, {most})"),
        Some(most) if is("groupUniqArray") => {
            format!("array_slice(array_agg(DISTINCT $1), 1, {most})")
        }
        Some(most) if is("uniqUpTo") => format!("least(count(DISTINCT $1), {})", most + 1.0),
        _ => return Err(not_here(name)),
    };
    check_width(name, arguments, 1)?;
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

/// The template of quantiles of an argument, of the rows for which the second one holds if there is one.
fn quantiles(levels: &[f64], width: usize) -> String {
    let gathered = match width {
        1 => "array_agg(try_cast($1 AS DOUBLE))",
        _ => "array_agg(try_cast($1 AS DOUBLE)) FILTER (WHERE $2)",
    };
    // With a fraction: a number without one would be of another type.
    let levels: Vec<String> = levels.iter().map(|level| format!("{level:?}")).collect();
    format!("{}({gathered}, make_array({}))", quantile::NAME, levels.join(", "))
}

fn is_quantile(name: &str) -> bool {
    QUANTILE.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
}

/// Levels are from 0 to 1, and at most `most`.
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

/// The template of a function; `None` if there is none.
fn template(name: &str, arguments: &[Expr], calendar: &Calendar) -> Result<Option<String>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let count = arguments.len();
    if INTEGERS.iter().any(|own| is(own)) && count == 1 {
        return Ok(Some("try_cast($1 AS BIGINT)".to_owned()));
    }
    if FLOATS.iter().any(|own| is(own)) && count >= 1 {
        return Ok(Some("try_cast($1 AS DOUBLE)".to_owned()));
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
    if is("dateDiff") && count == 3 {
        return diff(arguments).map(Some);
    }
    let mut counts = TEMPLATES.iter().filter(|(own, ..)| is(own)).peekable();
    if counts.peek().is_none() {
        return Ok(None);
    }
    let counts: Vec<_> = counts.collect();
    if let Some((.., template)) = counts.iter().find(|(_, own, _)| *own == count) {
        return Ok(Some((*template).to_owned()));
    }
    let wanted: Vec<String> = counts.iter().map(|(_, count, _)| count.to_string()).collect();
    let wanted = wanted.join(" or ");
    Err(DataFusionError::Plan(format!("{name} takes {wanted} arguments, and has {count}")))
}

/// What placeholders stand for.
struct Parts<'r> {
    arguments: Vec<Expr>,
    zone: &'r str,
}

impl Parts<'_> {
    fn filled(mut self, template: &str) -> Result<Expr> {
        let parsed = Parser::new(&GenericDialect {}).try_with_sql(template);
        let parsed = parsed.and_then(|mut parser| parser.parse_expr());
        let internal = |error: &dyn std::fmt::Display| DataFusionError::Internal(error.to_string());
        let mut expression = parsed.map_err(|error| internal(&error))?;
        match VisitMut::visit(&mut expression, &mut self) {
            ControlFlow::Break(missing) => Err(internal(&format!("{template} has {missing}"))),
            ControlFlow::Continue(()) => Ok(expression),
        }
    }
}

impl VisitorMut for Parts<'_> {
    type Break = String;

    // After its parts, so that placeholders in arguments stay what they are.
    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<String> {
        let Expr::Value(value) = expression else { return ControlFlow::Continue(()) };
        let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        if name == "$zone" {
            *expression = Expr::Value(Value::SingleQuotedString(self.zone.to_owned()).into());
            return ControlFlow::Continue(());
        }
        let at = name.strip_prefix('$').and_then(|at| at.parse::<usize>().ok()?.checked_sub(1));
        match at.and_then(|at| self.arguments.get_mut(at)) {
            Some(argument) => {
                let argument = take(argument);
                *expression = Expr::Nested(Box::new(argument));
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(name.clone()),
        }
    }
}
