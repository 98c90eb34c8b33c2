//! Actions on one flag besides editing: dashboards, on and off, dependent flags, versions.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::auth;
use crate::auth::Principal;
use crate::fields::Fields;
use crate::operation::input::input;
use crate::operation::output::Created;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::feature_flags::body::FlagWrite;
use crate::routes::feature_flags::status::Calls;
use crate::routes::feature_flags::{changed, find, shown, unsuccessful};
use crate::routes::query::problems;
use crate::routes::store::problem;
use crate::routes::{cohorts, store};
use weir_api::cohorts::CohortOfFlag;
use weir_api::flags as api;
use weir_evaluation::membership::with_subject;
use weir_flags::cohorts::Memberships;
use weir_flags::set::Selection;
use weir_insights::audience;
use weir_metadata::activity::{ActivityFilter, Scope};
use weir_metadata::cohorts::{CohortPatch, MEMBERS_MAX, NewCohort};
use weir_metadata::error::MetadataError;
use weir_metadata::flag_rights::NO_EDITOR;
use weir_metadata::flag_rules::dependencies;
use weir_metadata::flags::plain::PlainPatch;
use weir_metadata::flags::{FlagId, FlagPatch, StoredFlag};

/// Entries of the activity log that the look-up of an old version reads at once.
const HISTORY_PAGE: usize = 20;

input! {
    /// Makes the dashboard of a flag's use.
    pub struct Dashboard {
        path id: i64,
    }
}

impl Operation for Dashboard {
    type Who = Principal;
    type Out = api::Success;
    const SCOPE: &'static str = "feature_flag:write";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require(&who.key, "dashboard:write")
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, user, id) = (cx.who.project.id, cx.user(), FlagId(self.id));
        let metadata = cx.metadata().clone();
        let write = async move { metadata.create_usage_dashboard(project, user, id).await };
        match store::attempt(&cx.app, "create-dashboard", write).await? {
            Ok(_) => Ok(DONE),
            Err(MetadataError::Rejected(_)) => {
                Err(unsuccessful("Unable to generate usage dashboard"))
            }
            Err(error) => Err(problem(error)),
        }
    }
}

input! {
    /// Adds enriched analytics to the dashboard of a flag's use.
    pub struct Enrich {
        path id: i64,
    }
}

impl Operation for Enrich {
    type Who = Principal;
    type Out = api::Success;
    const SCOPE: &'static str = "feature_flag:write";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require(&who.key, "dashboard:write")
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, user, id) = (cx.who.project.id, cx.user(), FlagId(self.id));
        let metadata = cx.metadata().clone();
        let write = async move { metadata.enrich_usage_dashboard(project, user, id).await };
        match store::attempt(&cx.app, "enrich-dashboard", write).await? {
            Ok(()) => Ok(DONE),
            Err(MetadataError::Rejected(violation)) => Err(unsuccessful(&violation.detail)),
            Err(error) => Err(problem(error)),
        }
    }
}

const DONE: api::Success = api::Success { error: None, success: true };

/// A target state of a flag.
struct State {
    /// Name of the transition in errors.
    doing: &'static str,
    /// Whether a flag has this state.
    has: fn(&StoredFlag) -> bool,
    /// The change that leads to this state.
    patch: FlagPatch,
}

