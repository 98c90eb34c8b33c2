//! Functions of ClickHouse whose arguments are looked at before they become others: paths into JSON, lists of values, and
//! lambdas.

use std::mem;

use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::AccessExpr;
use datafusion::sql::sqlparser::ast::CaseWhen;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::ast::Function;
use datafusion::sql::sqlparser::ast::FunctionArg;
use datafusion::sql::sqlparser::ast::FunctionArgExpr;
use datafusion::sql::sqlparser::ast::FunctionArgumentList;
use datafusion::sql::sqlparser::ast::FunctionArguments;
use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::ast::Subscript;
use datafusion::sql::sqlparser::ast::UnaryOperator;
use datafusion::sql::sqlparser::ast::Value;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;

/// Functions of a JSON text and a path into it, and what they are here.
const OF_JSON: [(&str, &str); 10] = [
    ("JSONExtractString", "json_as_text"),
    ("JSONExtractRaw", "json_get_json"),
    ("JSONExtractArrayRaw", "json_get_array"),
    ("JSONExtractInt", "json_get_int"),
    ("JSONExtractUInt", "json_get_int"),
    ("JSONExtractFloat", "json_get_float"),
    ("JSONExtractBool", "json_get_bool"),
    ("JSONExtractKeys", "json_object_keys"),
    ("JSONLength", "json_length"),
    ("JSONHas", "json_contains"),
];

/// What `JSONExtract` gives by the type in its last argument.
const JSON_TYPES: [(&str, &str); 8] = [
    ("String", "json_as_text"),
    ("Nullable(String)", "json_as_text"),
    ("Int64", "json_get_int"),
    ("Nullable(Int64)", "json_get_int"),
    ("Float64", "json_get_float"),
    ("Nullable(Float64)", "json_get_float"),
    ("Bool", "json_get_bool"),
    ("Nullable(Bool)", "json_get_bool"),
];

/// Functions of a list that a lambda may make of others first.
const OF_MAPPED: [&str; 9] = [
    "arrayAll",
    "arrayAvg",
    "arrayCount",
    "arrayExists",
    "arrayFirstIndex",
    "arrayMax",
    "arrayMin",
    "arraySum",
    "arrayProduct",
];

/// Names of these functions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let of_json = OF_JSON.iter().map(|(name, _)| *name);
    of_json.chain(["JSONExtract", "transform", "tuple", "arrayFirst", "arrayLast"])
}

/// What a function is whose arguments are to be looked at; they are taken if it is one.
pub(super) fn built(name: &str, arguments: &mut Vec<Expr>) -> Result<Option<Expr>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    if is("JSONExtract") {
        return typed_json(arguments).map(Some);
    }
    if let Some((_, here)) = OF_JSON.iter().find(|(own, _)| is(own)) {
        return of_json(name, here, mem::take(arguments)).map(Some);
    }
    if is("transform") {
        return transformed(mem::take(arguments)).map(Some);
    }
    if is("tuple") && !arguments.is_empty() {
        return Ok(Some(call("struct", mem::take(arguments))));
    }
    if matches!(arguments.first(), Some(Expr::Lambda(_))) {
        return Ok(of_lambda(name, arguments));
    }
    Ok(None)
}

/// A call of a function.
pub(in crate::query) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument));
    let list = FunctionArgumentList {
        duplicate_treatment: None,
        args: arguments.into_iter().map(argument).collect(),
        clauses: Vec::new(),
    };
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn refused(why: impl Into<String>) -> DataFusionError {
    DataFusionError::Plan(why.into())
}

fn of_json(name: &str, here: &str, arguments: Vec<Expr>) -> Result<Expr> {
    let mut arguments = arguments.into_iter();
    let json = arguments.next().ok_or_else(|| refused(format!("{name} takes a JSON text")))?;
    let mut all = vec![json];
    for part in arguments {
        all.push(step(&part).ok_or_else(|| {
            refused(format!(
                "behind the JSON text, {name} takes keys as texts and places as whole numbers from 1 on"
            ))
        })?);
    }
    Ok(call(here, all))
}

/// A part of a path: places count from 1 there and from 0 here, and from the end if they are negative.
pub(in crate::query) fn step(part: &Expr) -> Option<Expr> {
    let number = |number: i64| {
        let digits = Value::Number(number.unsigned_abs().to_string(), false);
        let digits = Expr::Value(digits.into());
        match number < 0 {
            true => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(digits) },
            false => digits,
        }
    };
    match part {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(_) => Some(part.clone()),
            Value::Number(digits, _) => {
                digits.parse::<i64>().ok()?.checked_sub(1).filter(|at| *at >= 0).map(number)
            }
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => {
                    digits.parse::<i64>().ok().filter(|at| *at > 0).map(|at| number(-at))
                }
                _ => None,
            },
            _ => None,
        },
        Expr::Nested(inner) => step(inner),
        _ => None,
    }
}

fn typed_json(arguments: &mut Vec<Expr>) -> Result<Expr> {
    let sent = arguments.pop().as_ref().and_then(super::text).unwrap_or_default();
    let known = JSON_TYPES.iter().find(|(own, _)| *own == sent);
    let (_, here) = known.ok_or_else(|| {
        let known: Vec<&str> = JSON_TYPES.iter().map(|(own, _)| *own).collect();
        refused(format!("the last argument of JSONExtract is one of {}", known.join(", ")))
    })?;
    of_json("JSONExtract", here, mem::take(arguments))
}

/// `transform(x, [from, ...], [to, ...], otherwise)`; without the last argument what is in no list stays.
fn transformed(arguments: Vec<Expr>) -> Result<Expr> {
    let why = "transform takes a value, two lists of as many values, and what others become";
    let mut arguments = arguments.into_iter();
    let (Some(value), Some(Expr::Array(from)), Some(Expr::Array(to)), otherwise, None) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(refused(why));
    };
    if from.elem.len() != to.elem.len() || from.elem.is_empty() {
        return Err(refused(why));
    }
    let otherwise = match (otherwise, &value) {
        (Some(otherwise), _) => otherwise,
        (None, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)) => value.clone(),
        (None, _) => return Err(refused("transform of an expression says what others become")),
    };
    let cases = from.elem.into_iter().zip(to.elem);
    let conditions = cases.map(|(condition, result)| CaseWhen { condition, result }).collect();
    Ok(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: Some(Box::new(value)),
        conditions,
        else_result: Some(Box::new(otherwise)),
    })
}

/// What a function with a lambda is: `arraySum(f, list)` is the sum of what the lambda makes of each.
fn of_lambda(name: &str, arguments: &mut Vec<Expr>) -> Option<Expr> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    if let Some(own) = OF_MAPPED.into_iter().find(|own| is(own)) {
        return Some(call(own, vec![call("arrayMap", mem::take(arguments))]));
    }
    let at = match () {
        () if is("arraySort") => return Some(call("array_sort_by", mem::take(arguments))),
        () if is("arrayReverseSort") => {
            return Some(call("array_reverse_sort_by", mem::take(arguments)));
        }
        () if is("arrayFirst") => "1",
        () if is("arrayLast") => "-1",
        () => return None,
    };
    let filtered = call("arrayFilter", mem::take(arguments));
    let index = Expr::Value(Value::Number(at.trim_start_matches('-').to_owned(), false).into());
    let index = match at.starts_with('-') {
        true => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(index) },
        false => index,
    };
    Some(Expr::CompoundFieldAccess {
        root: Box::new(filtered),
        access_chain: vec![AccessExpr::Subscript(Subscript::Index { index })],
    })
}
