//! Flags of all projects of an organization that the caller may see: by key, and the list of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::openapi::{Paging, Parameter, Shape};
use crate::operation::input::{InQuery, input};
use crate::operation::output::{Paged, Whole};
use crate::operation::{Context, Member, Operation};
use crate::page::Page;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::feature_flags::short_error;
use crate::routes::user_body::user;
use crate::rows::PAGE_MAX_BYTES;
use weir_api::flags as api;
use weir_event::id::ProjectId;
use weir_insights::flag_calls::calls;
use weir_metadata::flags::StoredFlag;
use weir_metadata::snapshot::Snapshot;

/// Most keys of a page, which is also the default; PostHog's number.
const KEYS_MAX: usize = 100;
const KEYS_DEFAULT: usize = 25;

input! {
    /// The flags of a key in all projects, with the number of calls that SDKs reported in the last 7 days; null if that
    /// cannot be counted.
    pub struct ByKey {
        path key: String,
    }
}

impl Operation for ByKey {
    type Who = Member;
    type Out = Whole<api::FlagOfProject>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let (snapshot, key) = (cx.snapshot(), self.key.as_str());
        let mut found = Vec::new();
        for flag in flags_of(&snapshot, &cx.who).filter(|flag| flag.key == key) {
            let created_by = flag.created_by.and_then(|user| snapshot.user(user));
            let calls = calls(&cx.app.engine, flag.project, &[key]).await;
            found.push(api::FlagOfProject {
                flag_id: flag.id.0,
                team_id: flag.project.0,
                created_by: created_by.map(|found| user(found)),
                filters: flag.filters.clone(),
                created_at: flag.created_at.to_rfc3339(),
                active: flag.active,
                evaluations_7d: calls.ok().map(|calls| calls.get(key).copied().unwrap_or(0)),
            });
        }
        Ok(Whole(found))
    }
}

input! {
    /// The keys of all projects, or of those in `team_ids`, each once with one of its flags, preferably that of
    /// `current_team_id`; `search` matches keys and names.
    pub struct Keys {
        query search: Search,
        /// Ids of projects with commas; all if it is absent
        query team_ids: ProjectIds,
        /// The project whose flag stands for a key, if it has one
        query current_team_id: Preferred,
        query page: PageOfKeys,
    }
}

impl Operation for Keys {
    type Who = Member;
    type Out = Paged<api::FlagOfKey>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Member>) -> Result<Self::Out, Problem> {
        let Self { search: Search(search), team_ids: ProjectIds(projects), .. } = &self;
        let (PageOfKeys(page), Preferred(preferred)) = (self.page, self.current_team_id);
        let snapshot = cx.snapshot();
        let is_asked = |flag: &&Arc<StoredFlag>| {
            let texts = [&flag.key, &flag.name];
            (projects.is_empty() || projects.contains(&flag.project.0))
                && texts.iter().any(|text| text.to_lowercase().contains(search))
        };
        let mut by_key: BTreeMap<&str, &Arc<StoredFlag>> = BTreeMap::new();
        for flag in flags_of(&snapshot, &cx.who).filter(is_asked) {
            let known = by_key.entry(&flag.key).or_insert(flag);
            if Some(flag.project) == preferred {
                *known = flag;
            }
        }
        let shown = by_key.values().skip(page.offset).take(page.limit);
        let shown: Vec<Arc<StoredFlag>> = shown.map(|flag| Arc::clone(flag)).collect();
        let count = by_key.len();
        cx.paged(page, count, PAGE_MAX_BYTES, shown.into_iter().map(|flag| of_key(&flag))).await
    }
}

fn of_key(flag: &StoredFlag) -> api::FlagOfKey {
    api::FlagOfKey {
        key: flag.key.clone(),
        name: flag.name.clone(),
        flag_id: flag.id.0,
        team_id: flag.project.0,
        filters: flag.filters.clone(),
        active: flag.active,
    }
}

/// Part of keys or names to search for, in lower case.
#[derive(Debug)]
pub struct Search(String);

impl InQuery for Search {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::shared(name));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        Ok(Self(request.query(name).unwrap_or_default().trim().to_lowercase()))
    }
}

/// Ids of projects; empty for all.
#[derive(Debug)]
pub struct ProjectIds(Vec<i64>);

impl InQuery for ProjectIds {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let wrong = |_| short_error("team_ids must be a comma-separated list of integers.");
        ids(request.query(name).as_deref().unwrap_or_default()).map(Self).map_err(wrong)
    }
}

/// The project whose flags come first.
#[derive(Clone, Copy, Debug)]
pub struct Preferred(Option<ProjectId>);

impl InQuery for Preferred {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::integer(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        Ok(Self(request.query(name).and_then(|id| id.parse().ok()).map(ProjectId)))
    }
}

/// `limit` and `offset`, which must be integers here.
#[derive(Clone, Copy, Debug)]
pub struct PageOfKeys(Page);

impl InQuery for PageOfKeys {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.paging = Paging::Offset;
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        let number =
            |name: &str| request.query(name).map(|text| text.trim().parse::<i64>()).transpose();
        let (Ok(limit), Ok(offset)) = (number("limit"), number("offset")) else {
            return Err(short_error("limit and offset must be integers."));
        };
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        Ok(Self(Page {
            limit: limit.unwrap_or(KEYS_DEFAULT).min(KEYS_MAX),
            offset: offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0),
        }))
    }
}

/// Integers separated by commas.
fn ids(text: &str) -> Result<Vec<i64>, std::num::ParseIntError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::parse).collect()
}

/// Whether the project belongs to the caller's organization, and the caller's key may use it.
pub(super) fn is_own(snapshot: &Snapshot, who: &Member, project: ProjectId) -> bool {
    let of_key = who.key.projects.as_ref().is_none_or(|own| own.contains(&project));
    let project = snapshot.project(project);
    of_key && project.is_some_and(|project| project.organization == who.user.organization)
}

/// The live flags of all projects that the caller may see, by project.
fn flags_of<'s>(
    snapshot: &'s Snapshot,
    who: &'s Member,
) -> impl Iterator<Item = &'s Arc<StoredFlag>> {
    let projects = snapshot.projects().map(|project| project.id);
    let projects = projects.filter(move |project| is_own(snapshot, who, *project));
    projects.flat_map(|project| snapshot.flags(project))
}
