//! Property accesses in HogQL: `properties.plan`, `properties['plan']`, `e.properties.address.city`.
//!
//! [`rewrite`] normalizes all forms to the one with brackets before planning, while keys still have their original
//! spelling. [`PropertyPlanner`] plans an access as text, read from the promoted column if that contains all values,
//! else from the JSON text; as an operand it is converted to a number or truth value according to the type of the other
//! side, also inside expressions that only choose among properties ([`choices`]). [`TypedColumns`] reads the converted
//! values from the promoted column, and ensures one definition of the number of a text.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr,
};
use datafusion::logical_expr::{
    Expr, ExprSchemable, GetFieldAccess, LogicalPlan, cast, lit, try_cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr as SqlExpr, Ident, Query, SelectItem, SetExpr, Subscript,
    TableFactor, Value, Visitor, VisitorMut,
};

use crate::dialect::statements::{query_in, take};
use crate::dialect::walk::{walk, walk_mut};
use crate::functions::json::AS_TEXT;
use crate::functions::text_number::{checked_number, is_text, number, wide_number};
use crate::functions::text_truth::truth;
use crate::kernel::lineage::origin;
use crate::kernel::rewritten::map_named;
use weir_event::dictionary::{EVENTS, PERSONS, Table};
use weir_event::number::WIDE_FROM;
use weir_event::schema::{PROMOTED, PropertyType, promoted_column_name};
use weir_storage::exact::ExactColumns;

/// The column with the JSON text, in every table that has one.
const PROPERTIES: &str = "properties";

/// Prefix of the names of columns with person properties.
pub(crate) const OF_PERSONS: &str = "person.properties.";

/// Functions that compare or mix values of any type: properties are numbers if another argument is one.
pub(crate) const OF_ANY: [&str; 5] = ["coalesce", "nullif", "nvl", "greatest", "least"];

/// Functions that return one of the values of their first argument.
pub(crate) const OF_FIRST: [&str; 8] =
    ["any_value", "first_value", "lag", "last_value", "lead", "max", "min", "nth_value"];

/// The function that returns its first argument that is not null.
const COALESCE: &str = "coalesce";

