//! Types for the schemas that are still written by hand in `schemas/openapi/by_hand.json`: each name here is a schema
//! there. Once a type derives its schema, it replaces the name here.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// An object with any fields.
pub type AnyObject = Map<String, Value>;

macro_rules! by_hand {
    ($($name:ident)*) => {
        /// The names.
        #[cfg(test)]
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            /// The schema of this name.
            #[derive(Debug)]
            pub struct $name;

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({"$ref": concat!("#/components/schemas/", stringify!($name))})
                }
            }
        )*
    };
}

by_hand! {
    Action Annotation Dashboard DashboardsRunInsightsRetrieveAnswer Insight InsightAnswer InsightInList ListAnswer QueryLater SqlNodeAnswer
}
