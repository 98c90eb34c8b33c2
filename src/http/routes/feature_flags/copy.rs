//! Copies a flag from one project of an organization to others, with the cohorts that it needs and, on
//! request, its scheduled changes.
//!
//! Ids of cohorts differ between projects, so a cohort of the source maps to the cohort of the same
//! name in the target. If there is none, it is copied, after the cohorts that its own rule refers to.
//! A static cohort is copied without members, because persons differ between projects too. A flag
//! dependency maps to the flag of the same key in the target, which has to exist: the copy must not
//! create flags that nobody requested.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::Fields;
use crate::operation::input::input;
use crate::operation::{Context, Member, Operation};
use crate::response::Problem;
use crate::routes::feature_flags::across::is_own;
use crate::routes::feature_flags::body::whole;
use crate::routes::feature_flags::short_error;
use crate::routes::feature_flags::status::Calls;
use crate::routes::store::problem;
use crate::routes::{cohorts, store};
use weir_api::flags as api;
use weir_api::flags::ByName;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_event::predicate::Matching;
use weir_flags::cohorts::Rule;
use weir_metadata::cohorts::{CohortId, CohortPatch, NewCohort, StoredCohort};
use weir_metadata::error::MetadataError;
use weir_metadata::flag_rights::NO_EDITOR;
use weir_metadata::flag_rules;
use weir_metadata::flag_rules::dependencies;
use weir_metadata::flags::plain::PlainPatch;
use weir_metadata::flags::{FlagId, FlagPatch, StoredFlag};
use weir_metadata::schedules::{NewSchedule, ScheduledChange};
use weir_metadata::snapshot::Snapshot;

/// Most projects that one request may copy to; PostHog's number.
const TARGETS_MAX: usize = 50;

/// Ids in the target by ids in the source.
#[derive(Debug, Default)]
struct Ids {
    cohorts: HashMap<i64, i64>,
    flags: HashMap<i64, i64>,
}

/// The flag to copy, with everything it needs.
struct Source {
    flag: Arc<StoredFlag>,
    /// Whether the copy is inactive even if the flag is active.
    is_disabled: bool,
    /// Scheduled changes to copy.
    schedules: Vec<ScheduledChange>,
    /// The cohorts that the flag and the changes refer to, in topological order.
    cohorts: Vec<Arc<StoredCohort>>,
    /// The flags that the flag and the changes refer to.
    flags: Vec<Arc<StoredFlag>>,
}

impl Source {
    /// Whether a project lacks a cohort that the flag needs, so that the copy creates it.
    fn makes_cohorts(&self, snapshot: &Snapshot, project: ProjectId) -> bool {
        self.cohorts.iter().any(|cohort| same_cohort(snapshot, cohort, project).is_none())
    }
}

/// The oldest cohort of a project with the same name as a cohort of another project.
fn same_cohort<'s>(
    snapshot: &'s Snapshot,
    cohort: &StoredCohort,
    project: ProjectId,
) -> Option<&'s Arc<StoredCohort>> {
    snapshot.cohorts(project).iter().rev().find(|known| known.name == cohort.name)
}

input! {
    /// Copies a flag to other projects; overwrites a flag of the same key in a target.
    pub struct Copy {
        body copy: FlagCopy,
    }
}

body! {
    /// What is copied, and where to.
    pub struct FlagCopy {
        /// The key of the flag
        feature_flag_key: CopiedKey,
        /// The project of the flag
        from_project: FromProject,
        /// The projects that get a copy
        target_project_ids: Targets,
        /// Whether copies are off
        disable_copied_flag: Option<bool>,
        /// Whether pending scheduled changes are copied too
        copy_schedule: Option<bool>,
    }
}

/// The key of the flag to copy; a missing one is refused with one error for all missing fields.
#[derive(Debug)]
pub struct CopiedKey(Option<String>);

impl Field for CopiedKey {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(Self(fields.text(name)?.filter(|key| !key.is_empty())))
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// The project with the flag to copy; a missing one is refused with one error for all missing fields.
#[derive(Debug)]
pub struct FromProject(Option<ProjectId>);

impl Field for FromProject {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(Self(fields.nullable_value(name).flatten().as_ref().and_then(project_id)))
    }

