//! Flag definitions for local evaluation, at three paths. The body and its tag are built once for each revision of the
//! project's flags; a client that has the current one gets a 304.

mod inline;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use crate::conditional::Tag;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::local_evaluation::inline::Room;
use crate::{auth, conditional};
use weir_app::App;
use weir_event::id::ProjectId;
use weir_event::key_kind::{KeyKind, SECRET_PREFIX};
use weir_event::predicate::Matching;
use weir_flags::cohorts::Rule;
use weir_metadata::cohorts::StoredCohort;
use weir_metadata::flag_rules::{cohort_ids, dependencies};
use weir_metadata::flags::{FlagId, StoredFlag};
use weir_metadata::secrets::KeyHash;
use weir_metadata::snapshot::{Revision, Snapshot};

/// Clients cache the body and revalidate it on each use.
const CACHE: &str = "private, must-revalidate";

/// Longest chain of dependencies that is followed.
const CHAIN_MAX: usize = 1000;

/// Cache of definitions, with at most one entry per project.
#[derive(Debug, Default)]
pub struct Cache {
    made: Mutex<HashMap<ProjectId, Arc<Definitions>>>,
}

/// The definitions of a project at one revision. Each body is built on first use; concurrent requests
/// wait for it.
#[derive(Debug)]
struct Definitions {
    /// The revision.
    revision: Option<Arc<Revision>>,
    with_cohorts: OnceCell<Tagged>,
    without_cohorts: OnceCell<Tagged>,
}

/// A body, and its tag.
type Tagged = (Bytes, Tag);

/// `GET feature_flag/local_evaluation/`, `GET feature_flags/local_evaluation/` of a project, and `GET
/// /flags/definitions`, which always contains cohorts.
pub async fn definitions(
    app: &App,
    cache: &Cache,
    project: &str,
    request: &Request,
) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let query = Query::of(request);
    let project = project_of(&snapshot, project, request, &query)?;
    let definitions = cache.get(&snapshot, project);
    let has_cohorts = query.send_cohorts || request.path().starts_with("/flags/");
    let cell = match has_cohorts {
        true => &definitions.with_cohorts,
        false => &definitions.without_cohorts,
    };
    // Processes all filters of all flags: too slow for an async thread.
    let make = move || made(&snapshot, project, has_cohorts);
    let made = cell.get_or_try_init(|| app.node.cpu.run(make)).await;
    let (body, tag) = made.map_err(|error| Problem::of(error.kind(), &error))?;
    let response = || Response::json_bytes(StatusCode::OK, body.clone());
    Ok(conditional::respond(&request.headers, tag, CACHE, response))
}

/// `GET feature_flags/:id or key/remote_config`: the payload as stored, null if there is none.
pub fn remote_config(
    app: &App,
    project: &str,
    flag: &str,
    request: &Request,
) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let project = project_of(&snapshot, project, request, &Query::of(request))?;
    let flags = snapshot.flags(project);
    let is_id = !flag.is_empty() && flag.bytes().all(|byte| byte.is_ascii_digit());
    let found = flags.iter().find(|stored| match is_id {
        true => stored.id.to_string() == flag,
        false => stored.key == flag,
    });
    let Some(found) = found.filter(|flag| flag.plain.is_remote_configuration) else {
        return Ok(Response::empty(StatusCode::NOT_FOUND));
    };
    let payload = found.filters.pointer("/payloads/true").unwrap_or(&Value::Null);
    Ok(Response::json(StatusCode::OK, payload))
}

