//! Statements of clients of PostgreSQL about its catalog: parsed in PostgreSQL's own dialect ([`statement`]) and rewritten to
//! what DataFusion can plan ([`rewrite`]). They are about small tables of names, so a rewrite may be generous where it
//! cannot change an answer about these.
//!
//! - Names: `pg_class` is in the schema `pg_catalog`; functions and operators lose theirs; `(f(x)).n` is the place of an
//!   item of a list.
//! - Types: `regclass` and the like become look-ups, `name`, `"char"` and others become texts.
//! - A SELECT from a table that is always empty has no rows, whatever its expressions are: they become NULL, so that
//!   those need no plan.
//! - Subqueries as values: those over such tables are NULL, others give the greatest of their values, as DataFusion has
//!   correlated ones only of one row.
//! - Columns have the names that PostgreSQL gives them. Where two have the same, one is marked ([`pruned::unmarked`]).

pub(super) mod literals;
pub(crate) mod pruned;

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, DataType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, ObjectName,
    ObjectNamePart, Query, SelectItem, SetExpr, TableAliasColumnDef, TableFactor, Value,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

use crate::dialect::clickhouse::call;
use crate::dialect::postgres::literals::{constant, escape_of, literal, unescaped};
use crate::dialect::postgres::pruned::{Pruned, is_pruned, reads_nothing};
use crate::dialect::statements::{only, rewrite as rewrite_with, take};
use crate::dialect::{list_text, statements};
use crate::guard::complexity;
use crate::kernel::error::QueryError;

/// The schema of the catalog.
pub const CATALOG: &str = "pg_catalog";

/// The function that finds the id of a table, type or schema of a name; the first argument says which.
pub const ID_OF: &str = "weir_id_of";

/// The function that finds the name of an id.
pub const NAME_OF: &str = "weir_name_of";

/// The function that has the places of the items of a list.
pub const SUBSCRIPTS: &str = "weir_subscripts";

/// Aggregates, which give one row anyway.
const AGGREGATES: [&str; 11] = [
    "count",
    "max",
    "min",
    "sum",
    "avg",
    "array_agg",
    "string_agg",
    "bool_or",
    "bool_and",
    "json_agg",
    "json_object_agg",
];

/// Parses one statement.
///
/// # Errors
///
/// It is none, more than one, or too long to be planned.
pub(crate) fn statement(
    sql: &str,
    recursion_limit: usize,
) -> std::result::Result<Statement, QueryError> {
    complexity::check_in(&PostgreSqlDialect {}, sql)?;
    let statements = DFParserBuilder::new(sql)
        .with_dialect(&PostgreSqlDialect {})
        .with_recursion_limit(recursion_limit)
        .build()?
        .parse_statements()?;
    Ok(only(statements)?)
}

/// Rewrites a statement. `is_empty` says whether a table of the catalog never has rows.
///
/// # Errors
///
/// A part has no form here.
pub(crate) fn rewrite(
    statement: &mut Statement,
    is_empty: &(dyn Fn(&str) -> bool + Send + Sync),
) -> Result<()> {
    rewrite_with(statement, &mut Pruned { is_empty })?;
    rewrite_with(statement, &mut Rewrites { is_empty })?;
    rewrite_with(statement, &mut Subqueries { is_empty })
}

struct Rewrites<'r> {
    is_empty: &'r (dyn Fn(&str) -> bool + Send + Sync),
}

/// The last part of a name in lower case, unless it is quoted.
fn last(name: &ObjectName) -> String {
    let part = name.0.last().and_then(ObjectNamePart::as_ident);
    part.map(
        |own| if own.quote_style.is_some() { own.value.clone() } else { own.value.to_lowercase() },
    )
    .unwrap_or_default()
}

/// Whether a name has this schema in front.
fn is_in(name: &ObjectName, schema: &str) -> bool {
    let first = name.0.first().and_then(ObjectNamePart::as_ident);
    name.0.len() > 1 && first.is_some_and(|own| own.value.eq_ignore_ascii_case(schema))
}