    fn schema() -> Value {
        json!({"type": "integer"})
    }
}

/// The target projects, unparsed; a missing list is refused with one error for all missing fields.
#[derive(Debug)]
pub struct Targets(Vec<Value>);

impl Field for Targets {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        match fields.nullable_value(name).flatten() {
            Some(Value::Array(ids)) => Ok(Self(ids)),
            _ => Ok(Self(Vec::new())),
        }
    }

    fn schema() -> Value {
        let items = json!({"type": "integer"});
        json!({"type": "array", "items": items, "minItems": 1, "maxItems": TARGETS_MAX})
    }
}

impl Operation for Copy {
    type Who = Member;
    type Out = api::FlagsCopied;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (app, who, snapshot) = (&cx.app, &cx.who, cx.snapshot());
        let FlagCopy { feature_flag_key, from_project, target_project_ids, .. } = &self.copy;
        let targets = &target_project_ids.0;
        let (Some(key), Some(from), false) =
            (&feature_flag_key.0, from_project.0, targets.is_empty())
        else {
            return Err(short_error("Missing required fields"));
        };
        if targets.len() > TARGETS_MAX {
            return Err(short_error("A flag is copied to at most 50 projects at once."));
        }
        let is_source = |flag: &&Arc<StoredFlag>| flag.key == *key && is_own(&snapshot, who, from);
        let Some(flag) = snapshot.flags(from).iter().find(is_source) else {
            return Err(short_error("Feature flag to copy does not exist."));
        };
        let schedules = match self.copy.copy_schedule {
            Some(true) => cx.metadata().pending_changes(flag.id).await.map_err(problem)?,
            _ => Vec::new(),
        };
        let cohorts = needed_cohorts(&snapshot, flag, &schedules);
        let flags = needed_flags(&snapshot, flag, &schedules);
        let is_disabled = self.copy.disable_copied_flag.unwrap_or_default();
        let source = Source { flag: Arc::clone(flag), is_disabled, schedules, cohorts, flags };
        let own_project = |target: &Value| {
            let id = project_id(target).filter(|id| is_own(&snapshot, who, *id))?;
            snapshot.project(id).cloned()
        };
        let mut projects = targets.iter().filter_map(own_project);
        if projects.any(|project| source.makes_cohorts(&snapshot, project.id)) {
            auth::require(&who.key, "cohort:write")?;
        }
        let (mut success, mut failed) = (Vec::new(), Vec::new());
        for target in targets {
            let copied = match own_project(target) {
                Some(project) => {
                    let Member { key, user, .. } = who.clone();
                    copy_to(app, &Principal { key, user, project }, &source).await?
                }
                None => Err("Project not found.".to_owned()),
            };
            match copied {
                Ok(copy) => success.push(ByName(copy)),
                Err(error_message) => {
                    failed.push(api::CopyFailure { error_message, project_id: target.clone() });
                }
            }
        }
        Ok(api::FlagsCopied { failed, success })
    }
}

fn project_id(value: &Value) -> Option<ProjectId> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).map(ProjectId)
}

/// The cohorts that the flag and its changes refer to, directly or through other cohorts, in
/// topological order.
fn needed_cohorts(
    snapshot: &Snapshot,
    flag: &StoredFlag,
    schedules: &[ScheduledChange],
) -> Vec<Arc<StoredCohort>> {
    let of_schedules = schedules.iter().filter_map(|change| change.payload.get("value"));
    let filters = std::iter::once(&flag.filters).chain(of_schedules);
    // Each with a flag: whether its own dependencies are already above it on the stack.
    let mut waiting: Vec<(i64, bool)> =
        filters.flat_map(flag_rules::cohort_ids).map(|id| (id, false)).collect();
    waiting.reverse();
    let mut found: Vec<Arc<StoredCohort>> = Vec::new();
    while let Some((id, is_ready)) = waiting.pop() {
        let cohort = snapshot.cohort(flag.project, CohortId(id));
        let is_known = found.iter().any(|cohort| cohort.id.0 == id);
        let Some(cohort) = cohort.filter(|_| !is_known) else { continue };
        let rule = Rule::parse(cohort.rule(), Matching::Legacy).ok();
        // Rules contain no cycle.
        let needed = rule.filter(|_| !is_ready).map_or_else(Vec::new, |rule| rule.cohorts());
        if needed.is_empty() {
            found.push(Arc::clone(cohort));
        } else {
            waiting.push((id, true));
            waiting.extend(needed.into_iter().map(|id| (id, false)));
        }
    }
    found
}