/// Normalizes every property access to the form with brackets, and names output columns by the last key. A statement
/// with a table or an alias called `properties` is left as it is.
pub(crate) fn rewrite(statement: &mut Statement) {
    let query = query_in(statement);
    if let Some(query) = query.filter(|query| walk(&**query, &mut HasTable).is_continue()) {
        let _ = walk_mut(query, &mut Rewriter);
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
        // With DISTINCT, ORDER BY expressions must be written as in the select list.
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

/// The column and the keys of an expression that is a property access.
pub(crate) fn access(expression: &SqlExpr) -> Option<(Vec<Ident>, Vec<String>)> {
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

/// Names each access without an alias by its last key, unless another column has that name.
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

/// Plans accesses with brackets, and operators between their values and numbers or truth values.
#[derive(Debug)]
pub(crate) struct PropertyPlanner {
    /// Which promoted columns of events contain all values of their properties.
    pub(crate) exact: ExactColumns,
}

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
        match self.planned(&access.expr, key, schema) {
            Some(planned) => Ok(PlannerResult::Planned(planned)),
            None => Ok(PlannerResult::Original(access)),
        }
    }

    fn plan_binary_op(
        &self,
        mut binary: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_comparison = matches!(
            binary.op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
        );
        let is_arithmetic = matches!(
            binary.op,
            BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        );
        if is_comparison || is_arithmetic {
            let is_own =
                [&mut binary.left, &mut binary.right].map(|side| !choices(side).is_empty());
            let is_both = is_arithmetic && is_own == [true, true];
            // Determining the type of a side visits all of its nodes, so it is done only where it matters: a chain of
            // operators is as deep as it is long.
            let wanted = |side: &Expr, is_other_own: bool| match is_both {
                true => Some(DataType::Float64),
                false if is_other_own => side.get_type(schema).ok(),
                false => None,
            };
            let left = wanted(&binary.left, is_own[1]);
            let right = wanted(&binary.right, is_own[0]);
            let wide = [is_wide(&binary.left), is_wide(&binary.right)];
            self.take_as(&mut binary.left, right.as_ref(), wide[1], schema);
            self.take_as(&mut binary.right, left.as_ref(), wide[0], schema);
        }
        // The operator itself is planned as usual.
        Ok(PlannerResult::Original(binary))
    }
}

impl PropertyPlanner {
    /// An access to a key of an expression: of the column `properties`, or nested in a property.
    fn planned(&self, of: &Expr, key: &str, schema: &DFSchema) -> Option<Expr> {
        match of {
            Expr::Column(column) if column.name == PROPERTIES => {
                let text = as_text(vec![of.clone(), lit(key)]);
                Some(match promoted(column, key, schema) {
                    // The column contains only texts, with the same values as the JSON text.
                    Some((number, PropertyType::Text, own)) => match self.exact.has(number) {
                        true => own,
                        false => coalesce(vec![own, text]),
                    },
                    _ => text,
                })
            }
            // A column of an outer query referenced in a subquery, which is not in the schema.
            Expr::OuterReferenceColumn(_, column) if column.name == PROPERTIES => {
                Some(as_text(vec![of.clone(), lit(key)]))
            }
            // Nested in a property.
            other => {
                let mut arguments = json_path(other, schema)?;
                arguments.push(lit(key));
                Some(as_text(arguments))
            }
        }
    }

    /// Converts properties whose values `side` may take to numbers or truth values; those that cannot be converted
    /// become null.
    fn take_as(&self, side: &mut Expr, other: Option<&DataType>, is_wide: bool, schema: &DFSchema) {
        let Some(other) = other else { return };
        for property in choices(side) {
            let text = std::mem::take(property);
            *property = match other {
                // Doubles cannot distinguish integers this large.
                other if other.is_integer() && is_wide => wide_number(text),
                // `TypedColumns` reads it from the column.
                other if other.is_numeric() => try_cast(text, DataType::Float64),
                DataType::Boolean => {
                    let column = self.typed(&text, PropertyType::Boolean, schema);
                    column.whole(truth(text))
                }
                _ => text,
            };
        }
    }

    /// The promoted column of this type for an access.
    fn typed(&self, access: &Expr, kind: PropertyType, schema: &DFSchema) -> Typed {
        let found = own_key(access).and_then(|(column, key)| promoted(column, key, schema));
        match found.filter(|(_, own, _)| *own == kind) {
            Some((number, _, column)) if self.exact.has(number) => Typed::Exact(column),
            Some((_, _, column)) => Typed::Partly(column),
            None => Typed::None,
        }
    }
}

/// The promoted column of a property.
enum Typed {
    /// It contains all values.
    Exact(Expr),
    /// It may lack values of another type.
    Partly(Expr),
    None,
}

impl Typed {
    /// All values: those of the column, and where it is null, the `others`.
    fn whole(self, others: Expr) -> Expr {
        match self {
            Self::Exact(column) => column,
            Self::Partly(column) => coalesce(vec![column, others]),
            Self::None => others,
        }
    }
}

/// Analyzer rule that reads a property used as a number, such as `toFloat(properties.price)`, from its promoted column.
#[derive(Debug)]
pub(crate) struct TypedColumns {
    /// Which promoted columns of events contain all values of their properties.
    pub(crate) exact: ExactColumns,
}

impl AnalyzerRule for TypedColumns {
    fn name(&self) -> &str {
        "typed_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let planner = PropertyPlanner { exact: self.exact };
        let read = plan.transform_up_with_subqueries(|plan| {
            let inputs = plan.inputs();
            let [input] = inputs.as_slice() else { return Ok(Transformed::no(plan)) };
            let input = LogicalPlan::clone(input);
            map_named(plan, |expression| {
                expression.transform_up(|part| Ok(planner.number_of(part, &input)))
            })
        });
        read.map(|read| read.data)
    }
}

impl PropertyPlanner {
    /// Rewrites a cast of a text to a number to our own parsing of numbers; for a property, to a read of its promoted
    /// column.
    fn number_of(&self, part: Expr, input: &LogicalPlan) -> Transformed<Expr> {
        let schema = input.schema();
        let is_double = |own: &DataType| matches!(own, DataType::Float64 | DataType::Float32);
        let (inner, field, is_checked) = match &part {
            Expr::TryCast(cast) => (&cast.expr, &cast.field, false),
            // Texts other than properties are cast as in PostgreSQL.
            Expr::Cast(cast) if is_coerced_property(&cast.expr) => (&cast.expr, &cast.field, true),
            _ => return Transformed::no(part),
        };
        let is_of_text = || inner.get_type(schema).is_ok_and(|own| is_text(&own));
        if !is_double(field.data_type()) || !is_of_text() {
            return Transformed::no(part);
        }
        // What columns lack is known of events alone. Rows of several tables may be of persons, and a check of what a column
        // lacks must not be left out.
        let of_table = |name: &str| table_of(inner, input).is_some_and(|own| own.name == name);
        let column = match self.typed(inner, PropertyType::Double, schema) {
            Typed::Exact(_) | Typed::Partly(_) if of_table(PERSONS.name) => Typed::None,
            Typed::Exact(column) if is_checked && !of_table(EVENTS.name) => Typed::Partly(column),
            column => column,
        };
        let number = column.whole(match is_checked {
            true => checked_number((**inner).clone()),
            false => number((**inner).clone()),
        });
        Transformed::yes(match field.data_type() {
            DataType::Float64 => number,
            other => cast(number, other.clone()),
        })
    }
}

/// Whether it is an integer literal so large that doubles cannot distinguish it from its neighbours.
fn is_wide(side: &Expr) -> bool {
    match side {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => number.unsigned_abs() >= WIDE_FROM,
        Expr::Literal(ScalarValue::UInt64(Some(number)), _) => *number >= WIDE_FROM,
        Expr::Negative(inner) => is_wide(inner),
        _ => false,
    }
}

/// The table whose property an access reads, if it is known.
fn table_of(access: &Expr, input: &LogicalPlan) -> Option<&'static Table> {
    let (column, _) = own_key(access)?;
    let place = input.schema().maybe_index_of_column(column)?;
    origin(input, place).map(|(table, _)| table)
}