impl VisitorMut for Rewrites<'_> {
    type Break = DataFusionError;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<DataFusionError> {
        // A function in FROM gives its only column the name that it has itself.
        let alias = match table {
            TableFactor::UNNEST { alias, .. } => alias.as_mut(),
            TableFactor::Table { args: Some(args), alias, .. } if !args.args.is_empty() => {
                alias.as_mut()
            }
            _ => None,
        };
        if let Some(alias) = alias.filter(|own| own.columns.is_empty()) {
            let name = alias.name.clone();
            alias.columns.push(TableAliasColumnDef { name, data_type: None });
        }
        if let TableFactor::Table { name, args, .. } = table {
            if name.0.len() == 1 && last(name).starts_with("pg_") {
                name.0.insert(0, ObjectNamePart::Identifier(Ident::new(CATALOG)));
            }
            // A function without arguments is a table, such as `pg_get_keywords()`.
            if args.as_ref().is_some_and(|args| args.args.is_empty()) {
                *args = None;
            }
            if args.is_some() && is_in(name, CATALOG) {
                name.0.remove(0);
            }
            // The places of the schemas of the search path, or of another list of one item.
            if let Some(args) = args.as_mut().filter(|_| last(name) == "generate_series") {
                let number = |own: &str| Expr::Value(Value::Number(own.to_owned(), false).into());
                let all = args.args.iter().map(ToString::to_string).collect::<String>();
                if all.contains("array_") {
                    let last = if all.contains("current_schemas(true)") { "2" } else { "1" };
                    let both = [number("1"), number(last)];
                    args.args =
                        both.map(|own| FunctionArg::Unnamed(FunctionArgExpr::Expr(own))).to_vec();
                    *name = ObjectName::from(vec![Ident::new("generate_series")]);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        match expression {
            Expr::Function(function) => called(function),
            Expr::Collate { expr, .. } => *expression = take(expr),
            Expr::BinaryOp { left, op, right } => {
                // An id of a function is shown by its name, and none by a dash.
                if is_function_id(left) && is_zero(right) {
                    **right = text("-");
                }
                if let BinaryOperator::PGCustomBinaryOperator(names) = op {
                    match names.last().and_then(|name| operator(name)) {
                        Some(own) => *op = own,
                        None => {
                            return refused(&format!("there is no operator {}", names.join(".")));
                        }
                    }
                }
            }
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Some(items) = literal(right).and_then(|own| list_text::items(own).ok()) {
                    **right = array(items);
                }
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                if let Some(own) = escape_char.take() {
                    match (constant(pattern), escape_of(&own.value)) {
                        (Some(own), Some(sign)) => **pattern = text(&unescaped(&own, sign)),
                        _ => *escape_char = Some(own),
                    }
                }
            }
            Expr::CompoundFieldAccess { .. } => accessed(expression),
            Expr::Identifier(name) if name.quote_style.is_none() => {
                if matches!(&*name.value.to_lowercase(), "current_schema" | "current_role") {
                    *expression = call(&name.value.to_lowercase(), Vec::new());
                }
            }
            Expr::Cast { .. } => cast(expression),
            _ => {}
        }
        if let Expr::Function(function) = expression {
            let name = last(&function.name);
            if matches!(&*name, "generate_subscripts" | "_pg_expandarray") {
                let list = first_argument(function);
                let items =
                    if name == "_pg_expandarray" { list } else { call(SUBSCRIPTS, vec![list]) };
                *expression = call("unnest", vec![items]);
            } else if name == "array"
                && let FunctionArguments::Subquery(query) = &function.args
            {
                *expression = listed(query, self.is_empty);
            }
        }
        ControlFlow::Continue(())
    }
}

fn refused(why: &str) -> ControlFlow<DataFusionError> {
    ControlFlow::Break(DataFusionError::Plan(why.to_owned()))
}

/// Removes the schema of a function, and gives arguments to those that need none.
fn called(function: &mut Function) {
    if is_in(&function.name, CATALOG) || is_in(&function.name, "information_schema") {
        let name = last(&function.name);
        function.name = ObjectName::from(vec![Ident::new(name)]);
    }
    if matches!(function.args, FunctionArguments::None) {
        function.args = FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: Vec::new(),
            clauses: Vec::new(),
        });
    }
}

