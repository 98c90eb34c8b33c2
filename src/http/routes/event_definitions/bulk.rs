//! Bulk changes of event definitions: their tags, and whether they are verified.

use hyper::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::response::{Problem, Response};
use crate::routes::feature_flags::bulk;
use crate::routes::{query, store};
use weir_app::App;
use weir_metadata::definition_bulk::BulkChange;
use weir_metadata::definitions::EventDefinition;

pub(crate) const UPDATE_TAGS: Description =
    Description::ok::<by_hand::BulkDefinitionsTagged>("Change the tags of many definitions")
        .says("What was changed")
        .body::<by_hand::BulkDefinitionTags>();

/// `POST event_definitions/bulk_update_tags/` with `ids`, `action` (`add`, `remove` or `set`) and `tags`.
pub async fn update_tags(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    let ids = ids(&mut fields)?;
    let change = BulkChange::Tags(bulk::tag_change(&mut fields)?);
    let shown = |own: &EventDefinition| json!({"id": own.id, "tags": own.tags});
    change_all(app, &asker, ids, change, shown).await
}

pub(crate) const UPDATE_VERIFIED: Description =
    Description::ok::<by_hand::BulkDefinitionsVerified>("Vouch for many definitions, or no more")
        .says("What was changed")
        .body::<by_hand::BulkVerified>();

/// `POST event_definitions/bulk_update_verified/` with `ids` and `verified`. Definitions that already have
/// the value are neither among the changed nor among the skipped.
pub async fn update_verified(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    let ids = ids(&mut fields)?;
    fields.require("verified")?;
    let verified = fields.boolean("verified")?.unwrap_or_default();
    let shown = move |own: &EventDefinition| json!({"id": own.id, "verified": verified});
    change_all(app, &asker, ids, BulkChange::Verified(verified), shown).await
}

/// The ids of a body, deduplicated, in their order.
fn ids(fields: &mut Fields) -> Result<Vec<Uuid>, Problem> {
    fields.require("ids")?;
    let texts = fields.texts("ids")?.unwrap_or_default();
    bulk::check_count(texts.len())?;
    let mut ids = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let wrong = |_| refused(format!("ids__{index}"), "invalid_input", "Must be a valid UUID.");
        let id = Uuid::try_parse(text).map_err(wrong)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

async fn change_all(
    app: &App,
    asker: &Principal,
    ids: Vec<Uuid>,
    change: BulkChange,
    shown: impl Fn(&EventDefinition) -> Value,
) -> Result<Response, Problem> {
    app.engine.wait().await.map_err(query::problem)?;
    let (metadata, project, by) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.change_definitions(project, &ids, change, by).await };
    let changed = store::write(app, "change-event-definitions", write).await?;
    let updated: Vec<Value> = changed.definitions.iter().map(shown).collect();
    let skipped = changed.missing.iter().map(|id| json!({"id": id, "reason": "Not found"}));
    let skipped: Vec<Value> = skipped.collect();
    Ok(Response::json(StatusCode::OK, &json!({"updated": updated, "skipped": skipped})))
}
