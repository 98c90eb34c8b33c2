//! ClickHouse functions of which the arguments are inspected to build the replacement: JSON paths, lists of values, and
//! lambdas.

use std::mem;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Subscript, UnaryOperator, Value,
};

use crate::dialect::sql_text::literal;

/// Functions of a JSON text and a path into it, with the functions that replace them.
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

/// Replacements of `JSONExtract`, by the type in its last argument.
const JSON_TYPES: [(&str, &str); 10] = [
    ("String", "json_as_text"),
    ("Nullable(String)", "json_as_text"),
    ("Int64", "json_get_int"),
    ("Nullable(Int64)", "json_get_int"),
    ("UInt64", "json_get_int"),
    ("Nullable(UInt64)", "json_get_int"),
    ("Float64", "json_get_float"),
    ("Nullable(Float64)", "json_get_float"),
    ("Bool", "json_get_bool"),
    ("Nullable(Bool)", "json_get_bool"),
];

/// Maximum parts that `format` concatenates.
const FORMAT_PARTS_MAX: usize = 64;

/// Functions of a list that accept a lambda to map its elements first.
const OF_MAPPED: [&str; 12] = [
    "arrayAll",
    "arrayAvg",
    "arrayCount",
    "arrayCumSum",
    "arrayDifference",
    "arrayExists",
    "arrayFirstIndex",
    "arrayLastIndex",
    "arrayMax",
    "arrayMin",
    "arraySum",
    "arrayProduct",
];

/// Names of these functions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let of_json = OF_JSON.iter().map(|(name, _)| *name);
    let others = [
        "JSONExtract",
        "arrayFirst",
        "arrayLast",
        "arrayReduce",
        "format",
        "in",
        "multiMatchAny",
        "notIn",
        "transform",
        "tuple",
        "tupleElement",
    ];
    of_json.chain(others)
}

/// Builds the replacement of a function of this file, and takes its arguments; `None` for other functions.
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
    if let Some(literal) = of_literal(name, arguments)? {
        return Ok(Some(literal));
    }
    if matches!(arguments.first(), Some(Expr::Lambda(_))) {
        return Ok(of_lambda(name, arguments));
    }
    Ok(None)
}

/// A function of which one argument must be a literal, which determines how the others are used.
fn of_literal(name: &str, arguments: &mut Vec<Expr>) -> Result<Option<Expr>> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    Ok(match () {
        () if is("arrayReduce") => Some(reduced(mem::take(arguments))?),
        () if is("tupleElement") => Some(element_of(mem::take(arguments))?),
        () if is("multiMatchAny") => Some(any_match(mem::take(arguments))?),
        () if is("in") => Some(one_of(mem::take(arguments), false)?),
        () if is("notIn") => Some(one_of(mem::take(arguments), true)?),
        () => None,
    })
}

/// A function call.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
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

