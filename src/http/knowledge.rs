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
use crate::metadata::hash_keys::IDS_MAX;
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
    view: Option<Arc<View>>,
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
        let view = Arc::new(app.identities.view());
        let read = known.read(&view, metadata, question);
        read.map_err(|error| failed(error.kind(), &error))?;
        let flags = metadata.flag_set(question.project);
        if flags.is_some_and(|flags| flags.continuity_keys().next().is_some()) {
            let people = people_of(app, (&view, known.person.as_deref()), question).await;
            known.hash_keys = match people {
                Some(people) => hash_keys(app, metadata, &people, question).await,
                None => Err(()),
            };
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

/// Whose hash keys count for a question.
struct People {
    /// Distinct ids of the person that it is about.
    own: Vec<String>,
    /// Of whom that was before the login, if the question says so: the id, distinct ids of its person,
    /// and whether that is the same person by now.
    before: Option<(String, Vec<String>, bool)>,
}

/// Looks up whose hash keys count, of each person no more distinct ids than are asked for. On the
/// threads for what computes: the ids of a person are all over the disk.
async fn people_of(
    app: &App,
    (view, person): (&Arc<View>, Option<&Person>),
    question: &Question<'_>,
) -> Option<People> {
    let (project, number) = (question.project, person.map(|person| person.number));
    let anon = question.anon_distinct_id.filter(|id| !id.is_empty()).map(str::to_owned);
    let (view, own) = (Arc::clone(view), question.distinct_id.to_owned());
    let look_up = move || {
        let ids_of = |number: Option<i64>, id: &str| {
            let mut ids = vec![id.to_owned()];
            if let Some(number) = number {
                ids.extend(view.first_ids(project, number, IDS_MAX)?);
            }
            Ok::<_, IdentityError>(ids)
        };
        let before = |anon: String| {
            let other = view.shared_person_of(project, &anon)?.map(|person| person.number);
            let is_same = anon == own || (other.is_some() && other == number);
            Ok::<_, IdentityError>((anon.clone(), ids_of(other, &anon)?, is_same))
        };
        let before = anon.map(before).transpose()?;
        Ok::<_, IdentityError>(People { own: ids_of(number, &own)?, before })
    };
    app.cpu.run(look_up).await.ok()?.ok()
}

/// The hash keys that count for the question. With an id of before the login, flags with experience
/// continuity that have none for either person get that id, for good.
async fn hash_keys(
    app: &App,
    metadata: &Snapshot,
    people: &People,
    question: &Question<'_>,
) -> Result<HashMap<String, String>, ()> {
    let project = question.project;
    let mut kept = app.metadata.hash_keys(project, &people.own).await.map_err(drop)?;
    let Some((anon, others, is_same)) = &people.before else { return Ok(kept) };
    let before = app.metadata.hash_keys(project, others).await.map_err(drop)?;
    let flags = metadata.flag_set(project).into_iter().flat_map(|flags| flags.continuity_keys());
    let mut new = Vec::new();
    for flag in flags {
        let row = |distinct_id: &str| NewHashKey {
            project,
            distinct_id: distinct_id.to_owned(),
            flag_key: flag.to_owned(),
            hash_key: anon.clone(),
        };
        if !before.contains_key(flag) && !is_same {
            new.push(row(anon));
        }
        if !kept.contains_key(flag) {
            new.push(row(question.distinct_id));
            kept.insert(flag.to_owned(), anon.clone());
        }
    }
    if !new.is_empty() {
        let metadata = app.metadata.clone();
        let write = async move { metadata.keep_hash_keys(new).await };
        app.tasks.0.detach("keep-hash-keys", write).await.map_err(drop)?.map_err(drop)?;
    }
    Ok(kept)
}
