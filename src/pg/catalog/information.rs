//! The tables of `information_schema`.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::error::Result;

use crate::catalog::relations::{Column, Relation};
use crate::catalog::table::{Cell, Row, table};
use crate::catalog::{Catalog, functions, live};
use crate::types::Kind;

/// The tables, whether they have rows or not.
pub(super) const TABLES: [&str; 22] = [
    "applicable_roles",
    "character_sets",
    "check_constraints",
    "column_privileges",
    "columns",
    "constraint_column_usage",
    "domains",
    "element_types",
    "enabled_roles",
    "key_column_usage",
    "parameters",
    "referential_constraints",
    "role_table_grants",
    "routines",
    "schemata",
    "sequences",
    "table_constraints",
    "table_privileges",
    "tables",
    "triggers",
    "user_defined_types",
    "views",
];

impl Catalog {
    /// A table of `information_schema`; `None` if there is none of this name.
    pub(super) fn information(&self, name: &str) -> Option<Result<Arc<dyn TableProvider>>> {
        let database = || Cell::from(self.facts.database.as_str());
        let user = || Cell::from(self.facts.user.as_str());
        let each =
            |row: &dyn Fn(&Relation) -> Row| self.relations.iter().map(row).collect::<Vec<_>>();
        Some(match name {
            "schemata" => {
                let row = |(_, name): &(i64, &str)| -> Row {
                    vec![
                        ("catalog_name", database()),
                        ("schema_name", (*name).into()),
                        ("schema_owner", user()),
                    ]
                };
                let rows: Vec<Row> = live::NAMESPACES.iter().map(row).collect();
                let columns = "catalog_name:t schema_name:t schema_owner:t default_character_set_catalog:t \
                     default_character_set_schema:t default_character_set_name:t sql_path:t";
                table(columns, &rows)
            }
            "tables" => {
                let rows = each(&|own| {
                    vec![
                        ("table_catalog", database()),
                        ("table_schema", "public".into()),
                        ("table_name", own.name.as_str().into()),
                        ("table_type", "BASE TABLE".into()),
                        ("is_insertable_into", "NO".into()),
                        ("is_typed", "NO".into()),
                    ]
                });
                let columns = "table_catalog:t table_schema:t table_name:t table_type:t self_referencing_column_name:t \
                     reference_generation:t user_defined_type_catalog:t user_defined_type_schema:t \
                     user_defined_type_name:t is_insertable_into:t is_typed:t commit_action:t";
                table(columns, &rows)
            }
            "columns" => {
                let rows = self.relations.iter().flat_map(|own| {
                    own.numbered().map(|(number, column)| self.column(own, number, column))
                });
                table(COLUMNS, &rows.collect::<Vec<_>>())
            }
            "table_constraints" | "key_column_usage" | "constraint_column_usage" => self.keys(name),
            "table_privileges" | "role_table_grants" => {
                let rows = each(&|own| {
                    vec![
                        ("grantor", user()),
                        ("grantee", user()),
                        ("table_catalog", database()),
                        ("table_schema", "public".into()),
                        ("table_name", own.name.as_str().into()),
                        ("privilege_type", "SELECT".into()),
                        ("is_grantable", "NO".into()),
                        ("with_hierarchy", "NO".into()),
                    ]
                });
                let columns = "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t \
                     is_grantable:t with_hierarchy:t";
                table(columns, &rows)
            }
            "enabled_roles" => table("role_name:t", &[vec![("role_name", user())]]),
            other => return empty(other).map(|columns| table(columns, &[])),
        })
    }

    /// The tables about keys.
    fn keys(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        let database = || Cell::from(self.facts.database.as_str());
        if name == "table_constraints" {
            let rows = self.keyed().map(|own| {
                vec![
                    ("constraint_catalog", database()),
                    ("constraint_schema", "public".into()),
                    ("constraint_name", own.key_name().into()),
                    ("table_catalog", database()),
                    ("table_schema", "public".into()),
                    ("table_name", own.name.as_str().into()),
                    ("constraint_type", "PRIMARY KEY".into()),
                    ("is_deferrable", "NO".into()),
                    ("initially_deferred", "NO".into()),
                    ("enforced", "YES".into()),
                ]
            });
            let columns = "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t \
                     table_name:t constraint_type:t is_deferrable:t initially_deferred:t enforced:t nulls_distinct:t";
            return table(columns, &rows.collect::<Vec<Row>>());
        }
        let rows = self.keyed().flat_map(|own| {
            let named = (1_i64..).zip(Self::key_columns(own));
            named
                .map(|(place, column)| -> Row {
                    vec![
                        ("constraint_catalog", database()),
                        ("constraint_schema", "public".into()),
                        ("constraint_name", own.key_name().into()),
                        ("table_catalog", database()),
                        ("table_schema", "public".into()),
                        ("table_name", own.name.as_str().into()),
                        ("column_name", column.into()),
                        ("ordinal_position", place.into()),
                    ]
                })
                .collect::<Vec<_>>()
        });
        let columns = "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t \
                     table_name:t column_name:t ordinal_position:i position_in_unique_constraint:n";
        table(columns, &rows.collect::<Vec<_>>())
    }

