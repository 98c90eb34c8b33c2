//! Properties in SQL as analysts write them: `properties.plan`, `properties['plan']`, `e.properties.address.city`.
//!
//! [`rewrite`] brings all forms to that with brackets before planning, where keys are still written as in the
//! query. [`PropertyPlanner`] plans an access: the promoted column if the table has one, else the value in the
//! JSON text, as text.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::common::DFSchema;
use datafusion::common::ExprSchema;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::ExprSchemable;
use datafusion::logical_expr::GetFieldAccess;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::lit;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::planner::PlannerResult;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::planner::RawFieldAccessExpr;
use datafusion::logical_expr::try_cast;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::AccessExpr;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use datafusion::sql::sqlparser::ast::Expr as SqlExpr;
use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::ast::SelectItem;
use datafusion::sql::sqlparser::ast::SetExpr;
use datafusion::sql::sqlparser::ast::Subscript;
use datafusion::sql::sqlparser::ast::TableFactor;
use datafusion::sql::sqlparser::ast::Value;
use datafusion::sql::sqlparser::ast::Visit;
use datafusion::sql::sqlparser::ast::VisitMut;
use datafusion::sql::sqlparser::ast::Visitor;
use datafusion::sql::sqlparser::ast::VisitorMut;

use crate::event::schema::PROMOTED;
use crate::event::schema::promoted_column_name;
use crate::query::asked::asked;
use crate::query::asked::take;

/// The column with the JSON text, in every table that has one.
const PROPERTIES: &str = "properties";

/// The start of the names of columns with properties of persons.
pub(super) const OF_PERSONS: &str = "person.properties.";

/// The function that gives a value of a JSON text as text.
const AS_TEXT: &str = "json_as_text";

/// Brings every access to a property to the form with brackets, and names the columns of an answer by the last key.
/// A statement that has a table or an alias called `properties` is left as it is.
pub(super) fn rewrite(statement: &mut Statement) {
    let query = asked(statement);
    if let Some(query) = query.filter(|query| Visit::visit(&**query, &mut HasTable).is_continue()) {
        let _ = VisitMut::visit(query, &mut Rewriter);
    }
}

fn is_properties(ident: &Ident) -> bool {
    match ident.quote_style {
        Some(_) => ident.value == PROPERTIES,
        None => ident.value.eq_ignore_ascii_case(PROPERTIES),
    }
}

/// Stops at a table or an alias with the name of the column.
struct HasTable;

impl Visitor for HasTable {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        let (name, alias) = match table {
            TableFactor::Table { name, alias, .. } => {
                (name.0.last().and_then(|part| part.as_ident()), alias)
            }
            TableFactor::Derived { alias, .. } => (None, alias),
            _ => (None, &None),
        };
        let alias = alias.as_ref().map(|alias| &alias.name);
        match name.into_iter().chain(alias).any(is_properties) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // With DISTINCT, what an answer is ordered by has to be written as in the list of columns.
        let is_ordered = query.order_by.is_some();
        if let SetExpr::Select(select) = &mut *query.body
            && !(is_ordered && select.distinct.is_some())
        {
            name_columns(&mut select.projection);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut SqlExpr) -> ControlFlow<()> {
        if let Some((column, keys)) = access(expression) {
            let subscript = |key: String| {
                let index = SqlExpr::Value(Value::SingleQuotedString(key).into());
                AccessExpr::Subscript(Subscript::Index { index })
            };
            let root = match <[Ident; 1]>::try_from(column) {
                Ok([column]) => SqlExpr::Identifier(column),
                Err(parts) => SqlExpr::CompoundIdentifier(parts),
            };
            *expression = SqlExpr::CompoundFieldAccess {
                root: Box::new(root),
                access_chain: keys.into_iter().map(subscript).collect(),
            };
        }
        ControlFlow::Continue(())
    }
}

