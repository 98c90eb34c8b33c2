//! Properties of events that a project promotes to columns of the events table: list, promote, stop.

use serde_json::{Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice, refused};
use crate::operation::input::input;
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::Problem;
use weir_api::definitions as api;
use weir_event::promotion::COLUMNS_MAX;
use weir_event::schema::{PropertyType, promoted_column_name};
use weir_metadata::Metadata;
use weir_metadata::members::Level;
use weir_metadata::promotions::{NewPromotion, PromotedProperty, StoredColumn};

input! {
    /// Properties of events that the project has promoted, by key.
    pub struct List {
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Listed<api::PromotedProperty>;
    const SCOPE: &'static str = "property_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        let all = snapshot.promoted_properties(cx.who.project.id);
        Ok(Listed::part_of(self.page, all, shown))
    }
}

input! {
    /// Promotes a property of events to a column, which new files have. Nothing changes if it has one of this type already.
    pub struct Create {
        body property: PromotedPropertyWrite,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::PromotedProperty>;
    const SCOPE: &'static str = "property_definition:write";

    /// Each column is one of all projects, and for good.
    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require_level(&who.key, Level::Admin)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let PromotedPropertyWrite { key: PropertyKey(key), r#type: kind } = self.property;
        let (by, project) = (cx.user(), cx.who.project.id);
        if cx.snapshot().has_others(cx.who.project.organization) {
            let detail = "The columns of events are those of other organizations, too.";
            return Err(Problem::permission_denied(detail));
        }
        let stored = stored_column(cx, &key);
        if stored.is_none() && cx.app.shard.event_columns().fields().len() >= COLUMNS_MAX {
            let detail = format!(
                "The events table has {COLUMNS_MAX} columns, also of promotions that have ended."
            );
            return Err(refused("key", "invalid_input", detail));
        }
        let new = NewPromotion { key, kind, stored };
        let write = |metadata: Metadata| async move { metadata.promote(by, project, new).await };
        let made = cx.write("promote-property", write).await?;
        Ok(Created(shown(&made)))
    }
}

input! {
    /// Promotes a property no more. Files keep the column.
    pub struct Delete {
        path key: String,
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = "property_definition:write";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require_level(&who.key, Level::Admin)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (by, project) = (cx.user(), cx.who.project.id);
        let write =
            |metadata: Metadata| async move { metadata.demote(by, project, &self.key).await };
        cx.write("demote-property", write).await?;
        Ok(Done)
    }
}

body! {
    /// A property of events that is to have a column.
    pub struct PromotedPropertyWrite {
        /// Its key, as events have it.
        key: PropertyKey,
        /// The type of the column, for good.
        r#type: PropertyType,
    }
}

/// The key of a property, with its white space.
#[derive(Debug)]
pub struct PropertyKey(pub String);

impl Field for PropertyKey {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        Ok(Self(fields.exact_text(name)?.unwrap_or_default()))
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 200})
    }
}

impl Field for PropertyType {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let chosen = fields.choice(name, &Self::ALL.map(Self::name))?.unwrap_or_default();
        Self::named(&chosen).ok_or_else(|| not_a_choice(name, &chosen))
    }

    fn schema() -> Value {
        json!({"type": "string", "enum": Self::ALL.map(Self::name)})
    }
}

/// The column that the events table has for a property already, also if the project did not promote it: that of another
/// project, of a promotion that has ended, or of another program.
fn stored_column(cx: &Context<Principal>, key: &str) -> Option<StoredColumn> {
    let columns = cx.app.shard.event_columns();
    let wanted = promoted_column_name(key).to_lowercase();
    let column = columns.fields().iter().find(|own| own.name().to_lowercase() == wanted)?;
    let own = column.data_type();
    let kind = PropertyType::of(own).map(|kind| kind.name().to_owned());
    let kind = kind.unwrap_or_else(|| own.to_string());
    Some(StoredColumn { name: column.name().clone(), kind })
}

fn shown(own: &PromotedProperty) -> api::PromotedProperty {
    api::PromotedProperty {
        key: own.key.clone(),
        r#type: own.kind.name().to_owned(),
        column: own.promotion().column(),
        created_at: own.created_at.to_rfc3339(),
    }
}
