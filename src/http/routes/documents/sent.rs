//! Bodies that create a document, [`New`], or change one, [`Change`]: the fields of its kind, and further fields that
//! are not stored.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::openapi::{Body, Shape};
use crate::operation::input::InBody;
use crate::response::Problem;
use crate::routes::documents::form::{properties, read};
use crate::routes::documents::kinds::DocumentKind;
use weir_metadata::documents::Kind;

/// Fields that a copy of a dashboard takes from its source, unless they are sent.
pub(super) const COPIED: [&str; 4] =
    ["filters", "variables", "breakdown_colors", "data_color_theme_id"];

/// The body that creates a document.
#[derive(Debug)]
pub struct New<K> {
    /// All its fields.
    pub(super) fields: Map<String, Value>,
    /// The dashboard that is copied.
    pub(super) copied: Option<Copied>,
    kind: PhantomData<K>,
}

impl<K: DocumentKind> New<K> {
    /// Reads a JSON object of fields.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be read.
    pub(in crate::routes) fn of(fields: &Value) -> Result<Self, Problem> {
        Self::take(&mut Fields::parse("application/json", fields.to_string().as_bytes())?)
    }
}

impl<K: DocumentKind> InBody for New<K> {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<Written<K>>(false));
    }

    fn take(sent: &mut Fields) -> Result<Self, Problem> {
        let copied = match K::KIND {
            Kind::Dashboard => Copied::take(sent)?,
            _ => None,
        };
        Ok(Self { fields: read(sent, K::KIND, true)?, copied, kind: PhantomData })
    }
}

/// The source of a copied dashboard.
#[derive(Debug)]
pub(super) struct Copied {
    /// Its id.
    pub(super) id: i64,
    /// Whether its insights are copied, too.
    pub(super) is_deep: bool,
    /// The fields of [`COPIED`] that were sent for the copy.
    pub(super) sent: Vec<&'static str>,
}

impl Copied {
    fn take(sent: &mut Fields) -> Result<Option<Self>, Problem> {
        let is_deep = sent.boolean("duplicate_tiles")?.unwrap_or(false);
        let Some(id) = sent.nullable_integer("use_dashboard")?.flatten() else { return Ok(None) };
        let sent = COPIED.into_iter().filter(|name| sent.peek(name).is_some()).collect();
        Ok(Some(Self { id, is_deep, sent }))
    }
}

/// The body that changes a document.
#[derive(Debug)]
pub struct Change<K> {
    /// The changed fields.
    pub(super) fields: Map<String, Value>,
    /// Whether the document is deleted; restored by false.
    pub(super) deleted: Option<bool>,
    /// Whether the deletion of a dashboard also deletes its insights that are on no other dashboard.
    pub(super) is_with_insights: bool,
    kind: PhantomData<K>,
}

impl<K: DocumentKind> Change<K> {
    /// Reads a JSON object of the changed fields.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be read.
    pub(in crate::routes) fn of(fields: &Value) -> Result<Self, Problem> {
        Self::take(&mut Fields::parse("application/json", fields.to_string().as_bytes())?)
    }
}

impl<K: DocumentKind> InBody for Change<K> {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<Written<K>>(false));
    }

    fn take(sent: &mut Fields) -> Result<Self, Problem> {
        let deleted = sent.boolean("deleted")?;
        let is_with_insights =
            K::KIND == Kind::Dashboard && sent.boolean("delete_insights")?.unwrap_or(false);
        let fields = read(sent, K::KIND, false)?;
        Ok(Self { fields, deleted, is_with_insights, kind: PhantomData })
    }
}

/// The schema of the body for a kind.
struct Written<K>(PhantomData<K>);

impl<K: DocumentKind> JsonSchema for Written<K> {
    fn schema_name() -> Cow<'static, str> {
        K::WRITTEN.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = properties(K::KIND, generator);
        let of_dashboards = OF_DASHBOARDS.iter().filter(|_| K::KIND == Kind::Dashboard);
        for (name, kind, about) in [DELETED].iter().chain(of_dashboards) {
            properties.insert(
                (*name).to_owned(),
                json!({"type": one_or_all(kind), "description": about}),
            );
        }
        let properties = Value::Object(properties);
        Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), properties),
        ])
        .into()
    }
}

/// Types of a field in a schema.
fn one_or_all(types: &[&str]) -> Value {
    match types {
        [one] => json!(one),
        all => json!(all),
    }
}

/// A field that is not stored: its name, its types, its description.
type Beside = (&'static str, &'static [&'static str], &'static str);

const DELETED: Beside = ("deleted", &["boolean"], "Only of one that is there");

const OF_DASHBOARDS: [Beside; 3] = [
    (
        "use_dashboard",
        &["integer", "null"],
        "Only of a new one: the dashboard that it is a copy of",
    ),
    ("duplicate_tiles", &["boolean"], "Whether the copy has copies of the insights"),
    (
        "delete_insights",
        &["boolean"],
        "With deleted: deletes the insights that are on no other dashboard, too",
    ),
];
