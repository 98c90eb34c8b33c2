//! Event definitions: list, create, retrieve, edit, delete. Most are created by events.

pub mod bulk;
mod choice;

use uuid::Uuid;

use crate::auth::Principal;
use crate::beside::beside;
use crate::body::body;
use crate::operation::input::{Creates, Named, Needed, New, input, part};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::Problem;
use crate::routes::activity::Logged;
use crate::routes::definition_parameters::{Names, Terms, Truth, caught_up, notes};
use crate::routes::event_definitions::choice::{EventType, NamesWanted, Order};
use crate::routes::store::problem;
use crate::routes::user_body::user;
use weir_api::definitions as api;
use weir_base::clock::UnixMicros;
use weir_metadata::Metadata;
use weir_metadata::accounts::UserId;
use weir_metadata::activity::Scope;
use weir_metadata::annotations::{Notes, NotesPatch};
use weir_metadata::definitions::{DefinitionPatch, EventDefinition};
use weir_metadata::snapshot::Snapshot;

input! {
    /// Events that were seen.
    #[derive(Default)]
    pub struct List {
        query search: Terms,
        query event_type: EventType,
        /// Such as name or -last_seen_at; several with commas, or several times
        query ordering: Order,
        query exclude_hidden: Truth,
        /// Leave out what was last seen over 30 days ago
        query exclude_stale: Truth,
        query verified: Truth,
        /// These alone; several with commas, or several times
        query names: NamesWanted,
        /// A JSON list of names
        query excluded_properties: Names,
        /// A JSON list
        query tags: Names,
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Listed<api::EventDefinition>;
    const SCOPE: &'static str = "event_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let (project, page, now) = (cx.who.project.id, self.page, cx.app.node.clock.now());
        let definitions = cx.metadata().all_definitions(project).await.map_err(problem)?;
        let notes = cx.metadata().annotations(project).await.map_err(problem)?;
        // Filters and sorts thousands of names: too slow for an async thread.
        let choose = move || Ok(self.choose(now, definitions, notes));
        let chosen = beside(&cx.app.node.cpu, choose).await?;
        let snapshot = cx.snapshot();
        Ok(Listed::part_of(page, chosen, |(own, notes)| definition(own, notes, &snapshot)))
    }
}

input! {
    /// Defines events that are still to come. Whatever is told, `created_at` is now, and `last_seen_at` is null until
    /// such an event arrives.
    pub struct Create {
        body definition: New<EventDefinitionWrite>,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::EventDefinition>;
    const SCOPE: &'static str = "event_definition:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let (project, by, patch) = (cx.who.project.id, cx.user(), self.definition.0.patch());
        let write = |metadata: Metadata| async move {
            metadata.create_definition(project, patch, by).await
        };
        let (own, notes) = cx.write("create-event-definition", write).await?;
        Ok(Created(definition(own, notes, &cx.snapshot())))
    }
}

input! {
    /// One definition.
    pub struct Retrieve {
        path id: Uuid,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::EventDefinition;
    const SCOPE: &'static str = "event_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (own, notes) = find(cx, self.id).await?;
        Ok(definition(own, notes, &cx.snapshot()))
    }
}

input! {
    /// The definition of exactly this name.
    pub struct ByName {
        query name: Needed,
    }
}

impl Operation for ByName {
    type Who = Principal;
    type Out = api::EventDefinition;
    const SCOPE: &'static str = "event_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let found = cx.metadata().definition_by_name(cx.who.project.id, &self.name.0).await;
        let (own, notes) = found.map_err(problem)?;
        Ok(definition(own, notes, &cx.snapshot()))
    }
}

input! {
    /// Changes a definition: an absent field keeps its value, and so does a time that is null, as that of an event that
    /// nobody sent yet.
    pub struct Update {
        path id: Uuid,
        body change: EventDefinitionWrite,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::EventDefinition;
    const SCOPE: &'static str = "event_definition:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        find(cx, part(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let (project, by, id, patch) = (cx.who.project.id, cx.user(), self.id, self.change.patch());
        let write = |metadata: Metadata| async move {
            metadata.update_definition(project, id, patch, by).await
        };
        let (own, notes) = cx.write("update-event-definition", write).await?;
        Ok(definition(own, notes, &cx.snapshot()))
    }
}

input! {
    /// Forgets a definition, which returns when such an event arrives.
    pub struct Delete {
        path id: Uuid,
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = "event_definition:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let (project, by, id) = (cx.who.project.id, cx.user(), self.id);
        let write = |metadata: Metadata| async move {
            metadata.delete_definition::<EventDefinition>(project, id, by).await
        };
        cx.write("delete-event-definition", write).await?;
        Ok(Done)
    }
}

