//! Event definitions: the names of events that were seen or are expected, with their annotations.
//!
//! Ingest reports what it has seen in batches, properties included
//! ([`Metadata::upsert_definitions`]). Users create some in advance, and edit them. They are not
//! part of the snapshot, since no hot path reads them.

use uuid::Uuid;

use crate::accounts::{UserId, check_text};
use crate::activity::{Logged, Scope, Subject, Verb};
use crate::annotations::{Edit, Notes, NotesPatch};
use crate::connection::Conn;
use crate::definition_edits::Definition;
use crate::definition_quota::{Bounded, Limit, OverQuota, Room};
use crate::entity::{Columns, Entity, Patch, entity};
use crate::error::MetadataError;
use crate::flag_calls::FlagCalled;
use crate::properties::{PairSeen, PropertySeen};
use crate::record_times::RecordTime;
use crate::tags::normal_tags;
use crate::violation::Violation;
use crate::{Metadata, annotations, disk, flag_calls, properties, record_times, sql};
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

/// Definitions in one read.
const READ_AT_ONCE: u32 = 10_000;

/// Ids tried for one name before the store gives up. More than one is needed only if a definition
/// with the id of this name was renamed.
const ID_ATTEMPTS: usize = 100;

entity! {
    /// The definition of the events of one name.
    #[derive(Default)]
    pub struct EventDefinition in "event_definitions" {
        /// UUIDv5 of project and first name.
        id: Uuid [key],
        /// The project of the events.
        project: ProjectId as "project_id" [once],
    }
    /// Changes to a definition; `None` leaves a field unchanged.
    pub struct DefinitionPatch {
        /// The name of the events. After a change, events of the old name get a new definition.
        name: String [logged],
        /// When such an event was first seen, or the definition was created; the client may set it.
        created_at: UnixMicros [logged],
        /// When such an event was last seen, if ever; the client may set it, and later events advance it.
        last_seen_at: Option<UnixMicros> [logged],
        /// Labels: trimmed, lower case, each once. Those of a patch replace the stored ones, and need not be normalised.
        tags: Vec<String> [logged],
        /// Kept for the client; nothing acts on it.
        post_to_slack: bool [logged],
    }
    with {
        /// Changes to the annotations.
        notes: NotesPatch,
    }
}

impl Logged for EventDefinition {
    const CHANGED: Verb = Verb::Changed;

    fn subject(&self) -> Subject {
        let (item, name) = (self.id.to_string(), self.name.clone());
        Subject { scope: Scope::EventDefinition, item, name, project: Some(self.project) }
    }
}

impl Definition for EventDefinition {
    type Patch = DefinitionPatch;

    const THING: &'static str = "event";
    const NAME: &'static str = "event definition";

    fn id(&self) -> Uuid {
        self.id
    }

    fn project(&self) -> ProjectId {
        self.project
    }

    fn patched(self, mut patch: DefinitionPatch) -> (Self, NotesPatch) {
        patch.tags = patch.tags.map(normal_tags);
        let notes = std::mem::take(&mut patch.notes);
        (patch.applied(self), notes)
    }

    fn check(patch: &DefinitionPatch) -> Result<(), Violation> {
        if let Some(name) = &patch.name {
            check_text("name", name, NAME_MAX_CHARS)?;
        }
        check_property(&patch.notes)
    }

    fn refused(error: MetadataError) -> MetadataError {
        let detail = "There is already an event definition with this name.";
        disk::unless_taken(error, || Violation::unique("name", detail))
    }

    fn is_forgotten(&self, before: &Self) -> bool {
        self.name != before.name
    }
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

    /// The projects of all that was seen, each as often as it was.
    fn projects(&self) -> impl Iterator<Item = ProjectId> {
        let (events, properties) = (self.events.iter(), self.properties.iter());
        let (pairs, flags) = (self.pairs.iter(), self.flags.iter());
        events
            .map(|seen| seen.project)
            .chain(properties.map(|seen| seen.project))
            .chain(pairs.map(|seen| seen.project))
            .chain(flags.map(|seen| seen.project))
    }

    /// The same without what is of some projects.
    fn without(&self, is_left_out: impl Fn(ProjectId) -> bool) -> Self {
        let mut left = self.clone();
        left.events.retain(|seen| !is_left_out(seen.project));
        left.properties.retain(|seen| !is_left_out(seen.project));
        left.pairs.retain(|seen| !is_left_out(seen.project));
        left.flags.retain(|seen| !is_left_out(seen.project));
        left
    }
}