/// The column and the keys of an expression that is an access to a property.
pub(super) fn access(expression: &SqlExpr) -> Option<(Vec<Ident>, Vec<String>)> {
    let (mut names, chain): (Vec<Ident>, &[AccessExpr]) = match expression {
        SqlExpr::CompoundIdentifier(names) => (names.clone(), &[]),
        SqlExpr::CompoundFieldAccess { root, access_chain } => match &**root {
            SqlExpr::Identifier(name) => (vec![name.clone()], access_chain),
            SqlExpr::CompoundIdentifier(names) => (names.clone(), access_chain),
            _ => return None,
        },
        _ => return None,
    };
    let mut keys = Vec::new();
    let mut rest = chain.iter().peekable();
    while let Some(AccessExpr::Dot(SqlExpr::Identifier(name))) = rest.peek() {
        names.push(name.clone());
        rest.next();
    }
    let at = names.iter().position(is_properties)?;
    keys.extend(names.drain(at + 1..).map(|name| name.value));
    for access in rest {
        keys.push(match access {
            AccessExpr::Dot(SqlExpr::Identifier(name)) => name.value.clone(),
            AccessExpr::Subscript(Subscript::Index { index: SqlExpr::Value(value) }) => {
                match &value.value {
                    Value::SingleQuotedString(key) | Value::DoubleQuotedString(key) => key.clone(),
                    _ => return None,
                }
            }
            _ => return None,
        });
    }
    (!keys.is_empty()).then_some((names, keys))
}

/// Names each column without a name that is an access by its last key, unless another one has it.
fn name_columns(items: &mut [SelectItem]) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let key = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expression) => access(expression)?.1.pop(),
        _ => None,
    };
    for item in items.iter() {
        let name = match item {
            SelectItem::UnnamedExpr(SqlExpr::Identifier(name)) => Some(name.value.clone()),
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
            item => key(item),
        };
        if let Some(name) = name {
            *counts.entry(name).or_default() += 1;
        }
    }
    let has_wildcard = items
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    for item in items {
        let Some(name) = key(item).filter(|name| !has_wildcard && counts.get(name) == Some(&1))
        else {
            continue;
        };
        if let SelectItem::UnnamedExpr(expr) = item {
            let expr = take(expr);
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
        }
    }
}

/// Plans an access with brackets, and comparisons of what it gives with numbers and truth values.
#[derive(Debug)]
pub(super) struct PropertyPlanner;

impl ExprPlanner for PropertyPlanner {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let GetFieldAccess::NamedStructField { name: ScalarValue::Utf8(Some(key)) } =
            &access.field_access
        else {
            return Ok(PlannerResult::Original(access));
        };
        match planned(&access.expr, key, schema) {
            Some(planned) => Ok(PlannerResult::Planned(planned)),
            None => Ok(PlannerResult::Original(access)),
        }
    }

    fn plan_binary_op(
        &self,
        mut binary: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_wanted = matches!(
            binary.op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
                | BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        );
        if is_wanted {
            let [left, right] =
                [&binary.left, &binary.right].map(|side| side.get_type(schema).ok());
            binary.left = as_type_of(binary.left, right.as_ref());
            binary.right = as_type_of(binary.right, left.as_ref());
        }
        // The operator itself is planned as always.
        Ok(PlannerResult::Original(binary))
    }
}

