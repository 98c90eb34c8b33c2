//! What the stores know of the person and the groups that a question about flags is for: one look-up
//! each, as of every acknowledged event. [`Knowledge::ask`] makes it the subject of an evaluation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use serde_json::Map;
use serde_json::Value;

use crate::app::App;
use crate::clock::UnixMicros;
use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::flags::cohorts::CohortSet;
use crate::flags::cohorts::Memberships;
use crate::flags::evaluate::Cohorts;
use crate::flags::subject::GroupTypes;
use crate::flags::subject::HashKeys;
use crate::flags::subject::Subject;
use crate::http::response::Problem;
use crate::identity::IdentityError;
use crate::identity::person::Person;
use crate::identity::view::View;
use crate::metadata::hash_keys::NewHashKey;
use crate::metadata::snapshot::Snapshot;
use crate::query::cohorts::uuids_of;

/// Whom a question is about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The project.
    pub project: ProjectId,
    /// The person.
    pub distinct_id: &'a str,
    /// Who this was before the login.
    pub anon_distinct_id: Option<&'a str>,
    /// The device.
    pub device_id: Option<&'a str>,
    /// From group type to group key.
    pub groups: &'a Map<String, Value>,
    /// What overlays the stored properties of the person.
    pub person_properties: &'a Map<String, Value>,
    /// From group type to what overlays the stored properties of the group.
    pub group_properties: &'a Map<String, Value>,
    /// Whether stored properties do not count.
    pub supplied_only: bool,
}

/// Longest time that an evaluation keeps a thread of sockets. To hand it over to the threads for what
/// computes, and the answer back, costs about 20 us of their time, and where all threads are busy it
/// waits twice for its turn, some milliseconds each.
const INLINE_NANOS_MAX: u64 = 200_000;

/// Runs an evaluation that takes about `nanos` nanoseconds: here, or, if that would keep this thread
/// from other requests for long, on the threads for what computes.
///
/// # Errors
///
/// The evaluation panicked, or the server is going down.
pub async fn evaluate<T: Send + 'static>(
    app: &App,
    nanos: u64,
    evaluation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    if nanos <= INLINE_NANOS_MAX {
        return Ok(evaluation());
    }
    app.cpu.run(evaluation).await.map_err(|error| Problem::of(error.kind(), &error))
}

/// What is stored of them.
pub struct Knowledge {
    view: Option<View>,
    person: Option<Arc<Person>>,
    groups: BTreeMap<u8, Map<String, Value>>,
    /// Kept across a login; `Err` if they could not be read or written.
    hash_keys: Result<HashMap<String, String>, ()>,
}

impl std::fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Knowledge").field("person", &self.person).finish_non_exhaustive()
    }
}

