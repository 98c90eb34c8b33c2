//! Statements with parameters, for protocols that prepare them: the types of a statement without values
//! ([`View::described`]), its plan with values ([`View::bound`]), and what a result's columns are ([`columns`]).

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Column, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::dialect::parameters::Parameter;
use crate::dialect::postgres::pruned::unmarked;
use crate::dialect::{parameters, postgres};
use crate::guard::complexity;
use crate::kernel::error::QueryError;
use crate::kernel::view::View;

/// The columns that hold JSON, by their names in the tables.
const JSON: [&str; 1] = ["properties"];

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub data_type: DataType,
    /// Whether its texts are JSON: it is a column of a table, as it is stored, that holds JSON.
    pub is_json: bool,
}

/// The types of a statement.
#[derive(Clone, Debug)]
pub struct Described {
    /// Of its parameters; `None` where any would do.
    pub parameters: Vec<Option<DataType>>,
    /// Of its result.
    pub columns: Vec<ResultColumn>,
}

impl View {
    /// Plans a statement with the values of its parameters. See [`View::sql`].
    ///
    /// # Errors
    ///
    /// Those of [`View::sql`], or a parameter has no value.
    pub async fn bound(&self, sql: &str, values: &[Parameter]) -> Result<DataFrame, QueryError> {
        let mut statement = self.parsed(sql)?;
        parameters::bind(&mut statement, values)?;
        self.explained(statement, sql).await
    }

    /// Plans a statement about PostgreSQL's catalog, whose schemas the view has ([`View::with_schemas`]), with the values of
    /// its parameters. `is_empty` says whether a table of it never has rows, and `database` is the name with which tables
    /// may be qualified.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with an explanation.
    pub async fn catalog(
        &self,
        sql: &str,
        values: &[Parameter],
        (database, is_empty): (&str, &(dyn Fn(&str) -> bool + Send + Sync)),
    ) -> Result<DataFrame, QueryError> {
        complexity::check(sql)?;
        let mut statement = postgres::statement(sql, self.recursion_max())?;
        parameters::bind(&mut statement, values)?;
        postgres::rewrite(&mut statement, database, is_empty)?;
        self.plain(statement).await
    }

    /// The types of such a statement.
    ///
    /// # Errors
    ///
    /// Those of [`View::catalog`].
    pub async fn catalog_described(
        &self,
        sql: &str,
        declared: &[Option<DataType>],
        names: (&str, &(dyn Fn(&str) -> bool + Send + Sync)),
    ) -> Result<Described, QueryError> {
        complexity::check(sql)?;
        let mut statement = postgres::statement(sql, self.recursion_max())?;
        let count = parameters::count(&mut statement)?;
        let mut types = declared.to_vec();
        types.resize(count.max(declared.len()), None);
        let examples: Vec<_> = types.iter().map(|own| Parameter::example(own.as_ref())).collect();
        let plan = self.catalog(sql, &examples, names).await?;
        Ok(Described { parameters: types, columns: columns(&plan) })
    }

    /// The types of a statement, of which the caller declares those of some parameters.
    ///
    /// # Errors
    ///
    /// Those of [`View::sql`].
    pub async fn described(
        &self,
        sql: &str,
        declared: &[Option<DataType>],
    ) -> Result<Described, QueryError> {
        let mut statement = self.parsed(sql)?;
        let count = parameters::count(&mut statement)?;
        if count == 0 && declared.is_empty() {
            let plan = self.explained(statement, sql).await?;
            return Ok(Described { parameters: Vec::new(), columns: columns(&plan) });
        }
        let mut types = declared.to_vec();
        types.resize(count.max(declared.len()), None);
        for (number, own) in parameters::types(&mut statement) {
            if let Some(unknown @ None) = number.checked_sub(1).and_then(|at| types.get_mut(at)) {
                *unknown = Some(own);
            }
        }
        // The planner infers the types of parameters that are compared with something.
        let open = self.explained(statement.clone(), sql).await;
        if let Ok(plan) = &open {
            let inferred = plan.logical_plan().get_parameter_types().unwrap_or_default();
            for (at, own) in types.iter_mut().enumerate() {
                let name = format!("${}", at.saturating_add(1));
                let inferred = || inferred.get(&name).cloned().flatten();
                *own = own.take().or_else(inferred);
            }
        }
        let examples: Vec<_> = types.iter().map(|own| Parameter::example(own.as_ref())).collect();
        parameters::bind(&mut statement, &examples)?;
        let plan = match (self.explained(statement, sql).await, open) {
            (Ok(plan), _) | (Err(_), Ok(plan)) => plan,
            (Err(error), Err(_)) => return Err(error),
        };
        Ok(Described { parameters: types, columns: columns(&plan) })
    }
}

/// The columns of the result of a plan.
pub fn columns(plan: &DataFrame) -> Vec<ResultColumn> {
    let plan = plan.logical_plan();
    let column = |(table, field): (Option<&TableReference>, &FieldRef)| {
        let data_type = field.data_type().clone();
        let column = Column::from((table, field));
        let is_json = data_type.is_string()
            && stored(plan, &column).is_some_and(|name| JSON.contains(&name.as_str()));
        let name = unmarked(field.name()).to_owned();
        ResultColumn { name, data_type, is_json }
    };
    plan.schema().iter().map(column).collect()
}

/// The name of the column of a table that a column of a plan is, unchanged.
fn stored(plan: &LogicalPlan, column: &Column) -> Option<String> {
    let (mut plan, mut column) = (plan, column.clone());
    loop {
        let at = plan.schema().maybe_index_of_column(&column)?;
        plan = match plan {
            LogicalPlan::TableScan(_) => return Some(column.name),
            LogicalPlan::Projection(projection) => {
                let mut expression = projection.expr.get(at)?;
                while let Expr::Alias(alias) = expression {
                    expression = &alias.expr;
                }
                let Expr::Column(inner) = expression else { return None };
                column = inner.clone();
                &projection.input
            }
            LogicalPlan::SubqueryAlias(alias) => {
                column = Column::from(alias.input.schema().qualified_field(at));
                &alias.input
            }
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Sort(sort) => &sort.input,
            LogicalPlan::Limit(limit) => &limit.input,
            LogicalPlan::Join(join) => match join.left.schema().has_column(&column) {
                true => &join.left,
                false => &join.right,
            },
            _ => return None,
        };
    }
}
