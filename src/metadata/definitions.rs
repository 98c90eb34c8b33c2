//! Event definitions: the names of events that were seen or are expected, with their annotations.
//!
//! Ingest reports what it has seen in batches, properties included
//! ([`Metadata::upsert_definitions`]). Users create some in advance, and edit them. They are not
//! part of the snapshot, since no hot path reads them.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::accounts::{UserId, check_text};
use crate::activity::{Change, Scope, Verb, diff};
use crate::annotations::{Edit, Notes, NotesPatch};
use crate::connection::Conn;
use crate::definition_quota::{Bounded, Limit, OverQuota, Room};
use crate::error::MetadataError;
use crate::flag_calls::FlagCalled;
use crate::properties::{PairSeen, PropertySeen};
use crate::record_times::RecordTime;
use crate::tags::normal_tags;
use crate::violation::Violation;
use crate::{
    Metadata, Write, activity, annotations, disk, flag_calls, properties, record_times, sql,
};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// Namespace of definition ids, drawn at random once for this purpose.
const DEFINITION_NAMESPACE: Uuid = Uuid::from_u128(0x6f1d0c9e_5a47_4b3f_9c55_2f7de0b7a8d4);

/// Longest name of an event, in characters; the column width of PostHog.
const NAME_MAX_CHARS: usize = 400;

/// Most event definitions of a project: twice the limit of Mixpanel, five times that of Amplitude.
/// Lists are filtered and sorted in memory. Events of further names are stored like all others, but
/// get no definition.
pub const EVENT_DEFINITIONS_MAX: u32 = 10_000;

/// Ids tried for one name before the store gives up. More than one is needed only if a definition
/// with the id of this name was renamed.
const ID_ATTEMPTS: usize = 100;

/// The definition of the events of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDefinition {
    /// UUIDv5 of project and first name.
    pub id: Uuid,
    /// The project of the events.
    pub project: ProjectId,
    /// The name of the events.
    pub name: String,
    /// When such an event was first seen, or the definition was created; the client may set it.
    pub created_at: UnixMicros,
    /// When such an event was last seen, if ever; the client may set it, and later events advance it.
    pub last_seen_at: Option<UnixMicros>,
    /// Labels: trimmed, lower case, each once.
    pub tags: Vec<String>,
    /// Kept for the client; nothing acts on it.
    pub post_to_slack: bool,
}

/// An event of this name arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionSeen {
    /// The project of the event.
    pub project: ProjectId,
    /// Its name.
    pub name: String,
    /// When it arrived.
    pub seen_at: UnixMicros,
}

/// A batch of new facts about definitions, and others derived from the same events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sightings {
    /// Names of events.
    pub events: Vec<DefinitionSeen>,
    /// Keys of properties, with a type if a value has one.
    pub properties: Vec<PropertySeen>,
    /// Pairs of event and property that were seen together.
    pub pairs: Vec<PairSeen>,
    /// Flags called by SDKs.
    pub flags: Vec<FlagCalled>,
    /// Times at which records took effect.
    pub times: Vec<RecordTime>,
}

