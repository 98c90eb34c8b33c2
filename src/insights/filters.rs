//! The filters of a list of events or an insight, compiled to one condition on events: [`Filters`]. Each plan gets a
//! copy of them, and the copies share their patterns, so that each pattern is compiled once per request.

use std::sync::Arc;

use datafusion::logical_expr::Expr;
use futures::FutureExt;
use serde_json::Value;

use weir_api::node::NodeError;
use weir_evaluation::membership::memberships;
use weir_event::id::ProjectId;
use weir_event::pattern::check_together;
use weir_event::predicate::Matching;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::{FILTERS_MAX, Tree, TreeError};
use weir_flags::cohorts::CohortSet;
use weir_identity::view::View;
use weir_query::dialect::expression::Expression;
use weir_query::events::event_sessions;
use weir_query::filter::matches::Subjects;
use weir_query::filter::subject_sets::{FindPersons, SUBJECTS_MAX};
use weir_query::filter::{matches, person_filter, tree};
use weir_query::guard::complexity;
use weir_query::guard::complexity::WORDS_MAX;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::view::ExactColumns;

/// Filters that must all hold.
#[derive(Clone, Debug, Default)]
pub struct Filters(Vec<Tree>);

impl Filters {
    /// Adds a list of filters, or a group of them, from `path` of the request.
    ///
    /// # Errors
    ///
    /// They are malformed, or of a type that events do not have.
    pub fn add(&mut self, filters: &Value, path: &str) -> Result<(), NodeError> {
        let is_empty = match filters {
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if is_empty {
            return Ok(());
        }
        let refused = |detail| NodeError { field: path.to_owned(), detail };
        self.0.push(parsed(filters).map_err(refused)?);
        // The limits apply to all of them together.
        let all = self.0.iter().map(|tree| tree.filters().len()).sum::<usize>();
        if all > FILTERS_MAX {
            return Err(refused(TreeError::TooLarge.to_string()));
        }
        check_words(self.0.iter().flat_map(Tree::filters)).map_err(refused)?;
        check_together([self.pattern_states()]).map_err(|error| refused(error.to_string()))
    }

    /// All single filters.
    pub fn each(&self) -> impl Iterator<Item = &Filter> {
        self.0.iter().flat_map(Tree::filters)
    }

    /// The number of states of their patterns.
    pub(super) fn pattern_states(&self) -> usize {
        let patterns = self.0.iter().flat_map(Tree::patterns);
        patterns.map(|pattern| pattern.size().states).fold(0, usize::saturating_add)
    }

    /// Whether they filter by sessions or by expressions, for which events need additional columns.
    pub fn ask_beside_events(&self) -> bool {
        let is_beside = |filter: &&Filter| {
            matches!(filter, Filter::Property { scope: Scope::Session | Scope::Expression, .. })
        };
        self.0.iter().any(|tree| tree.filters().iter().any(is_beside))
    }

    /// The condition that all hold for an event, and for its person and groups as of now; `None` without filters. It
    /// is valid for events whose columns are `exact`, see [`View::exact`](weir_query::kernel::view::View::exact). If
    /// the filters are on sessions or have expressions, the events also need the columns of these, see
    /// [`with_columns`](weir_query::events::expression_columns::with_columns).
    pub fn condition(
        &self,
        engine: &Engine,
        project: ProjectId,
        exact: ExactColumns,
    ) -> Option<Expr> {
        let (tree, besides) = (self.tree()?, Besides::of(engine, project));
        let find = Some(besides.clone().finding());
        let subjects = Subjects { exact, find, ..besides.subjects() };
        Some(tree::condition(tree, subjects))
    }

    /// The condition that all hold for a person, on rows of the table of persons: see [`person_filter::condition`].
    /// The filters must be on persons only; `None` without filters.
    pub fn condition_of_persons(&self, engine: &Engine, project: ProjectId) -> Option<Expr> {
        Some(person_filter::condition(self.tree()?, Besides::of(engine, project).subjects()))
    }

    /// All of them; `None` without filters.
    fn tree(&self) -> Option<Tree> {
        match self.0.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(Tree::All(several.to_vec())),
        }
    }
}

/// What filters read besides rows, as of one moment.
#[derive(Clone)]
struct Besides {
    engine: Engine,
    project: ProjectId,
    view: Arc<View>,
    cohorts: Arc<CohortSet>,
    now: Now,
}

impl Besides {
    fn of(engine: &Engine, project: ProjectId) -> Self {
        let cohorts = engine.metadata().snapshot().cohort_set(project).cloned();
        let (view, now) = (engine.persons(project), engine.present(project));
        let cohorts = cohorts.unwrap_or_default();
        Self { engine: engine.clone(), project, view, cohorts, now }
    }