fn operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        ">" => BinaryOperator::Gt,
        "<=" => BinaryOperator::LtEq,
        ">=" => BinaryOperator::GtEq,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "||" => BinaryOperator::StringConcat,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        _ => return None,
    })
}

/// `(_pg_expandarray(x)).n` is the place of an item, `(y).x` the item itself, where `y` stands for such a call.
fn accessed(expression: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expression else { return };
    let [AccessExpr::Dot(Expr::Identifier(field))] = access_chain.as_slice() else { return };
    let field = field.value.to_lowercase();
    let mut inner = take(root);
    while let Expr::Nested(nested) = inner {
        inner = *nested;
    }
    // By now the call has become `unnest(x)`.
    let is_call = matches!(&inner, Expr::Function(own) if last(&own.name) == "unnest");
    *expression = match (inner, field.as_str(), is_call) {
        (Expr::Function(own), "n", true) => {
            call("unnest", vec![call(SUBSCRIPTS, vec![first_argument(&own)])])
        }
        (inner, ..) => inner,
    };
}

fn first_argument(function: &Function) -> Expr {
    let first = match &function.args {
        FunctionArguments::List(list) => list.args.first(),
        _ => None,
    };
    match first {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(own))) => own.clone(),
        _ => Expr::Value(Value::Null.into()),
    }
}

fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

/// Whether an expression is a column of functions of a type.
fn is_function_id(expression: &Expr) -> bool {
    let name = match expression {
        Expr::Identifier(name) => &name.value,
        Expr::CompoundIdentifier(names) => match names.last() {
            Some(name) => &name.value,
            None => return false,
        },
        _ => return false,
    };
    ["typinput", "typoutput", "typreceive", "typsend"].contains(&name.as_str())
}

fn is_zero(expression: &Expr) -> bool {
    matches!(expression, Expr::Value(value) if matches!(&value.value, Value::Number(own, _) if own == "0"))
}

/// The last part of the name of a type in lower case.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Custom(name, _) => last(name),
        DataType::Regclass => "regclass".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

fn cast(expression: &mut Expr) {
    let Expr::Cast { expr, data_type, .. } = expression else { return };
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(item, size)) = data_type {
        let own = plain_type(item).unwrap_or_else(|| (**item).clone());
        *data_type = DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(own), *size));
        if let Some(items) = literal(expr).and_then(|own| list_text::items(own).ok()) {
            **expr = array(items);
        }
        return;
    }
    let name = type_name(data_type);
    let kind = match name.as_str() {
        "regclass" | "regtype" | "regnamespace" | "regrole" => name.clone(),
        "regproc" | "regprocedure" if literal(expr).is_some() => {
            let own = literal(expr).and_then(|own| own.rsplit('.').next()).unwrap_or_default();
            *expression = text(own);
            return;
        }
        _ => {
            if let Some(own) = plain_type(data_type) {
                *data_type = own;
            }
            return;
        }
    };
    // A text names something of which the id is meant; an id is shown by its name.
    let value = match literal(expr) {
        Some(own) => call(ID_OF, vec![text(&kind), text(own)]),
        None => call(NAME_OF, vec![text(&kind), take(expr)]),
    };
    *expression = value;
}