/// The existing flags that the flag and its changes refer to.
fn needed_flags(
    snapshot: &Snapshot,
    flag: &StoredFlag,
    schedules: &[ScheduledChange],
) -> Vec<Arc<StoredFlag>> {
    let of_schedules = schedules.iter().filter_map(|change| change.payload.get("value"));
    let filters = std::iter::once(&flag.filters).chain(of_schedules);
    let ids: HashSet<FlagId> = filters.flat_map(dependencies::of).collect();
    let all = snapshot.flags(flag.project).iter();
    all.filter(|flag| ids.contains(&flag.id)).cloned().collect()
}

/// The copy in the project of `asker`, or the reason why there is none.
async fn copy_to(
    app: &App,
    asker: &Principal,
    source: &Source,
) -> Result<Result<api::CopiedFlag, String>, Problem> {
    let project = asker.project.id;
    // Checked before anything is created in the target.
    let flags = match same_flags(&app.node.metadata.snapshot(), asker, source) {
        Ok(flags) => flags,
        Err(message) => return Ok(Err(message)),
    };
    let cohorts = match copy_cohorts(app, asker, source, project).await? {
        Ok(cohorts) => cohorts,
        Err(message) => return Ok(Err(message)),
    };
    let ids = Ids { cohorts, flags };
    let flag = match copy_flag(app, asker, source, project, &ids).await? {
        Ok(flag) => flag,
        Err(message) => return Ok(Err(message)),
    };
    let scheduled = copy_schedules(app, asker, source, &flag, &ids).await?;
    let snapshot = app.node.metadata.snapshot();
    // The copy exists, even if this fails.
    let calls = Calls::of_flag(app, flag.id).await.unwrap_or_else(|_| Calls::none(app));
    let schedule_copy_warning = scheduled.err();
    Ok(Ok(api::CopiedFlag {
        flag: whole(&flag, &snapshot, asker, &calls),
        team_id: project.0,
        schedule_copy_warning: schedule_copy_warning
            .map(|message| format!("Flag copied but schedules failed: {message}")),
    }))
}

/// The error of a store, if it is about the client's input; otherwise the request fails.
fn client_error<T>(written: Result<T, MetadataError>) -> Result<Result<T, String>, Problem> {
    match written {
        Ok(written) => Ok(Ok(written)),
        Err(MetadataError::Rejected(violation)) => Ok(Err(violation.detail)),
        Err(MetadataError::Forbidden(reason)) => Ok(Err(reason.to_owned())),
        Err(error) => Err(problem(error)),
    }
}

/// Ids in the target by ids in the source, of the flags with the same keys. The error names the missing flag, or
/// reports that the user may not replace the existing flag.
fn same_flags(
    snapshot: &Snapshot,
    asker: &Principal,
    source: &Source,
) -> Result<HashMap<i64, i64>, String> {
    let target = snapshot.flags(asker.project.id);
    let known = target.iter().find(|known| known.key == source.flag.key);
    if known.is_some_and(|known| !snapshot.may_edit(&asker.user, known)) {
        return Err(NO_EDITOR.to_owned());
    }
    let same = |flag: &Arc<StoredFlag>| {
        let found = target.iter().find(|known| known.key == flag.key);
        let missing = || format!("Flag dependency '{}' does not exist in the project.", flag.key);
        Ok((flag.id.0, found.ok_or_else(missing)?.id.0))
    };
    source.flags.iter().map(same).collect()
}

