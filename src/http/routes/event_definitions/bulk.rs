//! Bulk changes of event definitions: their tags, and whether they are verified.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, refused};
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::definition_parameters::caught_up;
use crate::routes::feature_flags::bulk::check_count;
use weir_api::definitions as api;
use weir_metadata::Metadata;
use weir_metadata::definition_bulk::{BulkChange, BulkChanged};
use weir_metadata::flags::tags::TagChange;

/// Actions on tags.
const ACTIONS: [&str; 3] = ["add", "remove", "set"];

input! {
    /// Changes the tags of many definitions.
    pub struct UpdateTags {
        body tags: BulkDefinitionTags,
    }
}

impl Operation for UpdateTags {
    type Who = Principal;
    type Out = api::BulkDefinitionsTagged;
    const SCOPE: &'static str = "event_definition:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let BulkDefinitionTags { ids, action: Action(action), tags } = self.tags;
        if tags.is_empty() && action != "set" {
            let detail = format!("tags must not be empty for action '{action}'.");
            return Err(refused("tags", "invalid_input", detail));
        }
        let change = match action.as_str() {
            "add" => TagChange::Add(tags),
            "remove" => TagChange::Remove(tags),
            _ => TagChange::Set(tags),
        };
        let changed = change_all(cx, ids, BulkChange::Tags(change)).await?;
        let skipped = skipped(&changed);
        let updated = changed.definitions.into_iter();
        let updated = updated.map(|own| api::Tagged { id: own.id.to_string(), tags: own.tags });
        Ok(api::BulkDefinitionsTagged { skipped, updated: updated.collect() })
    }
}

input! {
    /// Vouches for many definitions, or no more. Definitions that already have the value are neither among the changed
    /// nor among the skipped.
    pub struct UpdateVerified {
        body verified: BulkVerified,
    }
}

impl Operation for UpdateVerified {
    type Who = Principal;
    type Out = api::BulkDefinitionsVerified;
    const SCOPE: &'static str = "event_definition:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let BulkVerified { ids, verified } = self.verified;
        let changed = change_all(cx, ids, BulkChange::Verified(verified)).await?;
        let updated = changed.definitions.iter();
        let updated = updated.map(|own| api::Verified { id: own.id.to_string(), verified });
        let updated = updated.collect();
        Ok(api::BulkDefinitionsVerified { skipped: skipped(&changed), updated })
    }
}

body! {
    /// Other tags for many definitions.
    pub struct BulkDefinitionTags {
        /// The definitions
        ids: Ids,
        /// What to do with the tags
        action: Action,
        /// Empty only to be set
        tags: Vec<String>,
    }
}

body! {
    /// Whether many definitions are verified.
    pub struct BulkVerified {
        /// The definitions
        ids: Ids,
        /// Whether they are verified from now on
        verified: bool,
    }
}

/// The ids of definitions, without duplicates.
#[derive(Debug)]
pub struct Ids(Vec<Uuid>);

impl Field for Ids {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let texts = fields.texts(name)?.unwrap_or_default();
        check_count(texts.len())?;
        let mut ids = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let wrong =
                |_| refused(format!("{name}__{index}"), "invalid_input", "Must be a valid UUID.");
            let id = Uuid::try_parse(text).map_err(wrong)?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(Self(ids))
    }

    fn schema() -> Value {
        let id = json!({"type": "string", "format": "uuid"});
        json!({"type": "array", "items": id, "minItems": 1, "maxItems": 500})
    }
}

/// One of [`ACTIONS`].
#[derive(Debug)]
pub struct Action(String);

impl Field for Action {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        Ok(Self(fields.choice(name, &ACTIONS)?.unwrap_or_default()))
    }

    fn schema() -> Value {
        json!({"type": "string", "enum": ACTIONS})
    }
}

async fn change_all(
    cx: &Context<Principal>,
    Ids(ids): Ids,
    change: BulkChange,
) -> Result<BulkChanged, Problem> {
    caught_up(cx).await?;
    let (project, by) = (cx.who.project.id, cx.user());
    let write = |metadata: Metadata| async move {
        metadata.change_definitions(project, &ids, change, by).await
    };
    cx.write("change-event-definitions", write).await
}

fn skipped(changed: &BulkChanged) -> Vec<api::Skipped> {
    let skipped = |id: &Uuid| api::Skipped { id: id.to_string(), reason: "Not found".to_owned() };
    changed.missing.iter().map(skipped).collect()
}
