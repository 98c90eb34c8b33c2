//! Property definitions: the keys of properties seen on events, persons and groups, the type of
//! their values, and which events had which property.
//!
//! Ingest reports what it has seen through [`Metadata::upsert_definitions`], and infers types from
//! values. Lists are read in pages, because a project may have very many of both.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::activity::{Logged, Scope, Subject, Verb};
use crate::annotations::NotesPatch;
use crate::connection::Conn;
use crate::definition_edits::Definition;
use crate::definition_quota::{Bounded, Limit, OverQuota, Room};
use crate::entity::{Column, Columns, Patch, corrupt, entity, named};
use crate::error::MetadataError;
use crate::sql::{Bind, Builder};
use crate::tags::normal_tags;
use crate::{Metadata, sql};
use weir_event::id::ProjectId;

/// Namespace of definition ids, drawn at random once for this purpose.
const PROPERTY_NAMESPACE: Uuid = Uuid::from_u128(0x3b7a_9c42_81d5_4e0f_a6c8_5d14_f2e9_7b06);

/// Rows of one `INSERT`: few statements, and far from `SQLite`'s limit of 32,766 parameters.
const INSERT_ROWS: usize = 256;

/// Quota of property definitions of a project, for events, persons and groups together. Properties
/// of further names are stored like all others, but get no definition.
pub const PROPERTY_DEFINITIONS_MAX: u32 = 50_000;

/// Quota of pairs of event and property of a project: 500 for each of the busiest 1,000 events.
pub const EVENT_PROPERTIES_MAX: u32 = 500_000;

const DEFINITIONS: Bounded = Bounded {
    limit: Limit::Properties,
    count: "SELECT COUNT(*) FROM (SELECT 1 FROM property_definitions WHERE project_id = $1 LIMIT $2) AS n",
    max: PROPERTY_DEFINITIONS_MAX,
};

const PAIRS: Bounded = Bounded {
    limit: Limit::Pairs,
    count: "SELECT COUNT(*) FROM (SELECT 1 FROM event_properties WHERE project_id = $1 LIMIT $2) AS n",
    max: EVENT_PROPERTIES_MAX,
};

named! {
    /// Type of the values of a property.
    #[derive(Hash, PartialOrd, Ord)]
    pub enum ValueType: NAMES, parse, Stored {
        /// Text.
        String = "String",
        /// Numbers.
        Numeric = "Numeric",
        /// True or false.
        Boolean = "Boolean",
        /// Points in time, written as text or as numbers.
        DateTime = "DateTime",
        /// Durations. Never inferred from values; users set it.
        Duration = "Duration",
    }
}

/// The object that a property belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PropertyKind {
    /// Events.
    Event,
    /// Persons.
    Person,
    /// Groups of the type with this index.
    Group(u8),
}

impl PropertyKind {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Person => "person",
            Self::Group(_) => "group",
        }
    }

    /// Index of the group type, for groups.
    pub fn group_type_index(self) -> Option<u8> {
        match self {
            Self::Group(index) => Some(index),
            Self::Event | Self::Person => None,
        }
    }

    /// The columns `kind` and `group_type_index`.
    fn numbers(self) -> (i64, i64) {
        match self {
            Self::Event => (1, -1),
            Self::Person => (2, -1),
            Self::Group(index) => (3, i64::from(index)),
        }
    }

    fn from_numbers(kind: i64, index: i64) -> Option<Self> {
        match (kind, u8::try_from(index)) {
            (1, _) => Some(Self::Event),
            (2, _) => Some(Self::Person),
            (3, Ok(index)) => Some(Self::Group(index)),
            _ => None,
        }
    }
}

/// The columns of a kind.
const KIND: Column = Column::new("kind").once();
const GROUP_TYPE_INDEX: Column = Column::new("group_type_index").once();

impl Columns for PropertyKind {
    const TABLE: &'static str = "property_definitions";

    const COLUMNS: &'static [Column] = &[KIND, GROUP_TYPE_INDEX];

    fn cells(&self, is_asked: fn(&Column) -> bool) -> Vec<Bind> {
        let ((kind, index), mut cells) = (self.numbers(), Vec::new());
        KIND.store(&kind, is_asked, &mut cells);
        GROUP_TYPE_INDEX.store(&index, is_asked, &mut cells);
        cells
    }

    fn logged_cells(&self) -> Map<String, Value> {
        Map::new()
    }
}

impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for PropertyKind
where
    &'static str: sqlx::ColumnIndex<R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let (kind, index) = (row.try_get("kind")?, row.try_get("group_type_index")?);
        let cause = || format!("kind {kind} of group type {index}");
        Self::from_numbers(kind, index).ok_or_else(|| corrupt(Self::TABLE, "kind", &cause()))
    }
}