    fn keyed(&self) -> impl Iterator<Item = &Relation> {
        self.relations.iter().filter(|own| own.key.is_some())
    }

    fn column(&self, own: &Relation, number: i64, column: &Column) -> Row {
        let kind = column.kind;
        let name = functions::type_name(i64::from(kind.oid()));
        let is_list = matches!(kind, Kind::List(_));
        let (precision, radix, scale) = match kind {
            Kind::Int2 => (16, 2, 0),
            Kind::Int4 => (32, 2, 0),
            Kind::Int8 => (64, 2, 0),
            Kind::Numeric(digits, scale) => (i64::from(digits), 10, i64::from(scale)),
            _ => (0, 0, 0),
        };
        let number_of = |own: i64| if precision > 0 { own.into() } else { Cell::Null };
        let is_time =
            matches!(kind, Kind::Time | Kind::Timestamp | Kind::Timestamptz | Kind::Interval);
        let udt = functions::internal_name(i64::from(kind.oid()));
        vec![
            ("table_catalog", self.facts.database.as_str().into()),
            ("table_schema", "public".into()),
            ("table_name", own.name.as_str().into()),
            ("column_name", column.name.as_str().into()),
            ("ordinal_position", number.into()),
            ("is_nullable", if column.is_nullable { "YES" } else { "NO" }.into()),
            ("data_type", if is_list { "ARRAY".to_owned() } else { name }.into()),
            ("numeric_precision", number_of(precision)),
            ("numeric_precision_radix", number_of(radix)),
            ("numeric_scale", number_of(scale)),
            ("datetime_precision", if is_time { 6.into() } else { Cell::Null }),
            ("udt_catalog", self.facts.database.as_str().into()),
            ("udt_schema", "pg_catalog".into()),
            ("udt_name", udt.into()),
            ("dtd_identifier", number.to_string().into()),
            ("is_self_referencing", "NO".into()),
            ("is_identity", "NO".into()),
            ("identity_cycle", "NO".into()),
            ("is_generated", "NEVER".into()),
            ("is_updatable", "NO".into()),
        ]
    }
}

/// The columns of the tables that have no rows.
fn empty(name: &str) -> Option<&'static str> {
    Some(match name {
        "applicable_roles" => "grantee:t role_name:t is_grantable:t",
        "character_sets" => "character_set_catalog:t character_set_schema:t character_set_name:t",
        "check_constraints" => {
            "constraint_catalog:t constraint_schema:t constraint_name:t check_clause:t"
        }
        "column_privileges" => {
            "grantor:t grantee:t table_catalog:t table_schema:t table_name:t column_name:t privilege_type:t is_grantable:t"
        }
        "domains" => "domain_catalog:t domain_schema:t domain_name:t data_type:t domain_default:t",
        "element_types" => {
            "object_catalog:t object_schema:t object_name:t object_type:t collection_type_identifier:t data_type:t"
        }
        "parameters" => {
            "specific_catalog:t specific_schema:t specific_name:t ordinal_position:i parameter_mode:t parameter_name:t data_type:t"
        }
        "referential_constraints" => {
            "constraint_catalog:t constraint_schema:t constraint_name:t unique_constraint_catalog:t \
             unique_constraint_schema:t unique_constraint_name:t match_option:t update_rule:t delete_rule:t"
        }
        "routines" => {
            "specific_catalog:t specific_schema:t specific_name:t routine_catalog:t routine_schema:t routine_name:t \
             routine_type:t data_type:t type_udt_name:t routine_definition:t external_language:t"
        }
        "sequences" => {
            "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t start_value:t"
        }
        "triggers" => {
            "trigger_catalog:t trigger_schema:t trigger_name:t event_manipulation:t event_object_schema:t \
             event_object_table:t action_statement:t action_timing:t"
        }
        "user_defined_types" => {
            "user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t user_defined_type_category:t"
        }
        "views" => {
            "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t is_insertable_into:t"
        }
        _ => return None,
    })
}

const COLUMNS: &str = "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:i column_default:t \
    is_nullable:t data_type:t character_maximum_length:n character_octet_length:n numeric_precision:n \
    numeric_precision_radix:n numeric_scale:n datetime_precision:n interval_type:t interval_precision:n \
    character_set_catalog:t character_set_schema:t character_set_name:t collation_catalog:t collation_schema:t \
    collation_name:t domain_catalog:t domain_schema:t domain_name:t udt_catalog:t udt_schema:t udt_name:t \
    scope_catalog:t scope_schema:t scope_name:t maximum_cardinality:n dtd_identifier:t is_self_referencing:t \
    is_identity:t identity_generation:t identity_start:t identity_increment:t identity_maximum:t identity_minimum:t \
    identity_cycle:t is_generated:t generation_expression:t is_updatable:t";
