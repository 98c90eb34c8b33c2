//! Conditions of a plan that the scan of the persons table evaluates: [`Selection`]. What asks of columns and properties is
//! evaluated on columns, once for each value of a dictionary; what asks of whole persons, on the rows of those who are left.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::physical_expr::PhysicalExpr;

use crate::filter::condition::{Call, Needs, Pace, RowTest, needs};
use crate::guard::Running;
use crate::persons::person_rows::Selecting;
use weir_identity::row::Row;
use weir_identity::view::View;

/// Columns of `persons` that every selection has, and what files call them.
const OWN: [(&str, &str); 3] =
    [("number", "id"), ("created_at", "created_at"), ("is_identified", "is_identified")];

/// Operators between values.
const COMPARING: [Operator; 6] =
    [Operator::Eq, Operator::NotEq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];

/// The place of a column of `persons` among those of a selection.
pub(crate) fn place(name: &str) -> Option<usize> {
    OWN.iter().position(|(own, _)| *own == name)
}

/// Whether a scan evaluates a condition, as one of those that all hold.
pub(crate) fn is_supported(condition: &Expr) -> bool {
    row_test(condition).is_some() || is_of_columns(condition)
}

/// The test of a condition on whole persons.
fn row_test(condition: &Expr) -> Option<(Arc<RowTest>, Pace)> {
    let Expr::ScalarFunction(call) = condition else { return None };
    match needs(&call.func)? {
        (Needs::Row(test), pace) => Some((Arc::clone(test), pace.clone())),
        _ => None,
    }
}

fn is_of_columns(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(own) if matches!(own.op, Operator::And | Operator::Or) => {
            is_of_columns(&own.left) && is_of_columns(&own.right)
        }
        Expr::BinaryExpr(own) => {
            COMPARING.contains(&own.op) && is_value(&own.left) && is_value(&own.right)
        }
        Expr::Not(own) => is_of_columns(own),
        Expr::InList(list) => is_value(&list.expr) && list.list.iter().all(is_literal),
        Expr::ScalarFunction(call) => match needs(&call.func) {
            Some((Needs::Property(_), _)) => true,
            Some((Needs::Columns, _)) => call.args.iter().all(is_value),
            Some((Needs::Row(_), _)) | None => false,
        },
        value => is_value(value),
    }
}

fn is_literal(value: &Expr) -> bool {
    matches!(value, Expr::Literal(..))
}

fn is_value(value: &Expr) -> bool {
    is_literal(value) || matches!(value, Expr::Column(column) if place(&column.name).is_some())
}

/// See the head of this file.
#[derive(Clone, Default)]
pub(crate) struct Selection {
    /// The columns that it reads.
    pub(crate) columns: Vec<Selecting>,
    condition: Option<Arc<dyn PhysicalExpr>>,
    tests: Vec<(Arc<RowTest>, Pace)>,
}

impl std::fmt::Debug for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selection").field("condition", &self.condition).finish_non_exhaustive()
    }
}

impl Selection {
    /// What these conditions select, all of which are supported.
    ///
    /// # Errors
    ///
    /// DataFusion refuses them: a bug.
    pub(crate) fn new(state: &dyn Session, conditions: &[Expr]) -> Result<Self> {
        let mut columns: Vec<Selecting> =
            OWN.iter().map(|(_, stored)| Selecting::Own(stored)).collect();
        let (mut of_columns, mut tests) = (Vec::new(), Vec::new());
        for condition in conditions {
            match row_test(condition) {
                Some(test) => tests.push(test),
                None => of_columns.push(of_own_columns(condition.clone(), &mut columns)?),
            }
        }
        let text = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let types = [DataType::Int64, time, DataType::Boolean];
        let types = types.into_iter().chain(std::iter::repeat(text));
        let names = OWN.iter().map(|(name, _)| (*name).to_owned());
        let names = names.chain(columns.iter().skip(OWN.len()).map(Selecting::name));
        let fields: Vec<Field> =
            names.zip(types).map(|(name, own)| Field::new(name, own, true)).collect();
        let condition = match conjunction(of_columns) {
            None => None,
            Some(condition) => {
                let schema = DFSchema::try_from(Schema::new(fields))?;
                Some(state.create_physical_expr(condition, &schema)?)
            }
        };
        Ok(Self { columns, condition, tests })
    }

    /// Whether it is everybody.
    pub(crate) fn is_all(&self) -> bool {
        self.condition.is_none() && self.tests.is_empty()
    }

    /// Whether columns tell anything.
    pub(crate) fn is_of_columns(&self) -> bool {
        self.condition.is_some()
    }

    /// Whether whole persons are looked at.
    pub(crate) fn is_of_rows(&self) -> bool {
        !self.tests.is_empty()
    }

    /// Whom the columns select, by these of theirs.
    pub(crate) fn chosen(&self, columns: Vec<ArrayRef>) -> Result<BooleanArray> {
        let rows = columns.first().map_or(0, |column| column.len());
        let Some(condition) = &self.condition else {
            return Ok(BooleanArray::new(BooleanBuffer::new_set(rows), None));
        };
        // Dictionaries of different files have places of different widths.
        let field = |(at, column): (usize, &ArrayRef)| {
            Field::new(at.to_string(), column.data_type().clone(), true)
        };
        let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
        let chosen = condition.evaluate(&batch)?.into_array(rows)?;
        let chosen = chosen.as_boolean_opt().ok_or_else(|| {
            DataFusionError::Internal("a condition on persons is no truth value".to_owned())
        })?;
        Ok(match chosen.null_count() {
            0 => chosen.clone(),
            _ => prep_null_mask_filter(chosen),
        })
    }

    /// Whether all tests of whole persons hold for one.
    pub(crate) fn holds(&self, view: &View, row: &Row<'_>, running: &Running) -> Result<bool> {
        for (test, pace) in &self.tests {
            if !test(view, row, Call::new(pace, running))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A condition on the columns of a selection, to which those of its properties are added.
fn of_own_columns(condition: Expr, columns: &mut Vec<Selecting>) -> Result<Expr> {
    let own = condition.transform_down(|part| match part {
        Expr::ScalarFunction(mut call) => match needs(&call.func) {
            Some((Needs::Property(key), _)) => {
                let column = Selecting::Property(key.clone());
                call.args = vec![Expr::Column(Column::new_unqualified(column.name()))];
                if !columns.contains(&column) {
                    columns.push(column);
                }
                let call = Expr::ScalarFunction(call);
                Ok(Transformed::new(call, true, TreeNodeRecursion::Jump))
            }
            _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
        },
        Expr::Column(column) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name))))
        }
        part => Ok(Transformed::no(part)),
    })?;
    Ok(own.data)
}