entity! {
    /// The definition of one property.
    pub struct PropertyDefinition in "property_definitions" {
        /// UUIDv5 of project, kind and name.
        id: Uuid [key],
        /// The project of the property.
        project: ProjectId as "project_id" [once],
        /// Its key.
        name: String [once],
    }
    parts {
        /// The kind of object that it belongs to.
        kind: PropertyKind,
    }
    /// Changes to a property definition; `None` leaves a field as it is.
    pub struct PropertyPatch {
        /// Type of its values; `None` until a value determines it. Values do not change it any more.
        value_type: Option<ValueType> as "property_type" [logged],
        /// Labels: trimmed, lower case, each once. Those of a patch replace the stored ones, and need not be normalised.
        tags: Vec<String> [logged],
    }
    with {
        /// Changes to the annotations.
        notes: NotesPatch,
    }
}

impl Logged for PropertyDefinition {
    const CHANGED: Verb = Verb::Changed;

    fn subject(&self) -> Subject {
        let (item, name) = (self.id.to_string(), self.name.clone());
        Subject { scope: Scope::PropertyDefinition, item, name, project: Some(self.project) }
    }
}

impl Definition for PropertyDefinition {
    type Patch = PropertyPatch;

    const THING: &'static str = "property";
    const NAME: &'static str = "property definition";

    fn id(&self) -> Uuid {
        self.id
    }

    fn project(&self) -> ProjectId {
        self.project
    }

    fn patched(self, mut patch: PropertyPatch) -> (Self, NotesPatch) {
        patch.tags = patch.tags.map(normal_tags);
        let notes = std::mem::take(&mut patch.notes);
        (patch.applied(self), notes)
    }

    fn is_forgotten(&self, _: &Self) -> bool {
        self.value_type.is_none()
    }
}

impl PropertyDefinition {
    /// Whether its values are numbers.
    pub fn is_numerical(&self) -> bool {
        self.value_type == Some(ValueType::Numeric)
    }
}

/// A property of this key arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertySeen {
    /// The project.
    pub project: ProjectId,
    /// The kind of object that it belongs to.
    pub kind: PropertyKind,
    /// Its key.
    pub name: String,
    /// Type of the value, if it has one. The first type of a property stays.
    pub value_type: Option<ValueType>,
}

/// An event of this name had a property of this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSeen {
    /// The project.
    pub project: ProjectId,
    /// Name of the event.
    pub event: String,
    /// Key of the property.
    pub property: String,
}

impl Metadata {
    /// Property definitions of a project in an internal order, at most `limit`, those after `after`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn property_definitions(
        &self,
        project: ProjectId,
        after: Option<&PropertyDefinition>,
        limit: u32,
    ) -> Result<Vec<PropertyDefinition>, MetadataError> {
        let (kind, index) = after.map_or((0, -1), |after| after.kind.numbers());
        let select = PropertyDefinition::select(
            "WHERE project_id = $1 AND (kind, group_type_index, name) > ($2, $3, $4)
             ORDER BY kind, group_type_index, name LIMIT $5",
        )
        .bind(project.0)
        .bind(kind)
        .bind(index);
        let select = select.bind(after.map_or("", |after| &after.name)).bind(limit);
        Ok(select.fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// The events among `names` on which the property `key` was seen.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn seen_together(
        &self,
        project: ProjectId,
        names: &[String],
        key: &str,
    ) -> Result<HashSet<String>, MetadataError> {
        let mut select = Builder::new("SELECT event FROM event_properties WHERE project_id = ");
        select.push_bind(project.0).push(" AND property = ").push_bind(key);
        select.push(" AND event IN ").push_list(names);
        let seen: Vec<String> =
            select.build_scalar().fetch_all(&mut self.shared.db.reader().await?).await?;
        Ok(seen.into_iter().collect())
    }

    /// Pairs of event name and property key in an internal order, at most `limit`, those after `after`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn event_properties(
        &self,
        project: ProjectId,
        after: Option<&(String, String)>,
        limit: u32,
    ) -> Result<Vec<(String, String)>, MetadataError> {
        let (event, property) =
            after.map_or(("", ""), |(event, property)| (event.as_str(), property.as_str()));
        let rows = sql::query_as(
            "SELECT event, property FROM event_properties
             WHERE project_id = $1 AND (event, property) > ($2, $3)
             ORDER BY event, property LIMIT $4",
        )
        .bind(project.0)
        .bind(event)
        .bind(property)
        .bind(i64::from(limit))
        .fetch_all(&mut self.shared.db.reader().await?)
        .await?;
        Ok(rows)
    }
}

/// The id of a definition.
pub(super) fn id(seen: &PropertySeen) -> Uuid {
    let (kind, index) = seen.kind.numbers();
    let name = format!("{}:{kind}:{index}:{}", seen.project, seen.name);
    Uuid::new_v5(&PROPERTY_NAMESPACE, name.as_bytes())
}

/// Each property once, with the first type that was seen, sorted by the unique index. PostgreSQL
/// rejects a statement that updates a row twice.
fn unique(seen: &[PropertySeen]) -> Vec<&PropertySeen> {
    let mut unique: BTreeMap<(ProjectId, PropertyKind, &str), &PropertySeen> = BTreeMap::new();
    for seen in seen {
        let known = unique.entry((seen.project, seen.kind, &seen.name)).or_insert(seen);
        if known.value_type.is_none() {
            *known = seen;
        }
    }
    unique.into_values().collect()
}