impl Sightings {
    /// Number of rows.
    pub fn len(&self) -> usize {
        let events_and_properties = self.events.len() + self.properties.len() + self.pairs.len();
        events_and_properties + self.flags.len() + self.times.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Changes to a definition; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct DefinitionPatch {
    /// Another name. Events of the old name get a new definition.
    pub name: Option<String>,
    /// Another time of creation.
    pub created_at: Option<UnixMicros>,
    /// Another time of the last event.
    pub last_seen_at: Option<UnixMicros>,
    /// Replaces the labels.
    pub tags: Option<Vec<String>>,
    /// See [`EventDefinition`].
    pub post_to_slack: Option<bool>,
    /// Changes to the annotations.
    pub notes: NotesPatch,
}

impl EventDefinition {
    /// The fields that the activity log compares.
    fn logged(&self, notes: &Notes) -> Map<String, Value> {
        activity::fields(json!({
            "name": self.name,
            "created_at": self.created_at.to_rfc3339(),
            "last_seen_at": self.last_seen_at.map(UnixMicros::to_rfc3339),
            "tags": self.tags,
            "post_to_slack": self.post_to_slack,
            "description": notes.description,
            "owner": notes.owner.map(|owner| owner.0),
            "verified": notes.verified,
            "hidden": notes.hidden,
            "default_columns": notes.default_columns,
            "primary_property": notes.primary_property,
        }))
    }

    fn change(&self, verb: Verb, fields: Vec<Value>) -> Change {
        let (item, name) = (self.id.to_string(), self.name.clone());
        Change { scope: Scope::EventDefinition, item, verb, name, fields }
    }
}

impl Metadata {
    /// Writes what arrived: a definition for each new name and key, a later `last_seen_at` for
    /// known names, the type for keys without one, the last call of flags. Definitions over
    /// [`EVENT_DEFINITIONS_MAX`] or the quotas of properties are rejected; the first rejected one
    /// of each project and kind is returned. All or nothing, in one transaction; idempotent.
    /// Writes nothing to a store that was opened to be read.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], also for a project that does not exist.
    pub async fn upsert_definitions(
        &self,
        seen: &Sightings,
    ) -> Result<Vec<OverQuota>, MetadataError> {
        if seen.is_empty() || self.shared.db.is_read_only() {
            return Ok(Vec::new());
        }
        let mut write = self.begin().await?;
        let mut quota = Room::default();
        for definition in &seen.events {
            upsert(write.connection(), definition, &mut quota).await?;
        }
        properties::upsert(write.connection(), &seen.properties, &mut quota).await?;
        properties::insert_pairs(write.connection(), &seen.pairs, &mut quota).await?;
        flag_calls::upsert(write.connection(), &seen.flags).await?;
        let log = self.shared.log.load_full();
        record_times::insert(write.connection(), &log, &seen.times).await?;
        write.commit_unseen().await?;
        Ok(quota.beyond())
    }

    /// Definitions of a project in an internal order, at most `limit`, those after the name
    /// `after`; all are after the empty name.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn definitions(
        &self,
        project: ProjectId,
        after: &str,
        limit: u32,
    ) -> Result<Vec<EventDefinition>, MetadataError> {
        let rows: Vec<DefinitionRow> = sql::query_as(
            "SELECT * FROM event_definitions WHERE project_id = $1 AND name > $2
             ORDER BY name LIMIT $3",
        )
        .bind(project.0)
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&mut self.shared.db.reader().await?)
        .await?;
        rows.into_iter().map(EventDefinition::try_from).collect()
    }

    /// One definition of a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id.
    pub async fn definition(
        &self,
        project: ProjectId,
        id: Uuid,
    ) -> Result<(EventDefinition, Notes), MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        let definition = by_id(&mut connection, project, id).await?;
        let notes = annotations::of(&mut connection, id).await?;
        Ok((definition, notes))
    }

    /// The definition of the events of this name, exactly.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this name.
    pub async fn definition_by_name(
        &self,
        project: ProjectId,
        name: &str,
    ) -> Result<(EventDefinition, Notes), MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        let found = find_by_name(&mut connection, project, name).await?;
        let definition = found.ok_or(MetadataError::NotFound("event definition"))?;
        let notes = annotations::of(&mut connection, definition.id).await?;
        Ok((definition, notes))
    }

    /// Creates a definition of events that are expected, in the name of the user `by`, with the
    /// values of `patch` except the times.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Rejected`] as [`Metadata::update_definition`], and if the quota is used up.
    pub async fn create_definition(
        &self,
        project: ProjectId,
        patch: DefinitionPatch,
        by: UserId,
    ) -> Result<(EventDefinition, Notes), MetadataError> {
        check_property(&patch)?;
        let name = patch.name.unwrap_or_default();
        check_text("name", &name, NAME_MAX_CHARS)?;
        let mut write = self.begin().await?;
        check_owner(&write, &patch.notes)?;
        if find_by_name(write.connection(), project, &name).await?.is_some() {
            let detail = format!("Event definition with name '{name}' already exists");
            return Err(Violation { code: "invalid_input", detail, attr: Some("name") }.into());
        }
        let mut quota = Room::default();
        if quota.of(write.connection(), EVENTS, project).await? == 0 {
            let detail =
                format!("A project has at most {EVENT_DEFINITIONS_MAX} event definitions.");
            return Err(Violation::general(detail).into());
        }
        let at = self.now();
        let notes = Notes::default().edited("event", patch.notes, Edit { by, at })?;
        let definition = EventDefinition {
            id: insert(write.connection(), project, &name, at, None).await?,
            project,
            name,
            created_at: at,
            last_seen_at: None,
            tags: patch.tags.map_or_else(Vec::new, normal_tags),
            post_to_slack: patch.post_to_slack.unwrap_or(false),
        };
        update(write.connection(), &definition).await?;
        annotations::put(write.connection(), project, definition.id, &notes).await?;
        write.log(project, Some(by), definition.change(Verb::Created, Vec::new())).await?;
        write.commit_unseen().await?;
        Ok((definition, notes))
    }

    /// Changes a definition in the name of the user `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id,
    /// [`MetadataError::Rejected`] for a name that is blank, long, or another definition's, and for
    /// annotations that break a rule.
    pub async fn update_definition(
        &self,
        project: ProjectId,
        id: Uuid,
        patch: DefinitionPatch,
        by: UserId,
    ) -> Result<(EventDefinition, Notes), MetadataError> {
        if let Some(name) = &patch.name {
            check_text("name", name, NAME_MAX_CHARS)?;
        }
        check_property(&patch)?;
        let mut write = self.begin().await?;
        let stored = by_id(write.connection(), project, id).await?;
        check_owner(&write, &patch.notes)?;
        let is_renamed = patch.name.as_ref().is_some_and(|name| *name != stored.name);
        let edit = Edit { by, at: self.now() };
        let (definition, notes) = write.edit_definition(stored, patch, edit).await?;
        write.commit_unseen().await?;
        if is_renamed {
            self.note_forgotten();
        }
        Ok((definition, notes))
    }

    /// Deletes a definition in the name of the user `by`. The next such event creates it again.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] if the project has none with this id.
    pub async fn delete_definition(
        &self,
        project: ProjectId,
        id: Uuid,
        by: UserId,
    ) -> Result<EventDefinition, MetadataError> {
        let mut write = self.begin().await?;
        let definition = by_id(write.connection(), project, id).await?;
        sql::query("DELETE FROM event_definitions WHERE id = $1 AND project_id = $2")
            .bind(id.to_string())
            .bind(project.0)
            .execute(write.connection())
            .await?;
        annotations::forget(write.connection(), id).await?;
        write.log(project, Some(by), definition.change(Verb::Deleted, Vec::new())).await?;
        write.commit_unseen().await?;
        self.note_forgotten();
        Ok(definition)
    }
}