/// Ids in the target by ids in the source. Missing cohorts are created.
async fn copy_cohorts(
    app: &App,
    asker: &Principal,
    source: &Source,
    project: ProjectId,
) -> Result<Result<HashMap<i64, i64>, String>, Problem> {
    let mut ids = Ids::default();
    for cohort in &source.cohorts {
        let snapshot = app.node.metadata.snapshot();
        if let Some(known) = same_cohort(&snapshot, cohort, project) {
            ids.cohorts.insert(cohort.id.0, known.id.0);
            continue;
        }
        let mut filters = cohort.filters.clone();
        ids.replace(&mut filters);
        let values = CohortPatch {
            name: Some(cohort.name.clone()),
            description: Some(cohort.description.clone()),
            filters: Some(filters),
            ..CohortPatch::default()
        };
        let new = NewCohort { values, is_static: cohort.is_static, members: Vec::new() };
        match client_error(cohorts::add(app, project, asker.user.id, new).await?)? {
            Ok(copy) => ids.cohorts.insert(cohort.id.0, copy.id.0),
            Err(message) => return Ok(Err(format!("Cohort '{}': {message}", cohort.name))),
        };
    }
    Ok(Ok(ids.cohorts))
}

impl Ids {
    /// Replaces the ids in filters on cohorts and flags, at any depth, by those of the target.
    fn replace(&self, json: &mut Value) {
        let object = match json {
            Value::Array(items) => return items.iter_mut().for_each(|item| self.replace(item)),
            Value::Object(object) => object,
            _ => return,
        };
        let new = |ids: &HashMap<i64, i64>, old: Option<&Value>| {
            let old = old?;
            ids.get(&old.as_i64().or_else(|| old.as_str()?.trim().parse().ok())?).copied()
        };
        match object.get("type").and_then(Value::as_str) {
            Some("cohort") => {
                if let Some(new) = new(&self.cohorts, object.get("value")) {
                    object.insert("value".to_owned(), new.into());
                }
            }
            Some("flag") => {
                if let Some(new) = new(&self.flags, object.get("key")) {
                    object.insert("key".to_owned(), new.to_string().into());
                }
            }
            _ => object.values_mut().for_each(|value| self.replace(value)),
        }
    }
}

async fn copy_flag(
    app: &App,
    asker: &Principal,
    source: &Source,
    project: ProjectId,
    ids: &Ids,
) -> Result<Result<Arc<StoredFlag>, String>, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let flag = StoredFlag::clone(&source.flag);
    let known = snapshot.flags(project).iter().find(|known| known.key == flag.key);
    let known = known.map(|flag| flag.id);
    let (metadata, user) = (app.node.metadata.clone(), asker.user.id);
    let is_active = flag.active && !source.is_disabled;
    let mut filters = flag.filters;
    ids.replace(&mut filters);
    // A copy has neither the history of its source nor its dashboards.
    let plain = PlainPatch {
        rollback_conditions: None,
        performed_rollback: None,
        analytics_dashboards: None,
        has_enriched_analytics: None,
        archived: None,
        ..flag.plain.into()
    };
    let (name, filters, active) = (flag.name, Some(filters), Some(is_active));
    let write = async move {
        let Some(id) = known else {
            let (name, key) = (Some(name), Some(flag.key));
            let new = FlagPatch { name, key, filters, active, plain, ..FlagPatch::default() };
            return metadata.create_flag(project, user, new).await;
        };
        let patch = FlagPatch {
            name: Some(name),
            filters,
            replaces_filters: true,
            active,
            plain,
            ..FlagPatch::default()
        };
        Ok(metadata.update_flag(project, user, id, patch).await?.after)
    };
    client_error(store::attempt(app, "copy-flag", write).await?)
}

/// Copies the scheduled changes of the flag, in the name of the user who copies.
async fn copy_schedules(
    app: &App,
    asker: &Principal,
    source: &Source,
    flag: &StoredFlag,
    ids: &Ids,
) -> Result<Result<(), String>, Problem> {
    for change in &source.schedules {
        let mut payload = change.payload.clone();
        ids.replace(&mut payload);
        let new = NewSchedule { flag: flag.id, payload, timing: change.timing.clone() };
        let (metadata, project, user) = (app.node.metadata.clone(), flag.project, asker.user.id);
        let write = async move { metadata.copy_schedule(project, user, new).await };
        if let Err(message) = client_error(store::attempt(app, "copy-schedule", write).await?)? {
            return Ok(Err(message));
        }
    }
    Ok(Ok(()))
}
