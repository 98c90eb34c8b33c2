//! `IN COHORT` of SQL: [`register`] lets a query name the members of cohorts as tables. Who is a member is asked when a plan
//! names the table, so a query without cohorts pays nothing.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::ident;
use serde_json::json;

use crate::filters::Filters;
use weir_event::id::ProjectId;
use weir_metadata::cohorts::CohortId;
use weir_query::dialect::cohort_names::By;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;
use weir_query::persons::tables::rows_of_persons;

/// Characters of a name that an error tells.
const TOLD_MAX_CHARS: usize = 100;

/// Lets SQL over these tables name the cohorts of the project as of now.
///
/// # Errors
///
/// DataFusion refuses them: a bug.
pub(super) async fn register(
    engine: &Engine,
    view: &View,
    project: ProjectId,
) -> std::result::Result<(), QueryError> {
    let persons = view.table("persons").await?.into_view();
    for by in By::ALL {
        let (engine, persons) = (engine.clone(), Arc::clone(&persons));
        view.register(by.schema(), Arc::new(Cohorts { engine, project, persons, by }))?;
    }
    Ok(())
}

/// The cohorts of a project, each as a table of its members by their `id`.
struct Cohorts {
    engine: Engine,
    project: ProjectId,
    persons: Arc<dyn TableProvider>,
    by: By,
}

impl std::fmt::Debug for Cohorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cohorts").field("by", &self.by).finish_non_exhaustive()
    }
}

impl Cohorts {
    fn find(&self, name: &str) -> Result<CohortId> {
        let snapshot = self.engine.metadata().snapshot();
        let mut found = snapshot.cohorts(self.project).iter().filter(|cohort| match self.by {
            By::Id => name.parse() == Ok(cohort.id.0),
            By::Name => cohort.name == name,
        });
        let told = || name.chars().take(TOLD_MAX_CHARS).collect::<String>();
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only.id),
            (None, _) => Err(DataFusionError::Plan(match self.by {
                By::Id => format!("there is no cohort with the id {}", told()),
                By::Name => format!("there is no cohort with the name '{}'", told()),
            })),
            (Some(_), Some(_)) => Err(DataFusionError::Plan(format!(
                "there are several cohorts with the name '{}'; say which by its id",
                told()
            ))),
        }
    }

    fn members(&self, id: CohortId) -> Result<ViewTable> {
        let mut filters = Filters::default();
        let filter = json!([{"type": "cohort", "key": "id", "value": id.0}]);
        let refused = |detail| DataFusionError::Plan(detail);
        filters.add(&filter, "query").map_err(|error| refused(error.detail))?;
        let condition = filters.condition_of_persons(&self.engine, self.project);
        let condition = condition.ok_or_else(|| refused("a cohort has a condition".to_owned()))?;
        let persons = provider_as_source(Arc::clone(&self.persons));
        let plan = rows_of_persons(persons)?.filter(condition)?.project([ident("id")])?.build()?;
        Ok(ViewTable::new(plan, None))
    }
}

#[async_trait]
impl SchemaProvider for Cohorts {
    /// None, as for whoever lists tables: they are for `IN COHORT`.
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(Some(Arc::new(self.members(self.find(name)?)?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }
}
