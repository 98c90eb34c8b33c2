//! Parameters of a prepared statement, `$1` and further: how many there are ([`count`]), types that follow from where they
//! stand ([`types`]), and their values as literals of the syntax tree ([`bind`]), so that no value is ever printed as SQL.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo, Expr, LimitClause, Query,
    TimezoneInfo, UnaryOperator, Value, Visitor, VisitorMut,
};

use crate::dialect::statements;
use crate::dialect::statements::{query_in, rewrite};
use crate::dialect::walk::walk;

/// Most parameters of a statement.
pub const PARAMETERS_MAX: usize = 10_000;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// NULL, of a type if that is known.
    Null(Option<DataType>),
    /// A truth value.
    Boolean(bool),
    /// A number as SQL writes it: digits with an optional sign, point and exponent.
    Number(String),
    /// A text.
    Text(String),
    /// A value of a type, as the text that casts to it.
    Typed(String, DataType),
    /// A list of values of a type.
    List(Vec<Parameter>, Option<DataType>),
}

impl Parameter {
    /// Some value of a type, with which a statement can be planned for the types of its result.
    pub(crate) fn example(data_type: Option<&DataType>) -> Self {
        let typed =
            |text: &str, data_type: &DataType| Self::Typed(text.to_owned(), data_type.clone());
        match data_type {
            None | Some(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
                Self::Text("1".to_owned())
            }
            Some(DataType::Boolean) => Self::Boolean(true),
            Some(own) if own.is_integer() => Self::Number("1".to_owned()),
            Some(own) if own.is_floating() => Self::Number("1.0".to_owned()),
            Some(own @ (DataType::Timestamp(..) | DataType::Date32)) => typed("2000-01-01", own),
            Some(own @ DataType::Interval(_)) => typed("1 day", own),
            Some(DataType::List(item)) => {
                let item = item.data_type();
                Self::List(vec![Self::example(Some(item))], Some(item.clone()))
            }
            Some(other) => Self::Null(Some(other.clone())),
        }
    }
}

/// The number of parameters of a statement: the greatest `n` of a `$n` in it.
///
/// # Errors
///
/// A placeholder is no `$n`, or `n` is too large.
pub(crate) fn count(statement: &mut Statement) -> Result<usize> {
    struct Greatest(usize);
    impl VisitorMut for Greatest {
        type Break = DataFusionError;

        fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
            match number(expression) {
                Some(Ok(number)) => self.0 = self.0.max(number),
                Some(Err(error)) => return ControlFlow::Break(error),
                None => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut greatest = Greatest(0);
    rewrite(statement, &mut greatest)?;
    Ok(greatest.0)
}

/// The number of the parameter that an expression is.
fn number(expression: &Expr) -> Option<Result<usize>> {
    let Expr::Value(value) = expression else { return None };
    let Value::Placeholder(name) = &value.value else { return None };
    let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
    let number = number.filter(|number| (1..=PARAMETERS_MAX).contains(number));
    Some(number.ok_or_else(|| {
        let why = format!("parameters are $1 to ${PARAMETERS_MAX}");
        DataFusionError::Plan(why)
    }))
}

/// Types of parameters that follow from a cast around them, or from being a LIMIT, an OFFSET or the list of ANY, by their
/// number.
pub(crate) fn types(statement: &mut Statement) -> BTreeMap<usize, DataType> {
    let mut found = ParameterTypes::default();
    if let Some(query) = query_in(statement) {
        let _ = walk(&*query, &mut found);
    }
    found.0
}

#[derive(Default)]
struct ParameterTypes(BTreeMap<usize, DataType>);

impl ParameterTypes {
    fn note(&mut self, expression: &Expr, data_type: Option<DataType>) {
        if let (Some(Ok(number)), Some(data_type)) = (number(expression), data_type) {
            self.0.entry(number).or_insert(data_type);
        }
    }
}

impl Visitor for ParameterTypes {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Cast { expr, data_type, .. } => self.note(expr, arrow_type(data_type)),
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                self.note(right, Some(DataType::new_list(DataType::Utf8View, true)));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause {
            let both = limit.iter().chain(offset.iter().map(|offset| &offset.value));
            both.for_each(|own| self.note(own, Some(DataType::Int64)));
        }
        ControlFlow::Continue(())
    }
}

/// The type that a cast to an SQL type makes, for the types that parameters have.
fn arrow_type(data_type: &SqlType) -> Option<DataType> {
    Some(match data_type {
        SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) | SqlType::Int64 => DataType::Int64,
        SqlType::Real | SqlType::Float4 => DataType::Float32,
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float8 | SqlType::Float64 => {
            DataType::Float64
        }
        SqlType::Bool | SqlType::Boolean => DataType::Boolean,
        SqlType::Text | SqlType::Varchar(_) | SqlType::String(_) => DataType::Utf8View,
        SqlType::Date => DataType::Date32,
        SqlType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        SqlType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, None),
        SqlType::Interval { .. } => DataType::Interval(IntervalUnit::MonthDayNano),
        SqlType::Array(
            ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item),
        ) => DataType::new_list(arrow_type(item)?, true),
        _ => return None,
    })
}