impl Knowledge {
    /// Looks up what the question is about. The first question after a login also makes the
    /// person's hash keys durable.
    ///
    /// # Errors
    ///
    /// The identity store failed or does not follow the log.
    pub async fn look_up(
        app: &App,
        metadata: &Snapshot,
        question: &Question<'_>,
    ) -> Result<Self, Problem> {
        let mut known = Self {
            view: None,
            person: None,
            groups: BTreeMap::new(),
            hash_keys: Ok(HashMap::new()),
        };
        if question.supplied_only {
            return Ok(known);
        }
        let failed = |kind, error: &(dyn Error + 'static)| Problem::of(kind, error);
        app.engine.wait().await.map_err(|error| failed(error.kind(), &error))?;
        let view = app.identities.view();
        let read = known.read(&view, metadata, question);
        read.map_err(|error| failed(error.kind(), &error))?;
        let flags = metadata.flag_set(question.project);
        if flags.is_some_and(|flags| flags.continuity_keys().next().is_some()) {
            let person = known.person.as_deref();
            known.hash_keys = hash_keys(app, metadata, (&view, person), question).await;
        }
        known.view = Some(view);
        Ok(known)
    }

    fn read(
        &mut self,
        view: &View,
        metadata: &Snapshot,
        question: &Question<'_>,
    ) -> Result<(), IdentityError> {
        let project = question.project;
        self.person = view.shared_person_of(project, question.distinct_id)?;
        for (index, name) in (0_u8..).zip(metadata.group_types(project)) {
            let Some(key) = question.groups.get(name).and_then(group_key) else { continue };
            if let Some(group) = view.group(project, index, &key)? {
                self.groups.insert(index, group.properties);
            }
        }
        Ok(())
    }

    /// The person, if there is one.
    pub fn person(&self) -> Option<&Person> {
        self.person.as_deref()
    }

    /// Takes `properties` for those that are stored of the person.
    pub fn assume(&mut self, properties: Map<String, Value>) {
        if let Some(person) = &mut self.person {
            Arc::make_mut(person).properties = properties;
        }
    }

    /// Makes this the subject of `ask`, with the cohorts of the project.
    pub fn ask<T>(
        &self,
        metadata: &Snapshot,
        question: &Question<'_>,
        now: UnixMicros,
        ask: impl FnOnce(&Subject<'_>, &dyn Cohorts) -> T,
    ) -> T {
        let project = question.project;
        let mut subject = Subject::new(question.distinct_id, now);
        subject.device_id = question.device_id;
        subject.anon_distinct_id = question.anon_distinct_id;
        subject.stored = self.person.as_ref().map(|person| &person.properties);
        subject.supplied = Some(question.person_properties);
        subject.created_at = self.person.as_ref().map(|person| person.created_at);
        subject.hash_keys = match &self.hash_keys {
            Ok(keys) if keys.is_empty() => HashKeys::None,
            Ok(keys) => HashKeys::Kept(keys),
            Err(()) => HashKeys::Failed,
        };
        let types = metadata.group_types(project);
        let types = GroupTypes::new((0..).zip(types.iter().map(String::as_str)));
        subject.add_groups(&types, Some(question.groups), Some(question.group_properties));
        for (index, properties) in &self.groups {
            subject.store_group(*index, properties);
        }
        let uuids = || match (&self.view, &self.person) {
            (Some(view), Some(person)) => uuids_of(view, project, person),
            _ => Some(vec![PersonId::of(project, question.distinct_id).0]),
        };
        let none = CohortSet::default();
        let set = metadata.cohort_set(project).map_or(&none, |set| set);
        ask(&subject, &Memberships::new(set, &uuids))
    }
}

/// The key of a group, if it is one: a text that is not empty, or a number.
fn group_key(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// The hash keys that count for the question, about `person`. With an id of before the login, flags
/// with experience continuity that have none for either person get that id, for good.
async fn hash_keys(
    app: &App,
    metadata: &Snapshot,
    (view, person): (&View, Option<&Person>),
    question: &Question<'_>,
) -> Result<HashMap<String, String>, ()> {
    let project = question.project;
    let own = ids_of(view, project, (person, question.distinct_id)).ok_or(())?;
    let mut kept = app.metadata.hash_keys(project, &own).await.map_err(drop)?;
    let Some(anon) = question.anon_distinct_id.filter(|id| !id.is_empty()) else { return Ok(kept) };
    let other = view.person_of(project, anon).map_err(drop)?;
    let others = ids_of(view, project, (other.as_ref(), anon)).ok_or(())?;
    let before = app.metadata.hash_keys(project, &others).await.map_err(drop)?;
    let flags = metadata.flag_set(project).into_iter().flat_map(|flags| flags.continuity_keys());
    let mut new = Vec::new();
    for flag in flags {
        let row = |distinct_id: &str| NewHashKey {
            project,
            distinct_id: distinct_id.to_owned(),
            flag_key: flag.to_owned(),
            hash_key: anon.to_owned(),
        };
        if !before.contains_key(flag) && !own.iter().any(|id| id == anon) {
            new.push(row(anon));
        }
        if !kept.contains_key(flag) {
            new.push(row(question.distinct_id));
            kept.insert(flag.to_owned(), anon.to_owned());
        }
    }
    if !new.is_empty() {
        let metadata = app.metadata.clone();
        let write = async move { metadata.keep_hash_keys(new).await };
        app.tasks.0.detach("keep-hash-keys", write).await.map_err(drop)?.map_err(drop)?;
    }
    Ok(kept)
}

/// The distinct ids of the person that has this one; just this one if there is no person.
fn ids_of(
    view: &View,
    project: ProjectId,
    (person, distinct_id): (Option<&Person>, &str),
) -> Option<Vec<String>> {
    match person {
        Some(person) => view.distinct_ids(project, person.uuid).ok(),
        None => Some(vec![distinct_id.to_owned()]),
    }
}
