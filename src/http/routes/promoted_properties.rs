//! Properties of events and of persons that a project promotes to columns of their table: list, promote, stop.

use serde_json::{Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice, refused};
use crate::openapi::{Parameter, Shape};
use crate::operation::input::{InQuery, input};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::request::Request;
use crate::response::Problem;
use weir_api::definitions as api;
use weir_event::promotion::{COLUMNS_MAX, PromotedTable};
use weir_event::schema::{PropertyType, promoted_column_name};
use weir_metadata::Metadata;
use weir_metadata::members::Level;
use weir_metadata::promotions::{NewPromotion, PromotedProperty, StoredColumn};

input! {
    /// Properties that the project has promoted, by table and key.
    pub struct List {
        /// Only those of this table
        query table: Option<PromotedTable>,
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Listed<api::PromotedProperty>;
    const SCOPE: &'static str = "property_definition:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        let all = snapshot.promoted_properties(cx.who.project.id).iter();
        let all: Vec<_> =
            all.filter(|own| self.table.is_none_or(|table| own.table == table)).collect();
        Ok(Listed::part_of(self.page, &all, |own| shown(own)))
    }
}

input! {
    /// Promotes a property to a column, which new files have. Nothing changes if it has one of this type already.
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
        let PromotedPropertyWrite { key: PropertyKey(key), r#type: kind, table } = self.property;
        let table = table.unwrap_or_default();
        let (by, project) = (cx.user(), cx.who.project.id);
        if cx.snapshot().has_others(cx.who.project.organization) {
            let name = table.name();
            let detail = format!("The columns of {name} are those of other organizations, too.");
            return Err(Problem::permission_denied(detail));
        }
        let (stored, count) = stored_column(cx, table, &key).await?;
        if stored.is_none() && count >= COLUMNS_MAX {
            let detail = format!(
                "The {} table has {COLUMNS_MAX} columns, also of promotions that have ended.",
                table.name()
            );
            return Err(refused("key", "invalid_input", detail));
        }
        let new = NewPromotion { table, key, kind, stored };
        let write = |metadata: Metadata| async move { metadata.promote(by, project, new).await };
        let made = cx.write("promote-property", write).await?;
        Ok(Created(shown(&made)))
    }
}

input! {
    /// Promotes a property no more. Files keep the column.
    pub struct Delete {
        path key: String,
        /// The table that has the column; by default, that of events
        query table: Option<PromotedTable>,
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
        let table = self.table.unwrap_or_default();
        let write = |metadata: Metadata| async move {
            metadata.demote(by, project, table, &self.key).await
        };
        cx.write("demote-property", write).await?;
        Ok(Done)
    }
}

body! {
    /// A property that is to have a column.
    pub struct PromotedPropertyWrite {
        /// Its key, as events or persons have it.
        key: PropertyKey,
        /// The type of the column, for good.
        r#type: PropertyType,
        /// The table that is to have the column; by default, that of events.
        table: Option<PromotedTable>,
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

impl Field for Option<PromotedTable> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let chosen = fields.choice(name, &PromotedTable::NAMES)?;
        Ok(chosen.and_then(|chosen| PromotedTable::named(&chosen)))
    }

    fn schema() -> Value {
        json!({"type": "string", "enum": PromotedTable::NAMES})
    }
}

impl InQuery for Option<PromotedTable> {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::one_of(name, &PromotedTable::NAMES).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let Some(given) = request.query(name) else { return Ok(None) };
        PromotedTable::named(&given).map(Some).ok_or_else(|| not_a_choice(name, &given))
    }
}

/// The column that a table has for a property already, also if the project did not promote it: that of another project,
/// of a promotion that has ended, or of another program. And how many columns it has.
async fn stored_column(
    cx: &Context<Principal>,
    table: PromotedTable,
    key: &str,
) -> Result<(Option<StoredColumn>, usize), Problem> {
    let columns = cx.app.shard.columns(table).await;
    let columns = columns.map_err(|error| Problem::of(error.kind(), &error))?;
    let fields = columns.fields();
    let wanted = promoted_column_name(key).to_lowercase();
    let found = fields.iter().find(|own| own.name().to_lowercase() == wanted);
    let stored = found.map(|column| {
        let own = column.data_type();
        let kind = PropertyType::of(own).map(|kind| kind.name().to_owned());
        let kind = kind.unwrap_or_else(|| own.to_string());
        StoredColumn { name: column.name().clone(), kind }
    });
    Ok((stored, fields.len()))
}

fn shown(own: &PromotedProperty) -> api::PromotedProperty {
    api::PromotedProperty {
        key: own.key.clone(),
        r#type: own.kind.name().to_owned(),
        column: own.promotion().column(),
        table: own.table.name().to_owned(),
        created_at: own.created_at.to_rfc3339(),
    }
}
