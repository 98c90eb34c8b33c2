//! What another process evaluates filters by: those on rows of events by the filters themselves, those on persons and on
//! groups by the sets of those for whom they hold.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::logical_expr::ScalarUDF;
use futures::FutureExt;
use serde_json::Map;
use uuid::Uuid;

use super::{Known, Matches, NAME, Row, failed, is_of_persons};
use crate::filter::condition::{About, Call, Content};
use crate::filter::content::{ConditionContent, OfEvents, OfGroups, OfPersons, Uuids};
use crate::filter::subject_sets::{KEY_BYTES_MAX, SUBJECTS_MAX, SubjectSet};
use crate::filter::{condition, subject_sets};
use crate::guard::Running;
use crate::persons::person_numbers::table_bytes;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::tree::Tree;
use weir_identity::view::Flow;

/// Most groups that are read for a set.
const READ_MAX: usize = 1_000_000;

/// The same of filters on groups, by the set of those for which it is the other way round than without properties.
///
/// # Errors
///
/// Some of them look at something else, or there is no memory for the set.
pub(crate) fn of_groups(
    OfGroups { tree, now, others }: OfGroups,
    memory: &Arc<dyn MemoryPool>,
) -> Result<ScalarUDF> {
    if group_type(&tree).is_none() {
        let why = "filters of groups look at something else than groups of one type";
        return Err(DataFusionError::Plan(why.to_owned()));
    }
    let reserved = MemoryConsumer::new("groups of a condition").register(memory);
    let keys = others.iter().map(String::len).fold(0, usize::saturating_add);
    reserved.try_grow(keys.saturating_add(table_bytes(others.len(), size_of::<String>())))?;
    let others: HashSet<String> = others.into_iter().collect();
    let matches = Matches::of_rows(tree, now);
    let (pace, types) = (matches.pace(), vec![DataType::Utf8View]);
    let test = condition::of_one(NAME, move |keys: &ArrayRef, call: Call<'_>| {
        let _reserved = &reserved;
        let held = matches.keep(std::slice::from_ref(keys), call)?;
        subject_sets::turned(&held, keys, &others)
    });
    Ok(condition::function(About::default(), NAME, types, pace, test))
}

/// The type of the groups that all filters of a tree ask of, which ask of nothing else.
fn group_type(tree: &Tree) -> Option<u8> {
    let mut types = tree.filters().into_iter().map(|filter| match filter {
        Filter::Property { scope: Scope::Group(index), .. } => *index,
        _ => None,
    });
    let first = types.next()??;
    types.all(|own| own == Some(first)).then_some(first)
}

impl Matches {
    /// What another process evaluates the filters by.
    pub(super) fn content(self: &Arc<Self>) -> Content {
        let Some(subjects) = &self.subjects else {
            let (tree, now) = (self.tree.clone(), self.now);
            return Content::Known(Box::new(ConditionContent::Events(OfEvents { tree, now })));
        };
        let own = Arc::clone(self);
        if let Some(find) = subjects.find.clone().filter(|_| is_of_persons(&self.tree)) {
            let read = move |running| {
                let holds_for_nobody = own.holds_for(None);
                let tree = own.tree.clone();
                let tree = if holds_for_nobody { tree.negated() } else { tree };
                let found = find(tree, running);
                let content = move |found: Option<Vec<Uuid>>| {
                    let others = Uuids(found?);
                    Some(ConditionContent::Persons(OfPersons { holds_for_nobody, others }))
                };
                found.map(move |found| found.map(content)).boxed()
            };
            return Content::Set(Arc::new(SubjectSet::new(&subjects.memory, read)));
        }
        if let Some(index) = group_type(&self.tree) {
            let read = move |running| {
                let own = Arc::clone(&own);
                async move { own.groups(index, &running) }.boxed()
            };
            return Content::Set(Arc::new(SubjectSet::new(&subjects.memory, read)));
        }
        Content::Nothing
    }

    /// The groups of a type of which the properties make a difference for filters on them alone; `None` if they are too
    /// many. Blocks.
    fn groups(&self, index: u8, running: &Running) -> Result<Option<ConditionContent>> {
        let Some(subjects) = &self.subjects else { return Ok(None) };
        let pace = self.pace();
        let call = Call::new(&pace, running);
        let mut is_small = true;
        let (mut others, mut bytes, mut read, mut ended) = (Vec::new(), 0_usize, 0_usize, Ok(()));
        let visit = |key: String, group| {
            read += 1;
            ended = running.check().and_then(|()| call.check());
            let column: ArrayRef = Arc::new(StringViewArray::from(vec![key.as_str()]));
            let (columns, mut known) = ([column], Known::default());
            let holds = |known: &Known| {
                let row = Row { columns: &columns, at: 0, event: Map::new(), person: None, known };
                self.tree.holds(&mut |filter| self.holds(filter, &row))
            };
            let without = holds(&known);
            if let Some(groups) = known.groups.get_mut(usize::from(index)) {
                groups.insert(key.clone(), Some(group));
            }
            if holds(&known) != without {
                bytes = bytes.saturating_add(key.len());
                others.push(key);
            }
            is_small = others.len() <= SUBJECTS_MAX && bytes <= KEY_BYTES_MAX && read <= READ_MAX;
            if is_small && ended.is_ok() { Flow::Continue(()) } else { Flow::Break(()) }
        };
        subjects.view.scan_groups_of(subjects.project, index, visit).map_err(failed)?;
        ended?;
        let (tree, now) = (self.tree.clone(), self.now);
        Ok(is_small.then(|| ConditionContent::Groups(OfGroups { tree, now, others })))
    }
}