/// An access to a key of an expression: of the column with the properties, or of a property of it.
fn planned(of: &Expr, key: &str, schema: &DFSchema) -> Option<Expr> {
    let promoted = |column: &Column| {
        let (own, _) = PROMOTED.iter().find(|(own, _)| *own == key)?;
        let name = promoted_column_name(own);
        let column = Column::new(column.relation.clone(), name);
        schema.field_from_column(&column).ok().map(|_| Expr::Column(column))
    };
    match of {
        Expr::Column(column) if column.name == PROPERTIES => {
            promoted(column).or_else(|| Some(as_text(vec![of.clone(), lit(key)])))
        }
        // Of a table of the query around a subquery, whose columns are not in the schema.
        Expr::OuterReferenceColumn(_, column) if column.name == PROPERTIES => {
            Some(as_text(vec![of.clone(), lit(key)]))
        }
        // Inside of a property that has a column.
        Expr::Column(column) => {
            let is_own = |(own, _): &&(&str, _)| promoted_column_name(own) == column.name;
            let (outer, _) = PROMOTED.iter().find(is_own)?;
            let properties = Column::new(column.relation.clone(), PROPERTIES);
            schema.field_from_column(&properties).ok()?;
            Some(as_text(vec![Expr::Column(properties), lit(*outer), lit(key)]))
        }
        Expr::ScalarFunction(call) if is_access(call) => {
            let more = std::iter::once(lit(key));
            Some(as_text(call.args.iter().cloned().chain(more).collect()))
        }
        _ => None,
    }
}

fn as_text(arguments: Vec<Expr>) -> Expr {
    let function = datafusion_functions_json::udfs::json_as_text_udf();
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function), arguments))
}

fn is_access(call: &ScalarFunction) -> bool {
    let is_properties =
        |argument: &Expr| matches!(argument, Expr::Column(column) if column.name == PROPERTIES);
    call.func.name() == AS_TEXT && call.args.first().is_some_and(is_properties)
}

/// A property as the number or the truth value that it is compared with; null where it is none.
fn as_type_of(side: Expr, other: Option<&DataType>) -> Expr {
    let is_property = match &side {
        Expr::ScalarFunction(call) => is_access(call),
        Expr::Column(column) => column.name.starts_with(OF_PERSONS),
        _ => false,
    };
    match other {
        Some(other) if is_property && other.is_numeric() => try_cast(side, DataType::Float64),
        Some(DataType::Boolean) if is_property => try_cast(side, DataType::Boolean),
        _ => side,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::rewrite;

    fn rewritten(sql: &str) -> String {
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql).expect("it parses");
        let statement = statements.pop().expect("one statement");
        let mut statement = Statement::Statement(Box::new(statement));
        rewrite(&mut statement);
        statement.to_string()
    }

    #[test]
    fn all_forms_become_the_one_with_brackets() {
        for (sql, expected) in [
            ("SELECT properties.plan", "SELECT properties['plan'] AS \"plan\""),
            ("SELECT Properties.PlanName", "SELECT Properties['PlanName'] AS \"PlanName\""),
            ("SELECT properties.\"$browser\"", "SELECT properties['$browser'] AS \"$browser\""),
            ("SELECT properties['a'].b", "SELECT properties['a']['b'] AS \"b\""),
            ("SELECT e.properties.a['it''s']", "SELECT e.properties['a']['it''s'] AS \"it's\""),
            ("SELECT e.properties['a'].b.c", "SELECT e.properties['a']['b']['c'] AS \"c\""),
            (
                "SELECT a.properties.x, b.properties.x",
                "SELECT a.properties['x'], b.properties['x']",
            ),
            ("SELECT x, properties.x", "SELECT x, properties['x']"),
            ("SELECT *, properties.x FROM t", "SELECT *, properties['x'] FROM t"),
            (
                "SELECT 1 FROM t WHERE lower(properties.a) = 'x' GROUP BY properties.b",
                "SELECT 1 FROM t WHERE lower(properties['a']) = 'x' GROUP BY properties['b']",
            ),
            (
                "SELECT DISTINCT properties.a FROM t ORDER BY properties.a",
                "SELECT DISTINCT properties['a'] FROM t ORDER BY properties['a']",
            ),
            ("SELECT properties FROM t", "SELECT properties FROM t"),
            ("SELECT t.event FROM t", "SELECT t.event FROM t"),
            ("SELECT properties[1] FROM t", "SELECT properties[1] FROM t"),
            (
                "SELECT properties.event FROM t AS properties",
                "SELECT properties.event FROM t AS properties",
            ),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }
}