impl Logged for EventDefinition {
    const SCOPE: Scope = Scope::EventDefinition;
    const READ: &'static str = "event_definition:read";
    type Id = Uuid;

    /// Deleted definitions have entries, too.
    async fn item(_: &Context<Principal>, id: Uuid) -> Result<String, Problem> {
        Ok(id.to_string())
    }
}

input! {
    /// The number of queries that named the event in the last 30 days, today included; see
    /// [`usage`](weir_query::kernel::usage).
    pub struct Metrics {
        path id: Uuid,
    }
}

impl Operation for Metrics {
    type Who = Principal;
    type Out = api::EventMetrics;
    const SCOPE: &'static str = "event_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        find(cx, self.id).await?;
        // Includes the queries just before this request.
        let engine = cx.app.engine.clone();
        cx.write("write-usage", |_| async move { engine.write_usage().await }).await?;
        let query_usage_30_day = cx.metadata().event_usage(self.id).await.map_err(problem)?;
        Ok(api::EventMetrics { query_usage_30_day })
    }
}

input! {
    /// The property that is displayed with the events of a name, for all names that have one, or for some.
    pub struct PrimaryProperties {
        /// Names of events; may come several times
        query names: NamesWanted,
    }
}

impl Operation for PrimaryProperties {
    type Who = Principal;
    type Out = api::PrimaryProperties;
    const SCOPE: &'static str = "event_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        caught_up(cx).await?;
        let found = cx.metadata().primary_properties(cx.who.project.id).await;
        let mut primary_properties = found.map_err(problem)?;
        primary_properties.retain(|name, _| self.names.includes(name));
        Ok(api::PrimaryProperties { primary_properties })
    }
}

/// The definition with this id, and the notes of users on it, as of every event acknowledged so far.
async fn find(cx: &Context<Principal>, id: Uuid) -> Result<(EventDefinition, Notes), Problem> {
    caught_up(cx).await?;
    cx.metadata().definition(cx.who.project.id, id).await.map_err(problem)
}

body! {
    /// A new definition of an event, or a change of one.
    #[derive(Default)]
    pub struct EventDefinitionWrite {
        /// The name of the events.
        name: Option<String>,
        /// When the first event came; null changes nothing.
        created_at: Option<Option<UnixMicros>>,
        /// When the last event came; null changes nothing.
        last_seen_at: Option<Option<UnixMicros>>,
        /// Labels.
        tags: Option<Vec<String>>,
        /// Kept for clients; nothing is posted.
        post_to_slack: Option<bool>,
        /// What it means.
        description: Option<Option<String>>,
        /// The number of the user who is responsible for it.
        owner: Option<Option<i64>>,
        /// Whether it means what it says.
        verified: Option<bool>,
        /// Whether lists of choices leave it out.
        hidden: Option<bool>,
        /// The columns of lists of these events.
        default_columns: Option<Vec<String>>,
        /// The property that is shown beside these events.
        primary_property: Option<Option<String>> = {"maxLength": 400},
    }
}

impl Creates for EventDefinitionWrite {
    const NEEDS: &'static [&'static str] = &["name"];
}

impl EventDefinitionWrite {
    fn patch(self) -> DefinitionPatch {
        DefinitionPatch {
            name: self.name,
            created_at: self.created_at.flatten(),
            last_seen_at: self.last_seen_at.flatten().map(Some),
            tags: self.tags,
            post_to_slack: self.post_to_slack,
            notes: NotesPatch {
                description: self.description,
                owner: self.owner.map(|owner| owner.map(UserId)),
                verified: self.verified,
                hidden: self.hidden,
                default_columns: self.default_columns,
                primary_property: self.primary_property,
            },
        }
    }
}

/// A definition with its notes; `snapshot` contains the users in them.
fn definition(own: EventDefinition, said: Notes, snapshot: &Snapshot) -> api::EventDefinition {
    let owner = said.owner.and_then(|owner| snapshot.user(owner));
    let notes = notes(&said, snapshot);
    api::EventDefinition {
        id: own.id.to_string(),
        name: own.name,
        created_at: own.created_at.to_rfc3339(),
        last_seen_at: own.last_seen_at.map(|at| at.to_rfc3339()),
        last_updated_at: notes.updated_at.clone(),
        tags: own.tags,
        is_action: false,
        action_id: None,
        is_calculating: false,
        last_calculated_at: None,
        created_by: None,
        post_to_slack: own.post_to_slack,
        owner: owner.map(|owner| user(owner)),
        notes,
        default_columns: said.default_columns,
        primary_property: said.primary_property,
    }
}