/// The project whose definitions the request may read. Authenticated by the project's secret key, or by a personal key
/// that grants reading flags. `named` is a number, `@current`, or empty; if empty, the query contains the project's
/// token.
fn project_of(
    snapshot: &Snapshot,
    named: &str,
    request: &Request,
    query: &Query<'_>,
) -> Result<ProjectId, Problem> {
    let token = query.token.as_deref().filter(|token| !token.is_empty());
    let by_token = token.and_then(|token| snapshot.project_by_token(token));
    let bearer = auth::bearer(request);
    if let Some(secret) = bearer.filter(|value| value.starts_with(SECRET_PREFIX)) {
        return project_of_secret(snapshot, secret, by_token.map(|project| project.id));
    }
    if let (true, Some(token), None) = (named.is_empty(), token, by_token) {
        return Err(Problem::invalid_api_key(KeyKind::of(token)));
    }
    let key = bearer.or(query.personal_api_key.as_deref()).unwrap_or_default();
    let asker = auth::asker_of(snapshot, key)?;
    let principal = match (named, by_token) {
        ("" | auth::CURRENT, Some(project)) => auth::check_project(asker, project)?,
        ("", None) => auth::principal(snapshot, request, asker, auth::CURRENT)?,
        (named, _) => auth::principal(snapshot, request, asker, named)?,
    };
    auth::require(&principal.key, "feature_flag:read")?;
    Ok(principal.project.id)
}

fn project_of_secret(
    snapshot: &Snapshot,
    secret: &str,
    asked: Option<ProjectId>,
) -> Result<ProjectId, Problem> {
    let project = snapshot.project_by_secret(KeyHash::of(secret));
    let project = project.filter(|project| asked.is_none_or(|asked| asked == *project));
    project.ok_or_else(|| Problem::authentication_failed("Invalid project secret API key."))
}

/// The query parameters used here. Polling servers send them every time, so the query is parsed once.
#[derive(Debug, Default)]
struct Query<'r> {
    token: Option<Cow<'r, str>>,
    personal_api_key: Option<Cow<'r, str>>,
    send_cohorts: bool,
}

impl<'r> Query<'r> {
    fn of(request: &'r Request) -> Self {
        let mut query = Self::default();
        for (name, value) in request.query_all() {
            match &*name {
                "token" if query.token.is_none() => query.token = Some(value),
                "personal_api_key" if query.personal_api_key.is_none() => {
                    query.personal_api_key = Some(value);
                }
                "send_cohorts" => query.send_cohorts = true,
                _ => {}
            }
        }
        query
    }
}

impl Cache {
    fn get(&self, snapshot: &Snapshot, project: ProjectId) -> Arc<Definitions> {
        let revision = snapshot.revision(project);
        let is_of_now = |known: &Arc<Definitions>| match (&known.revision, revision) {
            (Some(known), Some(revision)) => Arc::ptr_eq(known, revision),
            (known, revision) => known.is_none() && revision.is_none(),
        };
        let mut made = self.made.lock();
        if let Some(known) = made.get(&project).filter(|known| is_of_now(known)) {
            return Arc::clone(known);
        }
        let definitions = Arc::new(Definitions {
            revision: revision.cloned(),
            with_cohorts: OnceCell::new(),
            without_cohorts: OnceCell::new(),
        });
        made.insert(project, Arc::clone(&definitions));
        definitions
    }
}

/// Builds the definitions of a project. Without `has_cohorts`, cohorts are inlined where conditions
/// can express them.
fn made(snapshot: &Snapshot, project: ProjectId, has_cohorts: bool) -> Tagged {
    let mut flags: Vec<&Arc<StoredFlag>> = snapshot.flags(project).iter().collect();
    flags.sort_by(|a, b| a.key.cmp(&b.key));
    let by_id: HashMap<FlagId, &StoredFlag> =
        flags.iter().map(|flag| (flag.id, flag.as_ref())).collect();
    let types = snapshot.group_types(project).iter().enumerate();
    let types: BTreeMap<String, &String> =
        types.map(|(index, name)| (index.to_string(), name)).collect();
    let all = snapshot.cohorts(project);
    let mut quota = Room::default();
    let items: Vec<Value> = flags
        .iter()
        .map(|flag| match has_cohorts {
            true => item(flag, &flag.filters, &by_id),
            false => {
                let inlined = inline::inlined(&flag.filters, all, &mut quota);
                item(flag, inlined.as_ref().unwrap_or(&flag.filters), &by_id)
            }
        })
        .collect();
    let body = json!({
        "flags": items,
        "group_type_mapping": types,
        "cohorts": if has_cohorts { cohorts(&flags, all) } else { Map::new() },
        "minimal_flag_called_events": snapshot.has_minimal_called_events(project),
        "property_matching_version": match snapshot.matching(project) {
            Matching::Legacy => 1,
            Matching::Explicit => 2,
        },
    });
    let body = Bytes::from(body.to_string());
    let tag = Tag::of(&body).weak();
    (body, tag)
}