impl Write {
    /// Changes a definition, and logs the changes.
    pub(super) async fn edit_definition(
        &mut self,
        stored: EventDefinition,
        patch: DefinitionPatch,
        edit: Edit,
    ) -> Result<(EventDefinition, Notes), MetadataError> {
        let noted = annotations::of(self.connection(), stored.id).await?;
        let before = stored.logged(&noted);
        let notes = noted.edited("event", patch.notes, edit)?;
        let definition = EventDefinition {
            name: patch.name.unwrap_or(stored.name),
            created_at: patch.created_at.unwrap_or(stored.created_at),
            last_seen_at: patch.last_seen_at.or(stored.last_seen_at),
            tags: patch.tags.map_or(stored.tags, normal_tags),
            post_to_slack: patch.post_to_slack.unwrap_or(stored.post_to_slack),
            ..stored
        };
        let (id, project) = (definition.id, definition.project);
        update(self.connection(), &definition).await.map_err(name_is_taken)?;
        annotations::put(self.connection(), project, id, &notes).await?;
        let fields = diff(Scope::EventDefinition, &before, &definition.logged(&notes));
        if !fields.is_empty() {
            let change = definition.change(Verb::Changed, fields);
            self.log(project, Some(edit.by), change).await?;
        }
        Ok((definition, notes))
    }
}

/// The ids to try for a definition of this name, in order.
fn ids(project: ProjectId, name: &str) -> impl Iterator<Item = Uuid> {
    let first = Uuid::new_v5(&DEFINITION_NAMESPACE, format!("{project}:{name}").as_bytes());
    std::iter::successors(Some(first), |taken| Some(Uuid::new_v5(taken, b"")))
}

/// The property to show must have a valid name.
fn check_property(patch: &DefinitionPatch) -> Result<(), Violation> {
    match &patch.notes.primary_property {
        Some(Some(name)) => check_text("primary_property", name, NAME_MAX_CHARS),
        _ => Ok(()),
    }
}

/// An owner must be a user who was not removed.
fn check_owner(write: &Write, patch: &NotesPatch) -> Result<(), Violation> {
    match patch.owner {
        Some(Some(owner)) if write.user(owner).is_err() => Err(Violation::missing("owner", owner)),
        _ => Ok(()),
    }
}

/// The quota of event definitions of a project.
const EVENTS: Bounded = Bounded {
    limit: Limit::Events,
    count: "SELECT COUNT(*) FROM (SELECT 1 FROM event_definitions WHERE project_id = $1 LIMIT $2) AS n",
    max: EVENT_DEFINITIONS_MAX,
};

