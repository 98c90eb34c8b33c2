//! JSON form of an event definition: [`DefinitionBody`].

use schemars::JsonSchema;
use serde::Serialize;

use crate::routes::user_body::user;
use weir_metadata::accounts::UserId;
use weir_metadata::annotations::Notes;
use weir_metadata::definitions::EventDefinition;
use weir_metadata::snapshot::Snapshot;

/// The fields of the API specification in its order, then additional ones of PostHog's enterprise
/// edition. Events never include actions, so the fields about actions stay empty.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "EventDefinition")]
pub(super) struct DefinitionBody {
    id: String,
    name: String,
    created_at: String,
    last_seen_at: Option<String>,
    last_updated_at: Option<String>,
    tags: Vec<String>,
    is_action: bool,
    action_id: Option<i64>,
    is_calculating: bool,
    last_calculated_at: Option<String>,
    created_by: Option<weir_api::accounts::User>,
    post_to_slack: bool,
    owner: Option<weir_api::accounts::User>,
    description: Option<String>,
    updated_at: Option<String>,
    updated_by: Option<weir_api::accounts::User>,
    verified: bool,
    verified_at: Option<String>,
    verified_by: Option<weir_api::accounts::User>,
    hidden: bool,
    default_columns: Vec<String>,
    primary_property: Option<String>,
}

impl DefinitionBody {
    /// `definition` and its annotations; `snapshot` contains their users.
    pub(super) fn new(definition: EventDefinition, notes: Notes, snapshot: &Snapshot) -> Self {
        let user = |id: Option<UserId>| snapshot.user(id?).map(|found| user(found));
        let updated_at = notes.updated_at.map(|at| at.to_rfc3339());
        Self {
            id: definition.id.to_string(),
            name: definition.name,
            created_at: definition.created_at.to_rfc3339(),
            last_seen_at: definition.last_seen_at.map(|at| at.to_rfc3339()),
            last_updated_at: updated_at.clone(),
            tags: definition.tags,
            is_action: false,
            action_id: None,
            is_calculating: false,
            last_calculated_at: None,
            created_by: None,
            post_to_slack: definition.post_to_slack,
            owner: user(notes.owner),
            description: notes.description,
            updated_at,
            updated_by: user(notes.updated_by),
            verified: notes.verified,
            verified_at: notes.verified_at.map(|at| at.to_rfc3339()),
            verified_by: user(notes.verified_by),
            hidden: notes.hidden,
            default_columns: notes.default_columns,
            primary_property: notes.primary_property,
        }
    }
}