fn item(flag: &StoredFlag, filters: &Value, by_id: &HashMap<FlagId, &StoredFlag>) -> Value {
    json!({
        "id": flag.id.0,
        "team_id": flag.project.0,
        "name": flag.name,
        "key": flag.key,
        "filters": with_keys(filters, by_id),
        "deleted": flag.deleted,
        "active": flag.active,
        "ensure_experience_continuity": flag.plain.ensure_experience_continuity,
        "version": flag.version,
        "evaluation_runtime": flag.plain.evaluation_runtime.as_deref().unwrap_or("all"),
        "bucketing_identifier": flag.plain.bucketing_identifier,
        "evaluation_contexts": flag.plain.evaluation_contexts,
        "has_experiment": false,
    })
}

/// The filters with dependencies by key instead of by id, each with the flags to evaluate first.
fn with_keys(filters: &Value, by_id: &HashMap<FlagId, &StoredFlag>) -> Value {
    let mut filters = filters.clone();
    let groups = filters.get_mut("groups").and_then(Value::as_array_mut).into_iter().flatten();
    let properties = groups
        .filter_map(|group| group.get_mut("properties").and_then(Value::as_array_mut))
        .flatten()
        .filter_map(Value::as_object_mut);
    for property in properties {
        let Some(id) = dependencies::of_property(property) else { continue };
        if let Some(flag) = by_id.get(&id) {
            property.insert("key".to_owned(), Value::String(flag.key.clone()));
        }
        let chain = chain(id, by_id).unwrap_or_default();
        property.insert("dependency_chain".to_owned(), chain.into());
    }
    filters
}

/// The keys of the flag and of its dependencies in topological order. `None` if one is missing,
/// depends on itself, or there are too many.
fn chain(id: FlagId, by_id: &HashMap<FlagId, &StoredFlag>) -> Option<Vec<String>> {
    let (mut keys, mut done, mut open) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    // An entry stays on the stack until all its dependencies are done.
    let mut stack = vec![id];
    while let Some(id) = stack.last().copied() {
        let flag = by_id.get(&id)?;
        if done.contains(&id) {
            stack.pop();
            continue;
        }
        let waiting = dependencies::of(&flag.filters).filter(|id| !done.contains(id));
        let waiting: Vec<FlagId> = waiting.collect();
        if waiting.is_empty() {
            stack.pop();
            done.insert(id);
            keys.push(flag.key.clone());
            continue;
        }
        if !open.insert(id) || open.len() > CHAIN_MAX {
            return None;
        }
        stack.extend(waiting);
    }
    Some(keys)
}

/// The rules of the cohorts that the flags need, directly or through other cohorts. Static cohorts are not included:
/// for these, clients have to send a request to the server.
fn cohorts(flags: &[&Arc<StoredFlag>], all: &[Arc<StoredCohort>]) -> Map<String, Value> {
    let mut waiting: Vec<i64> = flags.iter().flat_map(|flag| cohort_ids(&flag.filters)).collect();
    let mut rules = Map::new();
    while let Some(id) = waiting.pop() {
        let found = all.iter().find(|cohort| cohort.id.0 == id && !cohort.is_static);
        let Some(cohort) = found.filter(|_| !rules.contains_key(&id.to_string())) else { continue };
        rules.insert(id.to_string(), cohort.rule().clone());
        waiting.extend(Rule::parse(cohort.rule(), Matching::Legacy).iter().flat_map(Rule::cohorts));
    }
    rules
}
