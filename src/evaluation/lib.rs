//! Flag evaluation of a request. [`Evaluator::load`] reads the person, its groups and its hash keys with one point
//! look-up each, with read-your-writes consistency. [`EvaluationContext::evaluate`] builds the subject from them. No
//! HTTP and no evaluation rules here: the rules are in [`flags`](weir_flags).

pub mod membership;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::membership::uuids_of;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_base::tasks::{CpuPool, TaskError, Tasks};
use weir_event::id::{PersonId, ProjectId};
use weir_flags::cohorts::{CohortSet, Memberships};
use weir_flags::evaluate::Cohorts;
use weir_flags::subject::{GroupTypes, HashKeys, Subject};
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_identity::view::View;
use weir_metadata::Metadata;
use weir_metadata::hash_keys::{IDS_MAX, NewHashKey};
use weir_metadata::snapshot::Snapshot;
use weir_progress::barrier::{BarrierError, ReadBarrier};

/// A flag request: the person, device and groups to evaluate for.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationRequest<'a> {
    /// The project.
    pub project: ProjectId,
    /// The person.
    pub distinct_id: &'a str,
    /// The distinct id before the login (`$anon_distinct_id`).
    pub anon_distinct_id: Option<&'a str>,
    /// The device.
    pub device_id: Option<&'a str>,
    /// Group keys by group type.
    pub groups: &'a Map<String, Value>,
    /// Properties of the person that override the stored ones.
    pub person_properties: &'a Map<String, Value>,
    /// Group properties by group type that override the stored ones.
    pub group_properties: &'a Map<String, Value>,
    /// Whether stored properties are ignored.
    pub supplied_only: bool,
}

/// Largest cost estimate of an evaluation that runs inline on an async thread, in nanoseconds. A hand-over to the CPU
/// pool and back costs about 20 us of the async thread; with all threads busy the task waits twice, some milliseconds
/// each.
const INLINE_NANOS_MAX: u64 = 200_000;

/// An error of loading or evaluating.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// The identity store is behind the log.
    #[error(transparent)]
    Behind(#[from] BarrierError),
    /// The identity store failed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The evaluation panicked, or the server is shutting down.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl EvaluationError {
    /// The class of the error for the caller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Behind(error) => error.kind(),
            Self::Identity(error) => error.kind(),
            Self::Task(error) => error.kind(),
        }
    }
}

/// The stores that evaluations read, and the threads that they run on; clones share them.
#[derive(Clone)]
pub struct Evaluator {
    /// Read barrier: waits until the identity store has applied the newest event.
    barrier: ReadBarrier,
    /// Store of the hash keys.
    metadata: Metadata,
    /// Spawns writes of hash keys, so that they complete even if the client disconnects.
    tasks: Tasks,
    /// The CPU pool, for long evaluations and for scattered disk reads.
    cpu: CpuPool,
}

impl std::fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluator").finish_non_exhaustive()
    }
}

/// The stored data of the person and the groups of a request.
pub struct EvaluationContext {
    view: Option<Arc<View>>,
    person: Option<Arc<Person>>,
    groups: BTreeMap<u8, Map<String, Value>>,
    /// Stored hash keys; `Err` if they could not be read or written.
    hash_keys: Result<HashMap<String, String>, ()>,
}

impl std::fmt::Debug for EvaluationContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvaluationContext").field("person", &self.person).finish_non_exhaustive()
    }
}

impl Evaluator {
    /// An evaluator over these stores and threads.
    pub fn new(barrier: &ReadBarrier, metadata: &Metadata, tasks: &Tasks, cpu: &CpuPool) -> Self {
        Self {
            barrier: barrier.clone(),
            metadata: metadata.clone(),
            tasks: tasks.clone(),
            cpu: cpu.clone(),
        }
    }

    /// Loads the data of the request's person and groups. The first request after a login also
    /// makes the person's hash keys durable.
    ///
    /// # Errors
    ///
    /// The identity store failed or is behind the log.
    pub async fn load(
        &self,
        metadata: &Snapshot,
        request: &EvaluationRequest<'_>,
    ) -> Result<EvaluationContext, EvaluationError> {
        let mut context = EvaluationContext {
            view: None,
            person: None,
            groups: BTreeMap::new(),
            hash_keys: Ok(HashMap::new()),
        };
        if request.supplied_only {
            return Ok(context);
        }
        self.barrier.wait().await?;
        let view = Arc::new(self.barrier.identities().view());
        context.read(&view, metadata, request)?;
        let flags = metadata.flag_set(request.project);
        if flags.is_some_and(|flags| flags.continuity_keys().next().is_some()) {
            let ids = self.ids_of(&view, context.person.as_deref(), request).await;
            context.hash_keys = match ids {
                Some(ids) => self.hash_keys(metadata, &ids, request).await,
                None => Err(()),
            };
        }
        context.view = Some(view);
        Ok(context)
    }

    /// Runs an evaluation with a cost estimate of `nanos`: inline up to 200 us, above it on the CPU pool.
    ///
    /// # Errors
    ///
    /// The evaluation panicked, or the server is shutting down.
    pub async fn run<T: Send + 'static>(
        &self,
        nanos: u64,
        evaluation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EvaluationError> {
        if nanos <= INLINE_NANOS_MAX {
            return Ok(evaluation());
        }
        Ok(self.cpu.run(evaluation).await?)
    }