/// The type that stands for one of PostgreSQL's, if another one has to.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    Some(match type_name(data_type).as_str() {
        "oid" | "xid" | "cid" | "xid8" => DataType::BigInt(None),
        "int2" => DataType::SmallInt(None),
        "int4" | "cardinal_number" => DataType::Int(None),
        "int8" => DataType::BigInt(None),
        "float8" => DataType::DoublePrecision,
        "bool" => DataType::Boolean,
        "name" | "char" | "\"char\"" | "text" | "varchar" | "bpchar" | "cstring"
        | "sql_identifier" | "character_data" | "yes_or_no" | "regproc" | "regprocedure"
        | "regclass" | "regtype" | "json" | "jsonb" | "int2vector" | "oidvector" | "aclitem"
        | "pg_node_tree" | "inet" | "unknown" => DataType::Text,
        _ => return None,
    })
}

/// `ARRAY(SELECT x ...)` is the list of the values.
fn listed(query: &Query, is_empty: &dyn Fn(&str) -> bool) -> Expr {
    let mut query = query.clone();
    // Items of lists in the catalog, all of which are NULL.
    let is_of_items = query.to_string().contains("unnest(") || is_pruned(&query);
    let is_wrapped =
        !is_of_items && !reads_nothing(&query, is_empty) && wrap(&mut query, "array_agg");
    match is_wrapped {
        true => Expr::Subquery(Box::new(query)),
        false => {
            let item = Box::new(DataType::Text);
            let texts = DataType::Array(ArrayElemTypeDef::SquareBracket(item, None));
            statements::cast(Expr::Value(Value::Null.into()), texts)
        }
    }
}

fn array(items: Vec<Option<String>>) -> Expr {
    let item =
        |own: Option<String>| own.map_or_else(|| Expr::Value(Value::Null.into()), |own| text(&own));
    Expr::Array(Array { elem: items.into_iter().map(item).collect(), named: true })
}

/// Wraps the only column of a plain SELECT in an aggregate. Returns whether it is one now.
fn wrap(query: &mut Query, aggregate: &str) -> bool {
    if query.limit_clause.is_some() {
        query.limit_clause = None;
    }
    query.order_by = None;
    let SetExpr::Select(select) = &mut *query.body else { return false };
    let is_grouped =
        !matches!(&select.group_by, GroupByExpr::Expressions(own, _) if own.is_empty());
    let [item] = select.projection.as_mut_slice() else { return false };
    let (SelectItem::UnnamedExpr(own) | SelectItem::ExprWithAlias { expr: own, .. }) = item else {
        return false;
    };
    if is_grouped || select.having.is_some() || select.distinct.is_some() {
        return is_grouped;
    }
    let is_aggregate =
        matches!(own, Expr::Function(call) if AGGREGATES.contains(&last(&call.name).as_str()));
    if !is_aggregate {
        let value = take(own);
        *own = call(aggregate, vec![value]);
    }
    true
}

/// Subqueries as values.
struct Subqueries<'r> {
    is_empty: &'r (dyn Fn(&str) -> bool + Send + Sync),
}