/// Declares an operation that changes a flag to a target state.
macro_rules! switch {
    ($(#[doc = $about:literal])* $name:ident, $state:expr) => {
        input! {
            $(#[doc = $about])*
            pub struct $name {
                path id: i64,
            }
        }

        impl Operation for $name {
            type Who = Principal;
            type Out = api::Flag;
            const SCOPE: &'static str = "feature_flag:write";

            async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
                switched(cx, self.id, $state).await
            }
        }
    };
}

switch! {
    /// Switches a flag on.
    Enable, State {
        doing: "enabling",
        has: |flag| flag.active,
        patch: FlagPatch { active: Some(true), ..FlagPatch::default() },
    }
}

switch! {
    /// Switches a flag off.
    Disable, State {
        doing: "disabling",
        has: |flag| !flag.active,
        patch: FlagPatch { active: Some(false), ..FlagPatch::default() },
    }
}

switch! {
    /// Archives a flag, which switches it off.
    Archive, State {
        doing: "archiving",
        has: |flag| flag.plain.archived,
        patch: FlagPatch { plain: archived(true), active: Some(false), ..FlagPatch::default() },
    }
}

switch! {
    /// Takes a flag out of the archive.
    Unarchive, State {
        doing: "unarchiving",
        has: |flag| !flag.plain.archived,
        patch: FlagPatch { plain: archived(false), ..FlagPatch::default() },
    }
}

fn archived(archived: bool) -> PlainPatch {
    PlainPatch { archived: Some(archived), ..PlainPatch::default() }
}

/// Changes a flag to a target state. A flag that already has it is not written.
async fn switched(cx: &Context<Principal>, id: i64, state: State) -> Result<api::Flag, Problem> {
    let flag = find(cx, id).await?;
    if !cx.snapshot().may_edit(&cx.who.user, &flag) {
        return Err(problem(MetadataError::Forbidden(NO_EDITOR)));
    }
    let State { doing, has, patch } = state;
    if flag.deleted {
        let error = format!("This feature flag has been deleted. Restore it before {doing} it.");
        return Err(unsuccessful(&error));
    }
    if !has(&flag) {
        return changed(cx, &flag, patch).await;
    }
    let calls = Calls::of_flag(&cx.app, flag.id).await?;
    Ok(shown(cx, &flag, &calls))
}

input! {
    /// The flags that are on and have a condition on this one.
    pub struct Dependents {
        path id: i64,
    }
}

impl Operation for Dependents {
    type Who = Principal;
    type Out = Vec<api::FlagKey>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        let id = find(cx, self.id).await?.id;
        let flags = snapshot.flags(cx.who.project.id).iter();
        let needs = |flag: &&Arc<StoredFlag>| {
            flag.active && dependencies::of(&flag.filters).any(|needed| needed == id)
        };
        let mut dependents: Vec<&Arc<StoredFlag>> = flags.filter(needs).collect();
        dependents.sort_by(|a, b| a.key.cmp(&b.key));
        let shown = dependents.into_iter().map(|flag| {
            let name = if flag.name.is_empty() { &flag.key } else { &flag.name };
            api::FlagKey { id: flag.id.0, key: flag.key.clone(), name: name.clone() }
        });
        Ok(shown.collect())
    }
}

input! {
    /// A flag as it was at a version, from the activity log.
    pub struct Version {
        path id: i64,
        path version: String,
    }
}

impl Operation for Version {
    type Who = Principal;
    type Out = api::FlagVersion;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = find(cx, self.id).await?;
        let mut fields = Map::from_iter([
            ("id".to_owned(), flag.id.0.into()),
            ("version".to_owned(), self.version.parse::<i64>().unwrap_or(0).into()),
            ("current_version".to_owned(), flag.version.into()),
        ]);
        fields.extend(at_version(cx, &flag, &self.version).await?);
        Ok(api::FlagVersion { fields })
    }
}

input! {
    /// Makes a flag again what it was at a version, as a new version.
    pub struct Revert {
        path id: i64,
        path version: String,
    }
}

impl Operation for Revert {
    type Who = Principal;
    type Out = api::Flag;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = find(cx, self.id).await?;
        let mut fields = at_version(cx, &flag, &self.version).await?;
        // Fields set by the server, and fields that only grow, keep their value.
        for name in ["usage_dashboard", "performed_rollback", "analytics_dashboards"] {
            fields.remove(name);
        }
        let mut patch = FlagWrite::read(&mut Fields::from(fields))?.into_patch();
        patch.replaces_filters = true;
        changed(cx, &flag, patch).await
    }
}

