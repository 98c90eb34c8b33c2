//! Lists of persons: who answers a question, in the order of lists, as of one moment of the identity
//! store. A distinct id or an email is a look-up, and the first page of all persons a walk along their
//! places (`search`); any other filter is a condition of a plan over the persons table (`list`).

mod list;
pub(crate) mod search;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::ident;
use futures::StreamExt;
use uuid::Uuid;

use crate::filter::subject::InCohort;
use crate::guard::Running;
use crate::kernel::engine::Engine;
use crate::kernel::error::QueryError;
use crate::kernel::physical::physical;
use crate::persons::people::search::Search;
use crate::persons::person_scan::PersonsProvider;
use crate::persons::tables::rows_of_persons;
use weir_event::id::ProjectId;
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_identity::view::{Flow, View};

/// Persons created later than this after now are not listed: their events came from a wrong clock.
/// The figure is PostHog's.
const FUTURE: Duration = Duration::from_hours(24);

/// Which persons are asked for. Everything that is given must hold.
#[derive(Default)]
pub struct PersonsQuestion {
    /// One of the person's distinct ids.
    pub distinct_id: Option<String>,
    /// The property `email`, exactly.
    pub email: Option<String>,
    /// A part of the property `email` in any case, or a distinct id or the uuid, exactly.
    pub search: Option<String>,
    /// Filters on properties.
    pub properties: Option<Tree>,
    /// A cohort that the person is in.
    pub cohort: Option<i64>,
    /// Numbers, of which the person has one.
    pub numbers: Option<Vec<i64>>,
    /// Uuids, of which the person has one.
    pub uuids: Option<Vec<Uuid>>,
    /// The property `email` or one of the person's distinct ids, exactly.
    pub key_identifier: Option<String>,
    /// Records of the log from this one on changed the person or its distinct ids.
    pub changed_since: Option<u64>,
    /// Answers for cohorts; without it nobody is in one.
    pub in_cohort: Option<InCohort>,
}

impl std::fmt::Debug for PersonsQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersonsQuestion").finish_non_exhaustive()
    }
}

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Persons left out before.
    pub offset: usize,
    /// Persons at most.
    pub limit: usize,
}

/// Persons that were found, and where to read them.
#[derive(Debug)]
pub struct FoundPersons {
    /// Persons of the whole list.
    pub count: usize,
    /// Numbers of the part that was wanted, in order.
    pub numbers: Vec<i64>,
    project: ProjectId,
    view: Arc<View>,
}

impl FoundPersons {
    /// Shows the persons with their first distinct ids, at most `ids_max`, until told to stop.
    pub fn each(
        &self,
        ids_max: usize,
        mut visit: impl FnMut(Person, Vec<String>) -> Flow,
    ) -> Result<(), IdentityError> {
        for number in &self.numbers {
            let Some(person) = self.view.person_by_number(self.project, *number)? else { continue };
            let ids = self.view.first_ids(self.project, *number, ids_max)?;
            if visit(person, ids).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Memory of the columns of persons, in bytes.
    pub fn columns_memory(&self) -> usize {
        self.shared.sources.persons.as_ref().map_or(0, |table| table.columns_memory())
    }

    /// The persons who answer `question`, `created_at` descending and then uuid descending.
    pub async fn find_persons(
        &self,
        project: ProjectId,
        question: PersonsQuestion,
        part: Part,
    ) -> Result<FoundPersons, QueryError> {
        if question.is_about_everybody() {
            return self.within_time(self.find_everybody(project, question, part)).await?;
        }
        let now = self.present(project);
        self.read(move |view, stop| {
            let search = Search::new(&view, project, &question, now, stop)?;
            let (count, numbers) = search.find(part)?;
            Ok(FoundPersons { count, numbers, project, view: Arc::new(view) })
        })
        .await
    }

    /// The persons of a view for whom a condition holds, on [`rows_of_persons`]; `None` if they are more than `persons_max`.
    /// For a query that is being planned: it runs on the thread of the caller.
    ///
    /// # Errors
    ///
    /// The persons cannot be read, or `running` has ended.
    pub async fn persons_where(
        &self,
        (project, view): (ProjectId, Arc<View>),
        condition: Expr,
        persons_max: usize,
        running: &Running,
    ) -> Result<Option<Vec<Uuid>>, DataFusionError> {
        let persons = PersonsProvider::new(view, project, self.shared.sources.persons.clone());
        let query = rows_of_persons(provider_as_source(Arc::new(persons)))?
            .filter(condition)?
            .project([ident("id")])?
            .limit(0, Some(persons_max.saturating_add(1)))?
            .build()?;
        let mut config = self.shared.base.config().clone().with_target_partitions(1);
        config.options_mut().extensions.insert(running.clone());
        let state = SessionStateBuilder::new_from_existing(self.shared.base.clone());
        let (state, plan, _) = physical(state.with_config(config).build(), query).await?;
        let mut batches = execute_stream(plan, state.task_ctx())?;
        let mut found = Vec::new();
        while let Some(batch) = batches.next().await {
            running.check()?;
            let batch = batch?;
            let ids = batch.columns().first().and_then(|ids| ids.as_string_view_opt());
            let Some(ids) = ids else { return Ok(None) };
            found.extend(ids.iter().flatten().filter_map(|id| Uuid::try_parse(id).ok()));
            if found.len() > persons_max {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// The present of a project, as of [`Engine::now`], for dates of its filters.
    pub fn present(&self, project: ProjectId) -> Now {
        self.shared.sources.metadata.snapshot().now(project, self.now())
    }
}