    fn subjects(&self) -> Subjects {
        let in_cohort = memberships(Arc::clone(&self.cohorts), self.project, self.now);
        Subjects {
            project: self.project,
            view: Arc::clone(&self.view),
            memory: self.engine.memory(),
            in_cohort: Some(Box::new(in_cohort)),
            now: self.now,
            exact: ExactColumns::default(),
            find: None,
        }
    }

    /// Finds persons in the table of persons.
    fn finding(self) -> FindPersons {
        Arc::new(move |tree, running| {
            let own = self.clone();
            let found = async move {
                let condition = person_filter::condition(tree, own.subjects());
                let persons = (own.project, Arc::clone(&own.view));
                own.engine.persons_where(persons, condition, SUBJECTS_MAX, &running).await
            };
            found.boxed()
        })
    }
}

/// Refuses expressions that are too long in total.
fn check_words<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Result<(), String> {
    let words = filters.into_iter().map(|filter| match filter {
        Filter::Property { scope: Scope::Expression, predicate } => {
            complexity::words(&predicate.key)
        }
        _ => 0,
    });
    match words.fold(0, usize::saturating_add) > WORDS_MAX {
        true => Err(format!(
            "The expressions of filters have at most {WORDS_MAX} words and operators together."
        )),
        false => Ok(()),
    }
}

/// Parses filters on events.
fn parsed(filters: &Value) -> Result<Tree, String> {
    let tree = Tree::parse(filters, "event", Matching::Legacy);
    let tree = tree.map_err(|error| error.to_string())?;
    // Before any expression is parsed.
    check_words(tree.filters())?;
    for filter in tree.filters() {
        if let Filter::Property { scope: Scope::Expression, predicate } = filter {
            Expression::parse(&predicate.key).map_err(|error| error.to_string())?;
            continue;
        }
        return Err(match filter {
            Filter::Property { scope: Scope::Group(None), .. } => {
                "A filter of the type group needs a group_type_index.".to_owned()
            }
            Filter::Property { scope: Scope::EventMetadata, predicate }
                if matches::metadata_column(&predicate.key).is_none() =>
            {
                format!("Events have no \"{}\" besides their properties.", predicate.key)
            }
            Filter::Property { scope: Scope::Session, predicate }
                if event_sessions::kind(&predicate.key).is_none() =>
            {
                format!("Sessions have no \"{}\" here.", predicate.key)
            }
            Filter::Flag { .. } => "Events cannot be filtered by the values of flags.".to_owned(),
            Filter::Property { .. } | Filter::Cohort { .. } => continue,
        });
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Filters;

    #[test]
    fn filters_of_all_lists_hold_and_are_counted_together() {
        let filter = |number: usize| json!({"key": "a", "value": number});
        let many = |count: usize| Value::from((0..count).map(filter).collect::<Vec<_>>());
        let mut filters = Filters::default();
        filters.add(&many(600), "properties").unwrap();
        filters.add(&json!([]), "properties").unwrap();
        assert_eq!(filters.0[0].filters().len(), 600);
        let error = filters.add(&many(401), "series.0.properties").unwrap_err();
        assert_eq!(error.field, "series.0.properties");
        for wrong in [
            json!("x"),
            json!(null),
            json!([{"key": "a", "value": 1, "type": "flag"}]),
            json!([{"key": "a", "value": 1, "type": "group"}]),
            json!([{"key": "nothing", "value": 1, "type": "event_metadata"}]),
            json!([{"key": "$channel_type", "value": "Direct", "type": "session"}]),
            json!([{"key": "SELECT 1", "type": "hogql"}]),
            json!([{"key": "event = (SELECT max(name) FROM event_definitions)", "type": "hogql"}]),
        ] {
            let error = Filters::default().add(&wrong, "properties").unwrap_err();
            assert_eq!(error.field, "properties", "{wrong}");
        }
    }

    #[test]
    fn patterns_of_all_lists_are_counted_together() {
        let pattern = |value: &str| json!([{"key": "a", "operator": "regex", "value": value}]);
        let error = Filters::default().add(&pattern(r"\w{1000}"), "properties").unwrap_err();
        assert!(error.detail.contains("of at most 100000"), "{error}");
        let mut filters = Filters::default();
        for _ in 0..5 {
            filters.add(&pattern(r"\w{50}"), "properties").unwrap();
        }
        let error = filters.add(&pattern(r"\w{50}"), "series.0.properties").unwrap_err();
        assert!(error.detail.contains("of at most 200000"), "{error}");
        assert_eq!(error.field, "series.0.properties");
    }
}
