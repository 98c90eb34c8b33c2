//! Properties that a project has promoted to columns. A column is a function of the JSON text ([`value`]), and files are
//! written with its values ([`derived`]). A scan of events computes it for rows of other files and in memory ([`Promoted`]),
//! and a plan that contains the function reads the column instead ([`PromotedColumns`]). Of persons, of which a scan reads
//! single properties anyway, SQL has the function ([`in_plan`]). So answers are the same before and after.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr, expressions};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::prelude::col;

use crate::events::event_property::json_text;
use crate::functions::json::AS_TEXT;
use crate::functions::json_property::json_property;
use crate::functions::text_number::{DOUBLE, number};
use crate::functions::text_truth::truth;
use crate::kernel::lineage::origin_of_both;
use crate::kernel::rewritten::map_named;
use weir_event::dictionary;
use weir_event::dictionary::EVENTS;
use weir_event::promotion::{PromotedTable, Promotion};
use weir_event::schema::PropertyType::{Boolean, Double, Text};
use weir_event::schema::{PropertyType, column};
use weir_storage::delta::DataFile;
use weir_storage::derived::{Derivation, Derived, DerivedColumn};

/// The column with the JSON text.
const PROPERTIES: &str = "properties";

/// The function of [`truth`], by its name in plans.
const LOWER: &str = "lower";

/// Number of [`value`]. Files whose columns were computed otherwise are taken for files without: raise it with each change
/// of an answer.
const FORMULAS: u32 = 1;

/// The value of the column of a property, from the column `properties`.
fn value(promotion: &Promotion) -> Expr {
    typed(json_property(col(PROPERTIES), &promotion.key), promotion.kind)
}

/// The same in a plan, under the name of the column.
pub(crate) fn in_plan(promotion: &Promotion) -> Expr {
    typed(json_text(&promotion.key), promotion.kind).alias(promotion.column())
}

fn typed(text: Expr, kind: PropertyType) -> Expr {
    match kind {
        Text => text,
        Double => number(text),
        Boolean => truth(text),
    }
}

/// The promotions whose columns a table has or can get: it may have one of another type or of a name in another case, that
/// another program has added.
pub fn fitting(promotions: &[Promotion], table: &Schema) -> Vec<Promotion> {
    let fits = |own: &&Promotion| {
        let name = own.column();
        let lower = name.to_lowercase();
        let mut there = table.fields().iter().filter(|there| there.name().to_lowercase() == lower);
        there.all(|there| {
            let is_same_type = PropertyType::of(there.data_type()) == Some(own.kind);
            is_same_type && there.is_nullable() && *there.name() == name
        })
    };
    promotions.iter().filter(fits).cloned().collect()
}

/// The columns for the writer of files of a table.
///
/// # Errors
///
/// A function has no form in plans: a bug.
pub fn derived(table: PromotedTable, promotions: &[Promotion]) -> Result<Derived> {
    let table = table.described();
    let column = |promotion: &Promotion| {
        let field = promotion.field();
        let field = match table.file_description(field.name()) {
            Some(text) => dictionary::with_description(&Arc::new(field), text),
            None => field,
        };
        Ok(DerivedColumn { field: Arc::new(field), values: derivation(promotion)? })
    };
    let columns = promotions.iter().map(column).collect::<Result<Vec<_>>>()?;
    let source = table.files_schema().index_of(PROPERTIES)?;
    Ok(Derived { formulas: FORMULAS, source, columns: columns.into() })
}

/// The values of a column from the texts of `properties`.
fn derivation(promotion: &Promotion) -> Result<Derivation> {
    let schema = Schema::new(vec![Field::new(PROPERTIES, DataType::Utf8View, false)]);
    let schema = Arc::new(schema);
    let compute = physical(promotion, &schema)?;
    Ok(Arc::new(move |texts: &ArrayRef| {
        let texts = match texts.data_type() {
            DataType::Utf8View => Arc::clone(texts),
            _ => cast(texts, &DataType::Utf8View)?,
        };
        let rows = texts.len();
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![texts])?;
        let values = compute.evaluate(&batch).and_then(|values| values.into_array(rows));
        values.map_err(|error| ArrowError::ExternalError(Box::new(error)))
    }))
}

fn physical(promotion: &Promotion, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let schema = DFSchema::try_from(Arc::clone(schema))?;
    let (properties, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    create_physical_expr(&value(promotion), &schema, &properties, &planning)
}

/// The columns of a project's promotions, which follow all others of a table of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promoted {
    promotions: Arc<[Promotion]>,
    /// The number of columns before them.
    width: usize,
}

impl Promoted {
    /// Those of some promotions, and the table with their columns.
    pub(crate) fn of(promotions: Vec<Promotion>, table: SchemaRef) -> (Self, SchemaRef) {
        let width = table.fields().len();
        let more = promotions.iter().map(|own| Arc::new(own.field()) as FieldRef);
        let fields: Vec<FieldRef> = table.fields().iter().cloned().chain(more).collect();
        (Self { promotions: promotions.into(), width }, Arc::new(Schema::new(fields)))
    }

    /// The promotions.
    pub(crate) fn promotions(&self) -> &Arc<[Promotion]> {
        &self.promotions
    }

    /// The promotion of the column at a position of the table.
    fn at(&self, position: usize) -> Option<&Promotion> {
        self.promotions.get(position.checked_sub(self.width)?)
    }

    /// Whether one of these columns is among them.
    pub(crate) fn is_any(&self, positions: &[usize]) -> bool {
        positions.iter().any(|position| self.at(*position).is_some())
    }

    /// Whether a file has those of these columns that are among them.
    pub(crate) fn are_in(&self, file: &DataFile, positions: &[usize]) -> bool {
        let mut own = positions.iter().filter_map(|position| self.at(*position));
        own.all(|own| file.derived.has(FORMULAS, &own.column()))
    }