/// The promoted column of a key, if the table has it with the type that it has in events: its index among all promoted
/// ones, its type, and the column.
fn promoted(
    properties: &Column,
    key: &str,
    schema: &DFSchema,
) -> Option<(usize, PropertyType, Expr)> {
    let number = PROMOTED.iter().position(|(own, _)| *own == key)?;
    let (own, kind) = PROMOTED.get(number)?;
    let column = Column::new(properties.relation.clone(), promoted_column_name(own));
    let there = PropertyType::of(schema.field_from_column(&column).ok()?.data_type());
    (there == Some(*kind)).then(|| (number, *kind, Expr::Column(column)))
}

fn as_text(arguments: Vec<Expr>) -> Expr {
    let function = datafusion_functions_json::udfs::json_as_text_udf();
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function), arguments))
}

/// The call in an access that reads the JSON text.
fn as_call(access: &Expr) -> Option<&ScalarFunction> {
    match access {
        Expr::ScalarFunction(call) if is_access(call) => Some(call),
        // Fallback for rows in which the promoted column is null.
        Expr::ScalarFunction(call) if call.func.name() == COALESCE => match call.args.as_slice() {
            [Expr::Column(_), Expr::ScalarFunction(text)] if is_access(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The `properties` column and the key, of an access that is not nested.
fn own_key(access: &Expr) -> Option<(&Column, &str)> {
    let [Expr::Column(column), Expr::Literal(key, _)] = as_call(access)?.args.as_slice() else {
        return None;
    };
    Some((column, key.try_as_str()??))
}

/// The arguments of the call that reads a property from the JSON text.
fn json_path(access: &Expr, schema: &DFSchema) -> Option<Vec<Expr>> {
    let Expr::Column(column) = access else { return Some(as_call(access)?.args.clone()) };
    let is_own = |(own, _): &&(&str, _)| promoted_column_name(own) == column.name;
    let (key, _) = PROMOTED.iter().find(is_own)?;
    let properties = Column::new(column.relation.clone(), PROPERTIES);
    schema.field_from_column(&properties).ok()?;
    Some(vec![Expr::Column(properties), lit(*key)])
}

fn is_access(call: &ScalarFunction) -> bool {
    let is_properties = |argument: &Expr| matches!(argument, Expr::Column(column) | Expr::OuterReferenceColumn(_, column) if column.name == PROPERTIES);
    call.func.name() == AS_TEXT && call.args.first().is_some_and(is_properties)
}

/// Whether the expression is the text of a property.
fn is_property(side: &Expr) -> bool {
    let is_promoted = |name: &str| {
        let is_own = |(own, kind): &(&str, PropertyType)| {
            *kind == PropertyType::Text && promoted_column_name(own) == name
        };
        PROMOTED.iter().any(is_own)
    };
    match side {
        Expr::Column(column) => column.name.starts_with(OF_PERSONS) || is_promoted(&column.name),
        other => as_call(other).is_some(),
    }
}

/// The properties whose values an expression may have: itself, or those among which it chooses.
fn choices(side: &mut Expr) -> Vec<&mut Expr> {
    if is_property(side) {
        return vec![side];
    }
    match side {
        Expr::Case(case) => {
            let values = case.when_then_expr.iter_mut().map(|(_, value)| &mut **value);
            values.chain(case.else_expr.as_deref_mut()).flat_map(choices).collect()
        }
        Expr::ScalarFunction(call) if OF_ANY.contains(&call.func.name()) => {
            call.args.iter_mut().flat_map(choices).collect()
        }
        Expr::AggregateFunction(call) if OF_FIRST.contains(&call.func.name()) => {
            call.params.args.iter_mut().take(1).flat_map(choices).collect()
        }
        Expr::WindowFunction(call) if OF_FIRST.contains(&call.fun.name()) => {
            call.params.args.iter_mut().take(1).flat_map(choices).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the expression is the text of a property, after type coercion of all texts of an expression.
fn is_coerced_property(side: &Expr) -> bool {
    let bare = |side: &Expr| match side {
        Expr::Cast(cast) if is_text(cast.field.data_type()) => is_property(&cast.expr),
        other => is_property(other),
    };
    match side {
        Expr::ScalarFunction(call) if call.func.name() == COALESCE => call.args.iter().all(bare),
        other => bare(other),
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
