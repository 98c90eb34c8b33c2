//! Statements with parameters, for protocols that prepare them: the types of a statement without values
//! ([`View::described`]), its plan with values ([`View::bound`]), and what a result's columns are ([`columns`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::dataframe::DataFrame;
use datafusion::sql::parser::Statement;

use crate::dialect::parameters::Parameter;
use crate::dialect::postgres::pruned::unmarked;
use crate::dialect::{parameters, postgres};
use crate::kernel::error::QueryError;
use crate::kernel::lineage;
use crate::kernel::view::View;
use crate::output::format;

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

impl ResultColumn {
    /// Whether a value, or a part of one, may have several types. See [`format::SEVERAL_TYPES`].
    pub fn has_several_types(&self) -> bool {
        let field = Field::new(&self.name, self.data_type.clone(), true);
        format::has_several_types(&Schema::new(vec![field]))
    }
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
    /// its parameters. `is_empty` says whether a table of it never has rows.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] with an explanation.
    pub async fn catalog(
        &self,
        sql: &str,
        values: &[Parameter],
        is_empty: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<DataFrame, QueryError> {
        let statement = postgres::statement(sql, self.recursion_max())?;
        self.of_catalog(statement, values, is_empty).await
    }

    async fn of_catalog(
        &self,
        mut statement: Statement,
        values: &[Parameter],
        is_empty: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<DataFrame, QueryError> {
        parameters::bind(&mut statement, values)?;
        postgres::rewrite(&mut statement, is_empty)?;
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
        is_empty: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<Described, QueryError> {
        let mut statement = postgres::statement(sql, self.recursion_max())?;
        let count = parameters::count(&mut statement)?;
        let mut types = declared.to_vec();
        types.resize(count.max(declared.len()), None);
        let examples: Vec<_> = types.iter().map(|own| Parameter::example(own.as_ref())).collect();
        let plan = self.of_catalog(statement, &examples, is_empty).await?;
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
    let column = |(at, field): (usize, &Arc<Field>)| {
        let data_type = field.data_type().clone();
        let is_json = lineage::origin(plan, at).is_some_and(|(_, name)| is_json(&name, &data_type));
        ResultColumn { name: unmarked(field.name()).to_owned(), data_type, is_json }
    };
    plan.schema().fields().iter().enumerate().map(column).collect()
}

/// Whether the texts of a column of a table are JSON.
pub fn is_json(name: &str, data_type: &DataType) -> bool {
    data_type.is_string() && JSON.contains(&name)
}