/// The properties within the quota; known ones are checked only if the quota is nearly used up.
async fn within_quota<'s>(
    connection: &mut Conn,
    seen: Vec<&'s PropertySeen>,
    quota: &mut Room,
) -> Result<Vec<&'s PropertySeen>, MetadataError> {
    let mut counts: BTreeMap<ProjectId, u32> = BTreeMap::new();
    for one in &seen {
        let count = counts.entry(one.project).or_default();
        *count = count.saturating_add(1);
    }
    let mut kept = Vec::with_capacity(seen.len());
    for one in seen {
        let count = counts.get(&one.project).copied().unwrap_or_default();
        let is_kept = quota.of(connection, DEFINITIONS, one.project).await? >= count
            || exists(connection, one).await?
            || quota.take(connection, DEFINITIONS, one.project).await?;
        if is_kept {
            kept.push(one);
        } else {
            let (project, property) = (one.project, Some(one.name.clone()));
            quota.refuse(OverQuota { project, limit: Limit::Properties, event: None, property });
        }
    }
    Ok(kept)
}

async fn exists(connection: &mut Conn, seen: &PropertySeen) -> Result<bool, MetadataError> {
    let (kind, index) = seen.kind.numbers();
    let select = "SELECT TRUE FROM property_definitions
         WHERE project_id = $1 AND kind = $2 AND group_type_index = $3 AND name = $4";
    let select = sql::query_scalar(select).bind(seen.project.0).bind(kind).bind(index);
    let found: Option<bool> = select.bind(&seen.name).fetch_optional(connection).await?;
    Ok(found.is_some())
}

async fn is_paired(connection: &mut Conn, pair: &PairSeen) -> Result<bool, MetadataError> {
    let select = "SELECT TRUE FROM event_properties
         WHERE project_id = $1 AND event = $2 AND property = $3";
    let select = sql::query_scalar(select).bind(pair.project.0);
    let select = select.bind(&pair.event).bind(&pair.property);
    let found: Option<bool> = select.fetch_optional(connection).await?;
    Ok(found.is_some())
}

/// Adds definitions, and types to those that have none.
pub(super) async fn upsert(
    connection: &mut Conn,
    seen: &[PropertySeen],
    quota: &mut Room,
) -> Result<(), MetadataError> {
    for rows in within_quota(connection, unique(seen), quota).await?.chunks(INSERT_ROWS) {
        let mut insert = Builder::new(
            "INSERT INTO property_definitions
             (id, project_id, kind, group_type_index, name, property_type) ",
        );
        insert.push_values(rows.iter().map(|seen| {
            let (kind, index) = seen.kind.numbers();
            [
                Bind::from(id(seen).to_string()),
                seen.project.0.into(),
                kind.into(),
                index.into(),
                (&seen.name).into(),
                seen.value_type.map(ValueType::name).into(),
            ]
        }));
        insert.push(
            " ON CONFLICT (project_id, kind, group_type_index, name)
             DO UPDATE SET property_type = excluded.property_type
             WHERE property_definitions.property_type IS NULL
             AND excluded.property_type IS NOT NULL",
        );
        insert.build().execute(&mut *connection).await?;
    }
    Ok(())
}

/// Adds pairs of event and property.
pub(super) async fn insert_pairs(
    connection: &mut Conn,
    seen: &[PairSeen],
    quota: &mut Room,
) -> Result<(), MetadataError> {
    let mut kept: Vec<&PairSeen> = Vec::with_capacity(seen.len());
    for pair in seen {
        // A known pair takes from the quota too, but only until the end of the transaction.
        if quota.take(connection, PAIRS, pair.project).await? {
            kept.push(pair);
        } else if !quota.has_refused(Limit::Pairs, pair.project)
            && !is_paired(connection, pair).await?
        {
            let (event, property) = (Some(pair.event.clone()), Some(pair.property.clone()));
            quota.refuse(OverQuota { project: pair.project, limit: Limit::Pairs, event, property });
        }
    }
    for rows in kept.chunks(INSERT_ROWS) {
        let mut insert =
            Builder::new("INSERT INTO event_properties (project_id, event, property) ");
        insert.push_values(rows.iter().map(|seen| {
            [Bind::from(seen.project.0), (&seen.event).into(), (&seen.property).into()]
        }));
        insert.push(" ON CONFLICT DO NOTHING");
        insert.build().execute(&mut *connection).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PropertyKind, PropertySeen, ValueType, unique};
    use weir_event::id::ProjectId;

    #[test]
    fn a_property_is_named_once_with_its_first_type() {
        let seen = |kind, name: &str, value_type| PropertySeen {
            project: ProjectId(1),
            kind,
            name: name.to_owned(),
            value_type,
        };
        let all = [
            seen(PropertyKind::Person, "plan", None),
            seen(PropertyKind::Event, "plan", None),
            seen(PropertyKind::Person, "plan", Some(ValueType::Numeric)),
            seen(PropertyKind::Group(1), "plan", None),
            seen(PropertyKind::Person, "plan", Some(ValueType::String)),
            seen(PropertyKind::Person, "plan", None),
        ];
        assert_eq!(unique(&all), [&all[1], &all[2], &all[3]]);
    }
}