impl VisitorMut for Subqueries<'_> {
    type Break = DataFusionError;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
        // All texts have the usual collation, so that clients are told of none.
        let is_of_collation = |query: &Query| query.to_string().contains(".pg_collation ");
        let is_none = |query: &Query| {
            is_pruned(query) || is_of_collation(query) || reads_nothing(query, &self.is_empty)
        };
        match expression {
            Expr::Subquery(query) if is_none(query) => {
                *expression = Expr::Value(Value::Null.into())
            }
            Expr::Subquery(query) => {
                wrap(query, "max");
            }
            Expr::Exists { subquery, negated } if is_none(subquery) => {
                *expression = Expr::Value(Value::Boolean(*negated).into());
            }
            Expr::InSubquery { subquery, negated, .. } if is_none(subquery) => {
                *expression = Expr::Value(Value::Boolean(*negated).into());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::{rewrite, statement};
    use crate::dialect::statements::query_in;

    #[test]
    fn catalog_queries_become_plain() {
        for (sql, expected) in [
            (
                "SELECT c.relname FROM pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(x)$' COLLATE pg_catalog.default",
                "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname ~ '^(x)$'",
            ),
            (
                "SELECT pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a WHERE a.attrelid = '16384'",
                "SELECT format_type(a.atttypid, a.atttypmod) AS \"format_type\" FROM pg_catalog.pg_attribute a WHERE a.attrelid = '16384'",
            ),
            (
                "SELECT 'events'::regclass",
                "SELECT weir_id_of('regclass', 'events') AS \"regclass\"",
            ),
            (
                "SELECT c.oid::pg_catalog.regclass",
                "SELECT weir_name_of('regclass', c.oid) AS \"oid\"",
            ),
            (
                "SELECT typinput = 'pg_catalog.array_in'::regproc AS a",
                "SELECT typinput = 'array_in' AS a",
            ),
            (
                "SELECT x::name, y::oid, z::\"char\"",
                "SELECT x::TEXT AS \"x\", y::BIGINT AS \"y\", z::TEXT AS \"z\"",
            ),
            ("SELECT '{r,v}'::\"char\"[] AS a", "SELECT ARRAY['r', 'v']::TEXT[] AS a"),
            (
                "SELECT 1 AS a WHERE x = ANY('{r,p}')",
                "SELECT 1 AS a WHERE x = ANY(ARRAY['r', 'p'])",
            ),
            ("SELECT n.oid, n.* FROM n", "SELECT n.oid AS \"weir:0:oid\", n.* FROM n"),
            (
                "SELECT d.x, f(d.y), '', '' FROM pg_description d ORDER BY d.z",
                "SELECT CAST(NULL AS TEXT) AS \"x\", CAST(NULL AS TEXT) AS \"f\", CAST(NULL AS TEXT) AS \"?column?\", CAST(NULL AS TEXT) AS \"weir:3:?column?\" WHERE false",
            ),
            (
                "SELECT count(*) AS n FROM pg_description",
                "SELECT count(*) AS n FROM pg_catalog.pg_description",
            ),
            (
                "SELECT c.relname FROM pg_class c LEFT JOIN pg_description d ON d.objoid = c.oid",
                "SELECT c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_description d ON d.objoid = c.oid",
            ),
            (
                "SELECT (SELECT d.description FROM pg_description d WHERE d.objoid = c.oid) FROM pg_class c",
                "SELECT NULL AS \"?column?\" FROM pg_catalog.pg_class c",
            ),
            (
                "SELECT (SELECT n.nspname FROM pg_namespace n WHERE n.oid = c.relnamespace) FROM pg_class c",
                "SELECT (SELECT max(n.nspname) FROM pg_catalog.pg_namespace n WHERE n.oid = c.relnamespace) AS \"?column?\" FROM pg_catalog.pg_class c",
            ),
            ("SELECT EXISTS (SELECT 1 FROM pg_description)", "SELECT false AS \"exists\""),
            (
                "SELECT (information_schema._pg_expandarray(i.indkey)).n AS n, information_schema._pg_expandarray(i.indkey) AS k FROM pg_index i",
                "SELECT unnest(weir_subscripts(i.indkey)) AS n, unnest(i.indkey) AS k FROM pg_catalog.pg_index i",
            ),
            ("SELECT (r.keys).x AS k FROM r", "SELECT r.keys AS k FROM r"),
            (
                "SELECT current_schema AS a, current_user AS b",
                "SELECT current_schema() AS a, current_user() AS b",
            ),
            // The database is a catalog of the engine.
            ("SELECT * FROM shop.public.events", "SELECT * FROM shop.public.events"),
            (
                "SELECT '{a,\"b,c\",NULL}'::text[] AS a",
                "SELECT ARRAY['a', 'b,c', NULL]::TEXT[] AS a",
            ),
            (
                "SELECT word FROM pg_catalog.pg_get_keywords()",
                "SELECT word FROM pg_catalog.pg_get_keywords",
            ),
        ] {
            let mut statement = statement(sql, 50).unwrap();
            rewrite(&mut statement, &|table| table == "pg_description").unwrap();
            assert_eq!(query_in(&mut statement).unwrap().to_string(), expected);
        }
    }
}
