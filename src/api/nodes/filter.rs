//! Filters of properties.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::node;
use crate::node::{Content, Form, NodeError};
use crate::nodes::reasons::SHOWN;

node! {
    /// A filter of a property. Labels and the names of cohorts and groups are what a form shows of it.
    PropertyFilter {
        /// The name of the property; id of a cohort
        key: Option<String>,
        /// A value or a list of values
        value: Option<Value>,
        /// How they are compared: exact unless it is sent
        operator: Option<String>,
        /// Whose property it is: event, person, group, session, cohort, hogql and others
        kind ("type"): Option<String>,
        /// The index of the type of the group
        group_type_index: Option<usize>,
        /// Whether what matches is left out, of a cohort
        negation: bool,
    }
    ignored SHOWN ["label", "cohort_name", "group_key_names", "propertyFilterType"];

    /// A group of filters; `id` and `sort_key` are what a form knows it by.
    PropertyGroup {
        /// AND: all hold, or OR: one does
        kind ("type"): Option<String>,
        /// Filters, or groups of them
        values: Properties,
    }
    ignored SHOWN ["id", "sort_key"];
}

/// Filters of properties: a list, groups of them, or the oldest form with names of properties.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties(pub Value);

impl Content for Properties {
    const FORM: Form = Form::Filters;

    fn read(value: &Value, _: &str) -> Result<Self, NodeError> {
        Ok(Self(value.clone()))
    }

    fn write(&self) -> Option<Value> {
        self.0.write()
    }
}

impl JsonSchema for Properties {
    fn schema_name() -> Cow<'static, str> {
        "Properties".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<Vec<PropertyFilter>>();
        let group = generator.subschema_for::<PropertyGroup>();
        json_schema!({
            "description": "Filters, all of which must hold, or groups of them",
            "anyOf": [list, group, {"type": "null"}],
        })
    }
}