    /// Reads the distinct ids whose hash keys apply, at most [`IDS_MAX`] of each person. Runs on the CPU pool,
    /// because the ids of a person are scattered over the disk.
    async fn ids_of(
        &self,
        view: &Arc<View>,
        person: Option<&Person>,
        request: &EvaluationRequest<'_>,
    ) -> Option<HashKeyIds> {
        let (project, number) = (request.project, person.map(|person| person.number));
        let anon = request.anon_distinct_id.filter(|id| !id.is_empty()).map(str::to_owned);
        let (view, own) = (Arc::clone(view), request.distinct_id.to_owned());
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
            Ok::<_, IdentityError>(HashKeyIds { own: ids_of(number, &own)?, before })
        };
        self.cpu.run(look_up).await.ok()?.ok()
    }

    /// Hash keys that apply to the request. If the request has a distinct id from before the login, each flag with
    /// experience continuity that has a hash key for neither person stores that id as its hash key.
    async fn hash_keys(
        &self,
        metadata: &Snapshot,
        ids: &HashKeyIds,
        request: &EvaluationRequest<'_>,
    ) -> Result<HashMap<String, String>, ()> {
        let project = request.project;
        let mut kept = self.metadata.hash_keys(project, &ids.own).await.map_err(drop)?;
        let Some((anon, others, is_same)) = &ids.before else { return Ok(kept) };
        let before = self.metadata.hash_keys(project, others).await.map_err(drop)?;
        let flags =
            metadata.flag_set(project).into_iter().flat_map(|flags| flags.continuity_keys());
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
                new.push(row(request.distinct_id));
                kept.insert(flag.to_owned(), anon.clone());
            }
        }
        if !new.is_empty() {
            let metadata = self.metadata.clone();
            let write = async move { metadata.keep_hash_keys(new).await };
            self.tasks.detach("keep-hash-keys", write).await.map_err(drop)?.map_err(drop)?;
        }
        Ok(kept)
    }
}

impl EvaluationContext {
    fn read(
        &mut self,
        view: &View,
        metadata: &Snapshot,
        request: &EvaluationRequest<'_>,
    ) -> Result<(), IdentityError> {
        let project = request.project;
        self.person = view.shared_person_of(project, request.distinct_id)?;
        for (index, name) in (0_u8..).zip(metadata.group_types(project)) {
            let Some(key) = request.groups.get(name).and_then(group_key) else { continue };
            if let Some(group) = view.group(project, index, &key)? {
                self.groups.insert(index, group.properties);
            }
        }
        Ok(())
    }

    /// The stored person, if it exists.
    pub fn person(&self) -> Option<&Person> {
        self.person.as_deref()
    }

    /// Replaces the stored properties of the person by `properties`.
    pub fn assume(&mut self, properties: Map<String, Value>) {
        if let Some(person) = &mut self.person {
            Arc::make_mut(person).properties = properties;
        }
    }

    /// Calls `evaluate` with the subject, and with the cohorts of the project.
    pub fn evaluate<T>(
        &self,
        metadata: &Snapshot,
        request: &EvaluationRequest<'_>,
        now: UnixMicros,
        evaluate: impl FnOnce(&Subject<'_>, &dyn Cohorts) -> T,
    ) -> T {
        let project = request.project;
        let mut subject = Subject::new(request.distinct_id, metadata.now(project, now));
        subject.device_id = request.device_id;
        subject.anon_distinct_id = request.anon_distinct_id;
        subject.stored = self.person.as_ref().map(|person| &person.properties);
        subject.supplied = Some(request.person_properties);
        subject.created_at = self.person.as_ref().map(|person| person.created_at);
        subject.hash_keys = match &self.hash_keys {
            Ok(keys) if keys.is_empty() => HashKeys::None,
            Ok(keys) => HashKeys::Kept(keys),
            Err(()) => HashKeys::Failed,
        };
        let types = metadata.group_types(project);
        let types = GroupTypes::new((0..).zip(types.iter().map(String::as_str)));
        subject.add_groups(&types, Some(request.groups), Some(request.group_properties));
        for (index, properties) in &self.groups {
            subject.store_group(*index, properties);
        }
        let uuids = || match (&self.view, &self.person) {
            (Some(view), Some(person)) => uuids_of(view, project, person),
            _ => Some(vec![PersonId::of(project, request.distinct_id).0]),
        };
        let none = CohortSet::default();
        let set = metadata.cohort_set(project).map_or(&none, |set| set);
        evaluate(&subject, &Memberships::new(set, &uuids))
    }
}

/// The key of a group, if it is valid: a non-empty string, or a number.
fn group_key(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// The distinct ids whose hash keys apply to a request.
struct HashKeyIds {
    /// Distinct ids of the person of the request.
    own: Vec<String>,
    /// Only if the request has an id from before the login: that id, the distinct ids of its person, and whether it
    /// is by now the same person as that of the request.
    before: Option<(String, Vec<String>, bool)>,
}
