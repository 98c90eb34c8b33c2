//! Plain fields of a flag: those by which no SQL selects or sorts. A row has them together, as a JSON object
//! in the column `body`, so that a new one needs no migration: a field that a row lacks has its default, that
//! of its type.
//!
//! The call of `plain_fields!` below is the list of them. The store, patches, the comparison of versions, the
//! activity log and responses walk it; only the parsing of requests (`http::routes::feature_flags`) names
//! each field again, because its rules and errors differ by field.

use serde_json::{Map, Value};

use crate::entity::stored;
use crate::tags::normal_tags;
use weir_event::json;
use weir_event::json::FromJson;

/// Declares the fields, and what walks them.
macro_rules! plain_fields {
    ($($(#[doc = $about:literal])+ $name:ident: $kind:ty,)+) => {
        /// The plain fields of a stored flag.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct PlainFields {
            $($(#[doc = $about])+ pub $name: $kind,)+
            /// Fields that a newer program stored; kept as they are.
            pub unknown: Map<String, Value>,
        }

        impl PlainFields {
            /// The known fields by name, in the order of their declaration.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, Value)> {
                [$((stringify!($name), self.$name.clone().into()),)+].into_iter()
            }

            fn apply(&mut self, patch: PlainPatch) {
                $(if let Some(value) = patch.$name { self.$name = value; })+
            }
        }

        /// What is stored in `body`.
        impl FromJson for PlainFields {
            fn from_json(value: Value) -> Option<Self> {
                let mut fields = Self::default();
                for (name, value) in Map::from_json(value)? {
                    match name.as_str() {
                        $(stringify!($name) => fields.$name = FromJson::from_json(value)?,)+
                        _ => drop(fields.unknown.insert(name, value)),
                    }
                }
                Some(fields)
            }
        }

        /// Changes to the plain fields; `None` leaves a field unchanged.
        #[derive(Clone, Debug, Default)]
        pub struct PlainPatch {
            $($(#[doc = $about])+ pub $name: Option<$kind>,)+
        }

        /// Sets every known field.
        impl From<PlainFields> for PlainPatch {
            fn from(fields: PlainFields) -> Self {
                Self { $($name: Some(fields.$name),)+ }
            }
        }

        impl PlainPatch {
            /// Leaves every field unchanged for which `is_kept` returns false.
            pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&'static str, Value) -> bool) {
                $(self.$name.take_if(|value| !is_kept(stringify!($name), value.clone().into()));)+
            }
        }
    };
}

plain_fields! {
    /// Whether a person keeps its value across a login.
    ensure_experience_continuity: bool,
    /// Kept for the client, without effect.
    rollback_conditions: Option<Value>,
    /// Whether it was rolled back automatically; activating the flag sets this to false.
    performed_rollback: Option<bool>,
    /// Labels: trimmed, lower case, each once. Those of a patch replace the stored ones, and need not be
    /// normalised.
    tags: Vec<String>,
    /// Dashboards about it besides the one of its usage. Those of a patch are added; none is ever removed.
    analytics_dashboards: Vec<i64>,
    /// Whether SDKs send additional events about it.
    has_enriched_analytics: Option<bool>,
    /// Whether lists omit it; only a flag that is not active can be archived.
    archived: bool,
    /// The identifier that is hashed: `distinct_id` or `device_id`; `None` for the first.
    bucketing_identifier: Option<String>,
    /// The runtimes that evaluate it: `server`, `client` or `all`; `None` for the last.
    evaluation_runtime: Option<String>,
    /// The contexts that evaluate it; empty for all.
    evaluation_contexts: Vec<String>,
    /// Whether it is read only for its payload.
    is_remote_configuration: bool,
}

stored! {
    PlainFields as String: |fields| fields.to_json(),
        |text| json::restore(text.as_bytes()).map_err(|error| error.to_string());
}

impl PlainFields {
    /// The fields after `patch`, which also sets the flag to `active` if that is given.
    pub(super) fn patched(&self, mut patch: PlainPatch, active: Option<bool>) -> Self {
        let mut fields = self.clone();
        patch.tags = patch.tags.map(normal_tags);
        for dashboard in patch.analytics_dashboards.take().unwrap_or_default() {
            if !fields.analytics_dashboards.contains(&dashboard) {
                fields.analytics_dashboards.push(dashboard);
            }
        }
        if active == Some(true) {
            patch.performed_rollback = Some(Some(false));
        }
        fields.apply(patch);
        fields
    }

    /// The JSON text of `body`. Without defaults, which would be most of it.
    fn to_json(&self) -> String {
        let defaults = Self::default();
        let both = self.entries().zip(defaults.entries());
        let stored = both.filter(|(field, default)| field != default);
        let mut body = self.unknown.clone();
        body.extend(stored.map(|((name, value), _)| (name.to_owned(), value)));
        Value::Object(body).to_string()
    }
}