    /// The positions from which columns can be computed: the others among them, and that of `properties`.
    pub(crate) fn sources(&self, positions: &[usize]) -> Vec<usize> {
        let others = positions.iter().copied().filter(|position| self.at(*position).is_none());
        let mut sources: Vec<usize> = others.collect();
        if !sources.contains(&column::PROPERTIES) {
            sources.push(column::PROPERTIES);
        }
        sources
    }

    /// The columns at these positions of the table, of rows with those of [`Promoted::sources`].
    ///
    /// # Errors
    ///
    /// A function has no form in plans, or the rows lack a column: a bug.
    pub(crate) fn complete(
        &self,
        rows: Arc<dyn ExecutionPlan>,
        table: &SchemaRef,
        positions: &[usize],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = rows.schema();
        let columns = positions.iter().map(|position| {
            let alias = table.field(*position).name().clone();
            let expr = match self.at(*position) {
                Some(own) => physical(own, &schema)?,
                None => expressions::col(&alias, &schema)?,
            };
            Ok(ProjectionExpr { expr, alias })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(columns, rows)?))
    }

    /// Whether a filter of a scan is about none of these columns, so that it can be evaluated on files without them.
    pub(crate) fn is_apart(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        let columns = collect_columns(filter);
        !columns.iter().any(|own| self.at(own.index()).is_some())
    }
}

/// Analyzer rule that reads columns instead of computing their values. It follows all rules that change how a property is
/// read.
#[derive(Debug)]
pub(crate) struct PromotedColumns {
    /// The promotions, whose columns the events of the view have.
    pub(crate) promotions: Arc<[Promotion]>,
}

impl AnalyzerRule for PromotedColumns {
    fn name(&self) -> &str {
        "promoted_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let read = plan.transform_up_with_subqueries(|plan| {
            let inputs = plan.inputs();
            let [input] = inputs.as_slice() else { return Ok(Transformed::no(plan)) };
            let input = LogicalPlan::clone(input);
            map_named(plan, |expression| {
                expression.transform_up(|part| Ok(self.read(part, &input)))
            })
        });
        read.map(|read| read.data)
    }
}

impl PromotedColumns {
    /// The column instead of an expression that computes its value.
    fn read(&self, part: Expr, input: &LogicalPlan) -> Transformed<Expr> {
        match self.column(&part, input) {
            Some(column) => Transformed::yes(Expr::Column(column)),
            None => Transformed::no(part),
        }
    }

    fn column(&self, part: &Expr, input: &LogicalPlan) -> Option<Column> {
        let (text, key, kind) = read(part)?;
        let own = self.promotions.iter().find(|own| *own.key == *key && own.kind == kind)?;
        let column = Column::new(text.relation.clone(), own.column());
        let schema = input.schema();
        let places = [schema.maybe_index_of_column(text)?, schema.maybe_index_of_column(&column)?];
        let (table, [text, name]) = origin_of_both(input, places)?;
        (table.name == EVENTS.name && text == PROPERTIES && name == column.name).then_some(column)
    }
}

/// The column `properties`, the key and the type, if an expression is the [`value`] of a property. In plans, functions are
/// wrapped by limits, so their names count.
fn read(part: &Expr) -> Option<(&Column, &str, PropertyType)> {
    match part {
        Expr::ScalarFunction(call) => match (call.func.name(), call.args.as_slice()) {
            (AS_TEXT, [Expr::Column(text), Expr::Literal(key, _)]) if text.name == PROPERTIES => {
                Some((text, key.try_as_str()??, Text))
            }
            (DOUBLE, [inner]) => as_text(inner).map(|(text, key)| (text, key, Double)),
            _ => None,
        },
        Expr::Case(case) => {
            let Expr::ScalarFunction(call) = case.expr.as_deref()? else { return None };
            let [inner] = call.args.as_slice() else { return None };
            let (text, key) = as_text(inner).filter(|_| call.func.name() == LOWER)?;
            let Expr::Case(own) = truth(inner.clone()) else { return None };
            let is_same = own.when_then_expr == case.when_then_expr && case.else_expr.is_none();
            is_same.then_some((text, key, Boolean))
        }
        _ => None,
    }
}

/// The same of an expression that reads the text of a property.
fn as_text(part: &Expr) -> Option<(&Column, &str)> {
    match read(part)? {
        (text, key, Text) => Some((text, key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use super::fitting;
    use weir_event::promotion::Promotion;
    use weir_event::schema::PropertyType;
    use weir_event::schema::PropertyType::{Boolean, Double, Text};

    #[test]
    fn columns_of_other_programs_are_left_alone() {
        for (kind, name, data_type, is_nullable, expected) in [
            (Text, "p_plans", DataType::Int64, false, true),
            (Text, "p_plan", DataType::Utf8, true, true),
            (Text, "p_plan", DataType::Utf8View, true, true),
            (Text, "p_plan", DataType::Float64, true, false),
            (Text, "P_PLAN", DataType::Utf8, true, false),
            (Double, "p_plan", DataType::Float64, true, true),
            (Double, "p_plan", DataType::Int64, true, false),
            (Boolean, "p_plan", DataType::Boolean, true, true),
            (Boolean, "p_plan", DataType::Boolean, false, false),
        ] {
            let table = Schema::new(vec![Field::new(name, data_type.clone(), is_nullable)]);
            let of = |kind: PropertyType| Promotion { key: "plan".into(), kind };
            let found = fitting(&[of(kind)], &table);
            assert_eq!(!found.is_empty(), expected, "{kind:?} {name} {data_type} {is_nullable}");
        }
    }
}