/// The fields of a flag at a version: the current ones, with every later change undone.
async fn at_version(
    cx: &Context<Principal>,
    flag: &StoredFlag,
    version: &str,
) -> Result<Map<String, Value>, Problem> {
    let not_found = || Problem::not_found("Not found.");
    let wanted = version.parse::<i64>().map_err(|_| not_found())?;
    if !(1..=flag.version).contains(&wanted) {
        return Err(not_found());
    }
    let (mut fields, mut at, mut offset) = (flag.compared(), flag.version, 0);
    let asked = ActivityFilter {
        scopes: vec![Scope::FeatureFlag],
        item: Some(flag.id.to_string()),
        user: None,
    };
    while at > wanted {
        let page = cx.metadata().activity(flag.project, &asked, HISTORY_PAGE, offset).await;
        let page = page.map_err(problem)?;
        if page.entries.is_empty() {
            return Err(not_found());
        }
        offset += page.entries.len();
        for entry in page.entries {
            let all = entry.detail.get("changes").and_then(Value::as_array);
            let all = all.map_or(&[][..], Vec::as_slice);
            let is_of_flag = |change: &&Value| {
                change.get("field").and_then(Value::as_str) != Some("role_access")
            };
            let changes: Vec<&Value> = all.iter().filter(is_of_flag).collect();
            // A change of rights does not create a version.
            let is_version = entry.activity == "updated" && (!changes.is_empty() || all.is_empty());
            if !is_version || at == wanted {
                continue;
            }
            for change in changes {
                if let Some(name) = change.get("field").and_then(Value::as_str) {
                    let before = change.get("before").cloned().unwrap_or_default();
                    fields.insert(name.to_owned(), before);
                }
            }
            at -= 1;
        }
    }
    Ok(fields)
}

input! {
    /// Makes a static cohort of the persons for whom a flag is on.
    pub struct StaticCohort {
        path id: i64,
    }
}

impl Operation for StaticCohort {
    type Who = Principal;
    type Out = Created<CohortOfFlag>;
    const SCOPE: &'static str = "feature_flag:write";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require(&who.key, "cohort:write")
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        let project = cx.who.project.id;
        let flag = find(cx, self.id).await?;
        let flags = snapshot.flag_set(project).cloned().unwrap_or_default();
        let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
        let (at, key) = (cx.app.node.clock.now(), flag.key.clone());
        let now = snapshot.now(project, at);
        let members = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let found = Arc::clone(&members);
        let visited = audience::visit_persons(&cx.app.engine, project, move |view, person| {
            let keys = [key.clone()];
            let selection = Selection { keys: Some(&keys), ..Selection::default() };
            // Persons are hashed by their first distinct id, as in PostHog.
            let ids = view.distinct_ids(project, person.uuid).unwrap_or_default();
            let first = ids.into_iter().next().unwrap_or_default();
            let is_on = with_subject(view, project, person, first, now, |subject, uuids| {
                let answers = flags.evaluate(subject, &selection, &Memberships::new(&set, uuids));
                let mut verdicts = answers.flags.iter().filter_map(|own| own.result.as_ref().ok());
                verdicts.any(|verdict| verdict.enabled)
            });
            let mut members = found.lock();
            if is_on && members.len() <= MEMBERS_MAX {
                members.push(person.uuid);
            }
        });
        visited.await.map_err(problems::problem)?;
        let members = std::mem::take(&mut *members.lock());
        let name = format!("Users with feature flag {} enabled at {}", flag.key, at.to_rfc3339());
        let values = CohortPatch { name: Some(name), ..CohortPatch::default() };
        let new = NewCohort { values, is_static: true, members };
        let cohort = cohorts::add(&cx.app, project, cx.user(), new).await?.map_err(problem)?;
        Ok(Created(CohortOfFlag { cohort: cohorts::shown(&cohort, &cx.snapshot()) }))
    }
}