/// Puts values in the place of the parameters of a statement.
///
/// # Errors
///
/// There is no value for one.
pub(crate) fn bind(statement: &mut Statement, values: &[Parameter]) -> Result<()> {
    rewrite(statement, &mut Values(values))
}

struct Values<'v>(&'v [Parameter]);

impl VisitorMut for Values<'_> {
    type Break = DataFusionError;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        let number = match number(expression) {
            None => return ControlFlow::Continue(()),
            Some(Ok(number)) => number,
            Some(Err(error)) => return ControlFlow::Break(error),
        };
        let Some(value) = number.checked_sub(1).and_then(|at| self.0.get(at)) else {
            let why = format!("there is no value for the parameter ${number}");
            return ControlFlow::Break(DataFusionError::Plan(why));
        };
        *expression = literal(value);
        ControlFlow::Continue(())
    }
}

fn literal(value: &Parameter) -> Expr {
    let plain = |value: Value| Expr::Value(value.into());
    let text = |text: &str| plain(Value::SingleQuotedString(text.to_owned()));
    match value {
        Parameter::Null(None) => plain(Value::Null),
        Parameter::Null(Some(own)) => cast(plain(Value::Null), own),
        Parameter::Boolean(is_true) => plain(Value::Boolean(*is_true)),
        Parameter::Number(number) => match number.strip_prefix('-') {
            // In parentheses: `x -$1` would become a comment.
            Some(digits) => Expr::Nested(Box::new(Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(plain(Value::Number(digits.to_owned(), false))),
            })),
            None => plain(Value::Number(number.clone(), false)),
        },
        Parameter::Text(own) => text(own),
        Parameter::Typed(own, data_type) => cast(text(own), data_type),
        Parameter::List(items, data_type) => {
            let list =
                Expr::Array(Array { elem: items.iter().map(literal).collect(), named: true });
            match data_type {
                Some(item) => cast(list, &DataType::new_list(item.clone(), true)),
                None => list,
            }
        }
    }
}

fn cast(expression: Expr, data_type: &DataType) -> Expr {
    match sql_type(data_type) {
        Some(data_type) => statements::cast(expression, data_type),
        None => expression,
    }
}

