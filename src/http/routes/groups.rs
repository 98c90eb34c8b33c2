//! Groups, such as companies: list by type, find by key, properties and their values. Most are
//! created by events.

pub mod changes;

use std::collections::BTreeMap;

use crate::auth::Principal;
use crate::beside::beside;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::{InQuery, Shared, input};
use crate::operation::output::Paged;
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Attr, Problem};
use crate::routes::activity;
use crate::routes::activity::{Entries, EntryRange};
use crate::routes::query::problems;
use crate::routes::store::problem;
use crate::rows::LONG_PAGE_MAX_BYTES;
use weir_api::groups as api;
use weir_base::error::Kind;
use weir_identity::person::Group;
use weir_ingest::activity::group_item;
use weir_insights::groups;
use weir_insights::groups::Counts;
use weir_metadata::activity::Scope;
use weir_query::persons::people::Part;

/// Most values in a response.
const VALUES_MAX: usize = 20;

/// The index of a group type; required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeIndex(pub u8);

impl InQuery for TypeIndex {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::between(name, 0, 4).required());
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let Some(text) = request.query(name).filter(|text| !text.is_empty()) else {
            return Err(missing(name));
        };
        text.parse().map(Self).map_err(|_| {
            let detail = "A valid integer is required.";
            let problem = Problem::new(Kind::Invalid, "invalid_input", detail);
            problem.with_attr(Attr::Name(name.into()))
        })
    }
}

/// The key of a group, or the name of a property; required.
#[derive(Clone, Debug)]
pub struct Key(pub String);

impl InQuery for Key {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).required());
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let key = request.query(name).filter(|key| !key.is_empty());
        Ok(Self(key.ok_or_else(|| missing(name))?.into_owned()))
    }
}

fn missing(name: &'static str) -> Problem {
    let detail = format!("You must pass ?{name}= in this API query");
    Problem::new(Kind::Invalid, "required", detail).with_attr(Attr::Name(name.into()))
}

input! {
    /// Groups of a type, newest first.
    pub struct List {
        query group_type_index: TypeIndex,
        query search: Shared,
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Paged<api::Group>;
    const SCOPE: &'static str = "group:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { group_type_index: TypeIndex(index), search: Shared(search), page } = self;
        let part = Part { offset: page.offset, limit: page.limit };
        let search = Some(search).filter(|text| !text.is_empty());
        let (engine, project) = (&cx.app.engine, cx.who.project.id);
        let found = groups::find_groups(engine, project, index, search, part).await;
        let (count, groups) = found.map_err(problems::problem)?;
        let rows = groups.into_iter().map(move |(key, group)| shown(index, key, group));
        cx.paged(page, count, LONG_PAGE_MAX_BYTES, rows).await
    }
}

/// A group as clients get it.
fn shown(group_type_index: u8, group_key: String, group: Group) -> api::Group {
    let created_at = group.created_at.to_rfc3339();
    api::Group { group_type_index, group_key, group_properties: group.properties, created_at }
}

input! {
    /// One group.
    pub struct Find {
        query group_type_index: TypeIndex,
        query group_key: Key,
    }
}

impl Operation for Find {
    type Who = Principal;
    type Out = api::Group;
    const SCOPE: &'static str = "group:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { group_type_index: TypeIndex(index), group_key: Key(key) } = self;
        let group = existing(cx, index, &key).await?;
        Ok(shown(index, key, group))
    }
}

input! {
    /// What operators did to a group.
    pub struct Activity {
        query group_type_index: TypeIndex,
        query group_key: Key,
        query place: EntryRange,
    }
}

impl Operation for Activity {
    type Who = Principal;
    type Out = Entries;
    const SCOPE: &'static str = "group:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Entries, Problem> {
        let Self { group_type_index: TypeIndex(index), group_key: Key(key), place } = self;
        existing(cx, index, &key).await?;
        activity::of_item(cx, Scope::Group, Some(group_item(index, &key)), place).await
    }
}

/// The group with this key, as of every event acknowledged so far.
async fn existing(cx: &Context<Principal>, index: u8, key: &str) -> Result<Group, Problem> {
    group(cx, index, key).await?.ok_or_else(|| Problem::not_found("Not found."))
}

/// As [`existing`]; `None` if no group has the key.
async fn group(cx: &Context<Principal>, index: u8, key: &str) -> Result<Option<Group>, Problem> {
    cx.app.engine.wait().await.map_err(problems::problem)?;
    let group = cx.app.shard.identities.group(cx.who.project.id, index, key);
    group.map_err(|error| Problem::of(error.kind(), &error))
}

input! {
    /// The properties of each type of groups, the most frequent first.
    pub struct PropertyDefinitions {}
}

impl Operation for PropertyDefinitions {
    type Who = Principal;
    type Out = BTreeMap<String, Vec<api::Count>>;
    const SCOPE: &'static str = "group:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, project) = (&cx.app, cx.who.project.id);
        app.engine.wait().await.map_err(problems::problem)?;
        let types = cx.snapshot().group_types(project).len();
        let types = u8::try_from(types).unwrap_or(u8::MAX);
        let found = groups::group_properties(&app.engine, project, types)
            .await
            .map_err(problems::problem)?;
        let all = move || {
            Ok(found.into_iter().map(|(index, own)| (index.to_string(), ranked(own))).collect())
        };
        beside(&app.node.cpu, all).await
    }
}

input! {
    /// The most frequent values of a property of groups.
    pub struct PropertyValues {
        query group_type_index: TypeIndex,
        query key: Key,
        /// Part of the values
        query value: Option<String>,
    }
}

impl Operation for PropertyValues {
    type Who = Principal;
    type Out = Vec<api::Count>;
    const SCOPE: &'static str = "group:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { group_type_index: TypeIndex(index), key: Key(key), value } = self;
        let part = value.unwrap_or_default().to_lowercase();
        let found = groups::group_values(&cx.app.engine, cx.who.project.id, index, key).await;
        let mut counts = found.map_err(problems::problem)?;
        counts.retain(|value, _| value.to_lowercase().contains(&part));
        let mut values = ranked(counts);
        values.truncate(VALUES_MAX);
        Ok(values)
    }
}

input! {
    /// The types that an event has named in `$groups` or in `$groupidentify`, in the order of their indexes.
    pub struct Types {}
}

impl Operation for Types {
    type Who = Principal;
    type Out = Vec<api::Type>;
    const SCOPE: &'static str = "group:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        types(cx).await
    }
}

async fn types(cx: &Context<Principal>) -> Result<Vec<api::Type>, Problem> {
    let project = cx.who.project.id;
    let mut called = cx.metadata().group_types_called(project).await.map_err(problem)?;
    let snapshot = cx.snapshot();
    let shown = |(group_type_index, group_type): (usize, &String)| {
        let called = called.remove(group_type).unwrap_or_default();
        api::Type {
            group_type: group_type.clone(),
            group_type_index,
            name_singular: called.name_singular,
            name_plural: called.name_plural,
        }
    };
    Ok(snapshot.group_types(project).iter().enumerate().map(shown).collect())
}

/// Ordered by count, the largest first; equal counts by name.
fn ranked(counts: Counts) -> Vec<api::Count> {
    let counts = counts.into_iter().map(|(name, count)| api::Count { name, count });
    let mut counts: Vec<_> = counts.collect();
    counts.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    counts
}