impl Metadata {
    /// Writes what arrived: a definition for each new name and key, a later `last_seen_at` for
    /// known names, the type for keys without one, the last call of flags. Definitions over
    /// [`EVENT_DEFINITIONS_MAX`] or the quotas of properties are rejected; the first rejected one
    /// of each project and kind is returned. What is of deleted projects is left out. All or nothing,
    /// in one transaction; idempotent.
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
        let left;
        let is_deleted = |project| write.base.is_deleted(project);
        let seen = match seen.projects().any(is_deleted) {
            false => seen,
            true => {
                left = seen.without(is_deleted);
                &left
            }
        };
        for definition in &seen.events {
            upsert(write.connection(), definition, &mut quota).await?;
        }
        properties::upsert(write.connection(), &seen.properties, &mut quota).await?;
        properties::insert_pairs(write.connection(), &seen.pairs, &mut quota).await?;
        flag_calls::upsert(write.connection(), &seen.flags).await?;
        record_times::insert(write.connection(), &self.log, &seen.times).await?;
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
        let select = EventDefinition::select(
            "WHERE project_id = $1 AND name > $2
             ORDER BY name LIMIT $3",
        )
        .bind(project.0)
        .bind(after)
        .bind(limit);
        Ok(select.fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// All definitions of a project, [`EVENT_DEFINITIONS_MAX`] at most.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn all_definitions(
        &self,
        project: ProjectId,
    ) -> Result<Vec<EventDefinition>, MetadataError> {
        let mut all: Vec<EventDefinition> = Vec::new();
        loop {
            let after = all.last().map_or("", |last| last.name.as_str());
            let more = self.definitions(project, after, READ_AT_ONCE).await?;
            let is_last = more.len() < usize::try_from(READ_AT_ONCE).unwrap_or(usize::MAX);
            all.extend(more);
            if is_last {
                return Ok(all);
            }
        }
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
        let notes = annotations::of(&mut connection, project, definition.id).await?;
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
        mut patch: DefinitionPatch,
        by: UserId,
    ) -> Result<(EventDefinition, Notes), MetadataError> {
        let name = patch.name.get_or_insert_default().clone();
        check_property(&patch.notes)?;
        check_text("name", &name, NAME_MAX_CHARS)?;
        let mut write = self.begin().await?;
        write.check_owner(&patch.notes)?;
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
        (patch.created_at, patch.last_seen_at) = (Some(at), None);
        let new = EventDefinition { project, ..EventDefinition::default() };
        let (new, notes) = new.patched(patch);
        let definition = insert(write.connection(), new).await?;
        let noted = Notes { definition: definition.id, project, ..Notes::default() };
        let notes = noted.edited(EventDefinition::THING, notes, Edit { by, at })?;
        notes.put().execute(write.connection()).await?;
        write.log(project, Some(by), definition.entry(Verb::Created, Vec::new())).await?;
        write.commit_unseen().await?;
        Ok((definition, notes))
    }
}

/// The ids to try for a definition of this name, in order.
fn ids(project: ProjectId, name: &str) -> impl Iterator<Item = Uuid> {
    let first = Uuid::new_v5(&DEFINITION_NAMESPACE, format!("{project}:{name}").as_bytes());
    std::iter::successors(Some(first), |taken| Some(Uuid::new_v5(taken, b"")))
}

/// The property to show must have a valid name.
fn check_property(patch: &NotesPatch) -> Result<(), Violation> {
    match &patch.primary_property {
        Some(Some(name)) => check_text("primary_property", name, NAME_MAX_CHARS),
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
        let new = EventDefinition {
            project: seen.project,
            name: seen.name.clone(),
            created_at: seen.seen_at,
            last_seen_at: Some(seen.seen_at),
            ..EventDefinition::default()
        };
        insert(connection, new).await?;
    } else {
        let (project, event) = (seen.project, Some(seen.name.clone()));
        quota.refuse(OverQuota { project, limit: Limit::Events, event, property: None });
    }
    Ok(())
}

/// Adds a definition of a name that has none, with the first id that no other definition has.
async fn insert(
    connection: &mut Conn,
    mut new: EventDefinition,
) -> Result<EventDefinition, MetadataError> {
    let project = new.project;
    for id in ids(project, &new.name.clone()).take(ID_ATTEMPTS) {
        new.id = id;
        if new.insert_new().execute(&mut *connection).await? > 0 {
            return Ok(new);
        }
    }
    let problem = format!("no free id for an event name of project {project}");
    Err(MetadataError::Corrupt { table: EventDefinition::TABLE, problem })
}

async fn find_by_name(
    connection: &mut Conn,
    project: ProjectId,
    name: &str,
) -> Result<Option<EventDefinition>, MetadataError> {
    let select =
        EventDefinition::select("WHERE project_id = $1 AND name = $2").bind(project.0).bind(name);
    Ok(select.fetch_optional(connection).await?)
}