/// The SQL type that is planned as a type.
fn sql_type(data_type: &DataType) -> Option<SqlType> {
    Some(match data_type {
        DataType::Boolean => SqlType::Boolean,
        DataType::Int16 => SqlType::SmallInt(None),
        DataType::Int32 => SqlType::Int(None),
        DataType::Int64 => SqlType::BigInt(None),
        DataType::Float32 => SqlType::Real,
        DataType::Float64 => SqlType::Double(ExactNumberInfo::None),
        DataType::Decimal128(digits, scale) => {
            let exact = ExactNumberInfo::PrecisionAndScale(u64::from(*digits), i64::from(*scale));
            SqlType::Numeric(exact)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => SqlType::Text,
        DataType::Date32 => SqlType::Date,
        DataType::Time64(_) => SqlType::Time(None, TimezoneInfo::None),
        DataType::Timestamp(_, None) => SqlType::Timestamp(Some(6), TimezoneInfo::None),
        DataType::Timestamp(_, Some(_)) => SqlType::Timestamp(Some(6), TimezoneInfo::WithTimeZone),
        DataType::Interval(_) => SqlType::Interval { fields: None, precision: None },
        DataType::Binary => SqlType::Bytea,
        DataType::List(item) => SqlType::Array(ArrayElemTypeDef::SquareBracket(
            Box::new(sql_type(item.data_type())?),
            None,
        )),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, TimeUnit};

    use super::{Parameter, bind, count, types};
    use crate::dialect::hogql;
    use crate::dialect::statements::query_in;

    /// Goal: a value is a literal, whatever is in it. Method: the tree is printed, and parsed again where it could be
    /// misread.
    #[test]
    fn values_become_literals() {
        let text = |text: &str| Parameter::Text(text.to_owned());
        let number = |text: &str| Parameter::Number(text.to_owned());
        let typed = |text: &str, data_type| Parameter::Typed(text.to_owned(), data_type);
        let day = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        for (sql, values, expected) in [
            ("SELECT $1", vec![text("a'b -- $2")], "SELECT 'a''b -- $2'"),
            ("SELECT $2, $1", vec![number("1"), number("-2.5e3")], "SELECT (-2.5e3), 1"),
            ("SELECT 1 -$1", vec![number("-1")], "SELECT 1 - (-1)"),
            ("SELECT $1 LIMIT $2", vec![Parameter::Null(None), number("5")], "SELECT NULL LIMIT 5"),
            (
                "SELECT $1",
                vec![Parameter::Null(Some(DataType::Int64))],
                "SELECT CAST(NULL AS BIGINT)",
            ),
            ("SELECT $1", vec![Parameter::Boolean(true)], "SELECT true"),
            (
                "SELECT a > $1",
                vec![typed("2026-01-01", day)],
                "SELECT a > CAST('2026-01-01' AS TIMESTAMP(6) WITH TIME ZONE)",
            ),
            (
                "SELECT a = ANY($1)",
                vec![Parameter::List(vec![text("x"), Parameter::Null(None)], Some(DataType::Utf8))],
                "SELECT a = ANY(CAST(ARRAY['x', NULL] AS TEXT[]))",
            ),
        ] {
            let mut statement = hogql::statement(sql, 50).unwrap();
            assert_eq!(count(&mut statement).unwrap(), values.len(), "{sql}");
            bind(&mut statement, &values).unwrap();
            assert_eq!(query_in(&mut statement).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn odd_parameters_are_refused() {
        for sql in ["SELECT $0", "SELECT $10001", "SELECT $99999999999999999999", "SELECT $x"] {
            let mut statement = hogql::statement(sql, 50).unwrap();
            assert!(count(&mut statement).is_err(), "{sql}");
        }
        let mut statement = hogql::statement("SELECT $1, $2", 50).unwrap();
        assert!(bind(&mut statement, &[Parameter::Boolean(true)]).is_err());
    }

    #[test]
    fn types_follow_from_casts_and_limits() {
        let sql =
            "SELECT $1::int, CAST($2 AS timestamptz), $3::text[], $4 FROM t LIMIT $5 OFFSET $6";
        let mut statement = hogql::statement(sql, 50).unwrap();
        let found: Vec<String> =
            types(&mut statement).iter().map(|(number, own)| format!("{number} {own}")).collect();
        let expected =
            ["1 Int32", "2 Timestamp(µs, \"UTC\")", "3 List(Utf8View)", "5 Int64", "6 Int64"];
        assert_eq!(found, expected);
    }
}