async fn upsert(
    connection: &mut Conn,
    seen: &DefinitionSeen,
    quota: &mut Room,
) -> Result<(), MetadataError> {
    let updated = sql::query(
        "UPDATE event_definitions
         SET last_seen_at = CASE WHEN last_seen_at > $1 THEN last_seen_at ELSE $1 END
         WHERE project_id = $2 AND name = $3",
    )
    .bind(seen.seen_at.0)
    .bind(seen.project.0)
    .bind(&seen.name)
    .execute(&mut *connection)
    .await?;
    if updated > 0 {
        return Ok(());
    }
    if quota.take(connection, EVENTS, seen.project).await? {
        let at = seen.seen_at;
        insert(connection, seen.project, &seen.name, at, Some(at)).await?;
    } else {
        let (project, event) = (seen.project, Some(seen.name.clone()));
        quota.refuse(OverQuota { project, limit: Limit::Events, event, property: None });
    }
    Ok(())
}

/// Adds a definition of a name that has none, and returns its id.
async fn insert(
    connection: &mut Conn,
    project: ProjectId,
    name: &str,
    created_at: UnixMicros,
    last_seen_at: Option<UnixMicros>,
) -> Result<Uuid, MetadataError> {
    for id in ids(project, name).take(ID_ATTEMPTS) {
        // Inserts nothing if another definition has the id.
        let inserted = sql::query(
            "INSERT INTO event_definitions
             (id, project_id, name, created_at, last_seen_at, tags, post_to_slack)
             VALUES ($1, $2, $3, $4, $5, '[]', FALSE)
             ON CONFLICT DO NOTHING",
        )
        .bind(id.to_string())
        .bind(project.0)
        .bind(name)
        .bind(created_at.0)
        .bind(last_seen_at.map(|at| at.0))
        .execute(&mut *connection)
        .await?;
        if inserted > 0 {
            return Ok(id);
        }
    }
    let problem = format!("no free id for an event name of project {project}");
    Err(MetadataError::Corrupt { table: "event_definitions", problem })
}

async fn update(connection: &mut Conn, definition: &EventDefinition) -> Result<(), MetadataError> {
    sql::query(
        "UPDATE event_definitions
         SET name = $1, created_at = $2, last_seen_at = $3, tags = $4, post_to_slack = $5
         WHERE id = $6 AND project_id = $7",
    )
    .bind(&definition.name)
    .bind(definition.created_at.0)
    .bind(definition.last_seen_at.map(|seen| seen.0))
    .bind(disk::to_json(&definition.tags))
    .bind(definition.post_to_slack)
    .bind(definition.id.to_string())
    .bind(definition.project.0)
    .execute(connection)
    .await?;
    Ok(())
}

fn name_is_taken(error: MetadataError) -> MetadataError {
    disk::unless_taken(error, || {
        Violation::unique("name", "There is already an event definition with this name.")
    })
}

async fn find_by_name(
    connection: &mut Conn,
    project: ProjectId,
    name: &str,
) -> Result<Option<EventDefinition>, MetadataError> {
    let row: Option<DefinitionRow> =
        sql::query_as("SELECT * FROM event_definitions WHERE project_id = $1 AND name = $2")
            .bind(project.0)
            .bind(name)
            .fetch_optional(connection)
            .await?;
    row.map(EventDefinition::try_from).transpose()
}

pub(super) async fn by_id(
    connection: &mut Conn,
    project: ProjectId,
    id: Uuid,
) -> Result<EventDefinition, MetadataError> {
    let row: Option<DefinitionRow> =
        sql::query_as("SELECT * FROM event_definitions WHERE id = $1 AND project_id = $2")
            .bind(id.to_string())
            .bind(project.0)
            .fetch_optional(connection)
            .await?;
    row.ok_or(MetadataError::NotFound("event definition"))?.try_into()
}

#[derive(sqlx_macros::FromRow)]
struct DefinitionRow {
    id: String,
    project_id: i64,
    name: String,
    created_at: i64,
    last_seen_at: Option<i64>,
    tags: String,
    post_to_slack: bool,
}

impl TryFrom<DefinitionRow> for EventDefinition {
    type Error = MetadataError;

    fn try_from(row: DefinitionRow) -> Result<Self, MetadataError> {
        const TABLE: &str = "event_definitions";
        Ok(Self {
            id: disk::from_uuid(TABLE, &row.id)?,
            project: ProjectId(row.project_id),
            name: row.name,
            created_at: UnixMicros(row.created_at),
            last_seen_at: row.last_seen_at.map(UnixMicros),
            tags: disk::from_json(TABLE, &row.tags)?,
            post_to_slack: row.post_to_slack,
        })
    }
}