/// A step of a JSON path: indexes are 1-based in ClickHouse and 0-based here; negative ones count from the end in both.
pub(crate) fn step(part: &Expr) -> Option<Expr> {
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

/// Aggregates that `arrayReduce` supports, with the list functions that replace them.
const OF_LISTS: [(&str, &str); 8] = [
    ("avg", "arrayAvg"),
    ("count", "length_of"),
    ("max", "arrayMax"),
    ("min", "arrayMin"),
    ("sum", "arraySum"),
    ("uniq", "arrayUniq"),
    ("uniqExact", "arrayUniq"),
    ("groupUniqArray", "arrayDistinct"),
];

/// `arrayReduce('max', list)`
fn reduced(mut arguments: Vec<Expr>) -> Result<Expr> {
    let sent = arguments.first().and_then(super::text).unwrap_or_default();
    let known = OF_LISTS.iter().find(|(own, _)| *own == sent);
    match known.filter(|_| arguments.len() == 2) {
        Some((_, here)) => Ok(call(here, arguments.split_off(1))),
        None => {
            let known: Vec<&str> = OF_LISTS.iter().map(|(own, _)| *own).collect();
            Err(refused(format!("arrayReduce takes one of {} and an array", known.join(", "))))
        }
    }
}

/// `tupleElement(t, 1)`
fn element_of(mut arguments: Vec<Expr>) -> Result<Expr> {
    let place = match arguments.as_slice() {
        [_, Expr::Value(value)] => match &value.value {
            Value::Number(digits, _) => digits.parse::<usize>().ok(),
            _ => None,
        },
        _ => None,
    };
    let Some(place) = place.and_then(|place| place.checked_sub(1)) else {
        return Err(refused("tupleElement takes a tuple and a place in it, from 1 on"));
    };
    arguments.truncate(1);
    arguments.push(Expr::Value(Value::SingleQuotedString(format!("c{place}")).into()));
    Ok(call("get_field", arguments))
}

/// `multiMatchAny(s, [p, q])`
fn any_match(arguments: Vec<Expr>) -> Result<Expr> {
    let why = "multiMatchAny takes a text and an array of patterns that are written out";
    let Ok([text, Expr::Array(patterns)]) = <[Expr; 2]>::try_from(arguments) else {
        return Err(refused(why));
    };
    let all: Option<Vec<String>> = patterns.elem.iter().map(super::text).collect();
    // The alternation of all patterns: it matches if any of them does.
    let all = all.filter(|all| !all.is_empty()).ok_or_else(|| refused(why))?;
    let grouped: Vec<String> = all.iter().map(|own| format!("(?s:{own})")).collect();
    let pattern = Expr::Value(Value::SingleQuotedString(grouped.join("|")).into());
    Ok(call("regexp_like", vec![text, pattern]))
}

/// `in(x, [a, b])`
fn one_of(arguments: Vec<Expr>, negated: bool) -> Result<Expr> {
    let Ok([value, list]) = <[Expr; 2]>::try_from(arguments) else {
        return Err(refused("in and notIn take a value and an array"));
    };
    let list = match list {
        Expr::Array(array) => array.elem,
        Expr::Tuple(values) => values,
        Expr::Nested(only) => vec![*only],
        list => {
            let has = call("array_has", vec![list, value]);
            return Ok(match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(has) },
                false => has,
            });
        }
    };
    Ok(match list.is_empty() {
        true => Expr::Value(Value::Boolean(negated).into()),
        false => Expr::InList { expr: Box::new(value), list, negated },
    })
}

/// The template of `format('{} and {}', a, b)`, `format('{1} {0}', a, b)`: a concatenation of texts and arguments.
/// Removes the first argument.
pub(super) fn formatted(arguments: &mut Vec<Expr>) -> Result<String> {
    let why = "format takes a text with {} or {0} in the place of arguments, and these";
    let pattern = arguments.first().and_then(super::text).ok_or_else(|| refused(why))?;
    arguments.remove(0);
    let (mut parts, mut text, mut next) = (Vec::new(), String::new(), 0_usize);
    let mut signs = pattern.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '{' | '}' if signs.peek() == Some(&sign) => {
                signs.next();
                text.push(sign);
            }
            '{' => {
                let number: String = signs.by_ref().take_while(|sign| *sign != '}').collect();
                let at = if number.is_empty() { Some(next) } else { number.parse().ok() };
                next = next.saturating_add(1);
                let at = at.filter(|at| *at < arguments.len()).ok_or_else(|| refused(why))?;
                parts.push(literal(&mem::take(&mut text)));
                parts.push(format!("CAST(${} AS VARCHAR)", at.saturating_add(1)));
            }
            '}' => return Err(refused(why)),
            sign => text.push(sign),
        }
        if parts.len() > FORMAT_PARTS_MAX {
            return Err(refused("format takes fewer places for arguments"));
        }
    }
    parts.push(literal(&text));
    Ok(format!("({})", parts.join(" || ")))
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

/// `transform(x, [from, ...], [to, ...], otherwise)`; without the last argument, values that are not in the list are
/// kept.
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

/// The replacement of a function with a lambda: `arraySum(f, list)` is the sum of the lambda's results for each
/// element.
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
