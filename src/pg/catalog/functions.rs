//! Functions of PostgreSQL that statements about the catalog call. What depends on rows is looked up in the small tables of
//! the catalog; the rest has one value here.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use crate::catalog::{Catalog, live};
use crate::types::KINDS;
use crate::variables::SERVER_VERSION;
use weir_query::dialect::postgres::{ID_OF, NAME_OF, SUBSCRIPTS};

/// Names of types as SQL has them, where they differ from PostgreSQL's own.
const SQL_NAMES: [(&str, &str); 13] = [
    ("bool", "boolean"),
    ("bpchar", "character"),
    ("char", "\"char\""),
    ("float4", "real"),
    ("float8", "double precision"),
    ("int2", "smallint"),
    ("int4", "integer"),
    ("int8", "bigint"),
    ("time", "time without time zone"),
    ("timestamp", "timestamp without time zone"),
    ("timestamptz", "timestamp with time zone"),
    ("timetz", "time with time zone"),
    ("varchar", "character varying"),
];

/// Functions that are true for whatever the catalog names.
const TRUE: [&str; 22] = [
    "has_any_column_privilege",
    "has_column_privilege",
    "has_database_privilege",
    "has_foreign_data_wrapper_privilege",
    "has_function_privilege",
    "has_language_privilege",
    "has_schema_privilege",
    "has_sequence_privilege",
    "has_server_privilege",
    "has_table_privilege",
    "has_tablespace_privilege",
    "has_type_privilege",
    "pg_collation_is_visible",
    "pg_conversion_is_visible",
    "pg_function_is_visible",
    "pg_has_role",
    "pg_opclass_is_visible",
    "pg_operator_is_visible",
    "pg_opfamily_is_visible",
    "pg_statistics_obj_is_visible",
    "pg_table_is_visible",
    "pg_type_is_visible",
];

/// Functions that are false.
const FALSE: [&str; 6] = [
    "pg_has_wal_replay_pause",
    "pg_is_in_recovery",
    "pg_is_other_temp_schema",
    "pg_is_wal_replay_paused",
    "pg_relation_is_publishable",
    "row_security_active",
];

/// Functions that are NULL, a text.
const NULL: [&str; 25] = [
    "inet_client_addr",
    "inet_server_addr",
    "pg_advisory_unlock_all",
    "pg_current_xact_id_if_assigned",
    "pg_get_expr",
    "pg_get_function_arg_default",
    "pg_get_function_arguments",
    "pg_get_function_identity_arguments",
    "pg_get_function_result",
    "pg_get_function_sqlbody",
    "pg_get_functiondef",
    "pg_get_partition_constraintdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_statisticsobjdef",
    "pg_get_statisticsobjdef_columns",
    "pg_get_triggerdef",
    "pg_get_viewdef",
    "pg_last_wal_receive_lsn",
    "pg_postmaster_start_time",
    "pg_tablespace_location",
    "shobj_description",
    "to_regproc",
    "txid_current_if_assigned",
];

/// Functions that are 0.
const ZERO: [&str; 12] = [
    "inet_client_port",
    "inet_server_port",
    "pg_indexes_size",
    "pg_my_temp_schema",
    "pg_relation_filenode",
    "pg_relation_size",
    "pg_stat_get_numscans",
    "pg_table_size",
    "pg_total_relation_size",
    "pg_database_size",
    "pg_tablespace_size",
    "txid_current",
];

/// The value for a row, by the values of the arguments as texts.
type Each<T> = Box<dyn Fn(&[Option<&str>]) -> Option<T> + Send + Sync>;

/// What a function does.
enum Work {
    /// It has one value.
    Value(ScalarValue),
    /// Its value for each row, as a text, by those of its arguments.
    Text(Each<String>),
    /// The same as a number.
    Number(Each<i64>),
    /// The places of the items of a list.
    Subscripts,
    /// The length of a list; NULL if it is empty.
    Upper,
    /// The schemas of the search path, with that of the catalog if the argument is true.
    Schemas,
}

/// A function.
struct Own {
    name: &'static str,
    signature: Signature,
    work: Work,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("name", &self.name).finish_non_exhaustive()
    }
}

// One of each name is in a session.
impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Own {}

impl Hash for Own {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Own {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match &self.work {
            Work::Value(value) => value.data_type(),
            Work::Text(_) => DataType::Utf8,
            Work::Number(_) | Work::Upper => DataType::Int64,
            Work::Subscripts => DataType::new_list(DataType::Int64, true),
            Work::Schemas => DataType::new_list(DataType::Utf8, true),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        if let Work::Value(value) = &self.work {
            return Ok(ColumnarValue::Scalar(value.clone()));
        }
        let is_constant = args.args.iter().all(|own| matches!(own, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { rows };
        let arrays = args.args.iter().map(|own| own.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let array = self.work.of(&arrays, rows)?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

impl Work {
    fn of(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let texts = || {
            let texts = arguments.iter().map(|own| cast(own, &DataType::Utf8));
            texts.collect::<std::result::Result<Vec<_>, _>>()
        };
        let each = |texts: &[ArrayRef], row: usize| -> Vec<Option<String>> {
            let value = |own: &ArrayRef| {
                let own = own.as_string::<i32>();
                own.is_valid(row).then(|| own.value(row).to_owned())
            };
            texts.iter().map(value).collect()
        };
        Ok(match self {
            Self::Value(value) => value.to_array_of_size(rows)?,
            Self::Text(work) => {
                let texts = texts()?;
                let values = (0..rows).map(|row| {
                    let own = each(&texts, row);
                    work(&own.iter().map(Option::as_deref).collect::<Vec<_>>())
                });
                Arc::new(values.collect::<StringArray>())
            }
            Self::Number(work) => {
                let texts = texts()?;
                let values = (0..rows).map(|row| {
                    let own = each(&texts, row);
                    work(&own.iter().map(Option::as_deref).collect::<Vec<_>>())
                });
                Arc::new(values.collect::<Int64Array>())
            }
            Self::Schemas => {
                let has_catalog = arguments
                    .first()
                    .and_then(|own| own.as_boolean_opt())
                    .is_some_and(|own| own.iter().next().flatten().unwrap_or(false));
                let names = if has_catalog { &["pg_catalog", "public"][..] } else { &["public"] };
                let names: Vec<ScalarValue> =
                    names.iter().map(|own| ScalarValue::from(*own)).collect();
                let list = ScalarValue::List(ScalarValue::new_list(&names, &DataType::Utf8, true));
                list.to_array_of_size(rows)?
            }
            Self::Subscripts | Self::Upper => {
                let lengths = lengths(arguments.first(), rows)?;
                match self {
                    Self::Upper => Arc::new(Int64Array::from(lengths)),
                    _ => {
                        let lists = lengths
                            .into_iter()
                            .map(|length| Some((1..=length?).map(Some).collect::<Vec<_>>()));
                        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
                    }
                }
            }
        })
    }
}

/// The lengths of lists; NULL of those that are empty.
fn lengths(lists: Option<&ArrayRef>, rows: usize) -> Result<Vec<Option<i64>>> {
    let Some(lists) = lists.and_then(|own| own.as_list_opt::<i32>()) else {
        return Ok(vec![None; rows]);
    };
    let length = |row: usize| {
        let length = lists.is_valid(row).then(|| i64::from(lists.value_length(row)));
        length.filter(|length| *length > 0)
    };
    Ok((0..rows).map(length).collect())
}

fn function(name: &'static str, work: Work) -> ScalarUDF {
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    // Within one statement, for which it is made, it has one value for the same arguments.
    let signature = Signature::one_of(any, Volatility::Immutable);
    ScalarUDF::new_from_impl(Own { name, signature, work })
}

/// The functions over a catalog.
pub(super) fn all(catalog: &Arc<Catalog>) -> Vec<ScalarUDF> {
    let text = |value: &str| Work::Value(ScalarValue::Utf8(Some(value.to_owned())));
    let number = |value: i64| Work::Value(ScalarValue::Int64(Some(value)));
    let facts = &catalog.facts;
    let mut all = vec![
        function("version", text(&format!("PostgreSQL {SERVER_VERSION}"))),
        function("current_database", text(&facts.database)),
        function("current_catalog", text(&facts.database)),
        function("current_schema", text("public")),
        function("current_schemas", Work::Schemas),
        function("current_user", text(&facts.user)),
        function("current_role", text(&facts.user)),
        function("session_user", text(&facts.user)),
        function("user", text(&facts.user)),
        function("pg_get_userbyid", text(&facts.user)),
        function("pg_backend_pid", number(facts.process.into())),
        function("pg_encoding_to_char", text("UTF8")),
        function("pg_char_to_encoding", number(6)),
        function("pg_client_encoding", text("UTF8")),
        function("getdatabaseencoding", text("UTF8")),
        function("pg_size_pretty", text("0 bytes")),
        function(SUBSCRIPTS, Work::Subscripts),
        function("array_upper", Work::Upper),
        function("array_lower", number(1)),
    ];
    let truth = |value| Work::Value(ScalarValue::Boolean(Some(value)));
    all.extend(TRUE.map(|name| function(name, truth(true))));
    all.extend(FALSE.map(|name| function(name, truth(false))));
    all.extend(ZERO.map(|name| function(name, number(0))));
    let null = || Work::Value(ScalarValue::Utf8(None));
    all.extend(NULL.map(|name| function(name, null())));
    all.extend(looked_up(catalog));
    all
}

/// Functions that look something up.
fn looked_up(catalog: &Arc<Catalog>) -> Vec<ScalarUDF> {
    let on = |work: fn(&Catalog, &[Option<&str>]) -> Option<String>| {
        let catalog = Arc::clone(catalog);
        Work::Text(Box::new(move |arguments: &[Option<&str>]| work(&catalog, arguments)))
    };
    let numbered = |work: fn(&Catalog, &[Option<&str>]) -> Option<i64>| {
        let catalog = Arc::clone(catalog);
        Work::Number(Box::new(move |arguments: &[Option<&str>]| work(&catalog, arguments)))
    };
    vec![
        function("obj_description", on(|catalog, own| catalog.about(id(own, 0)?, 0))),
        function("col_description", on(|catalog, own| catalog.about(id(own, 0)?, id(own, 1)?))),
        function("format_type", on(|_, own| Some(type_name(id(own, 0)?)))),
        function("quote_ident", on(|_, own| Some(quoted(own.first().copied().flatten()?)))),
        function(
            "current_setting",
            on(|catalog, own| catalog.setting(own.first().copied().flatten()?)),
        ),
        // The session has its own way to set a setting; clients that ask by this get the value back.
        function("set_config", on(|_, own| own.get(1).copied().flatten().map(str::to_owned))),
        function("pg_get_indexdef", on(|catalog, own| catalog.index_text(id(own, 0)?, id(own, 1)))),
        function("pg_get_constraintdef", on(|catalog, own| catalog.constraint_text(id(own, 0)?))),
        function(
            "to_regclass",
            on(|catalog, own| {
                let oid = catalog.table_id(own.first().copied().flatten()?)?;
                catalog.name_of("regclass", oid)
            }),
        ),
        function("to_regtype", numbered(|_, own| type_id(own.first().copied().flatten()?))),
        function(
            ID_OF,
            numbered(|catalog, own| {
                let (kind, name) =
                    (own.first().copied().flatten()?, own.get(1).copied().flatten()?);
                catalog.id_of(kind, name)
            }),
        ),
        function(
            NAME_OF,
            on(|catalog, own| catalog.name_of(own.first().copied().flatten()?, id(own, 1)?)),
        ),
    ]
}

/// The id that an argument is.
fn id(arguments: &[Option<&str>], at: usize) -> Option<i64> {
    arguments.get(at).copied().flatten()?.parse().ok()
}

impl Catalog {
    fn setting(&self, name: &str) -> Option<String> {
        let found = self.facts.settings.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone())
    }

    /// The id of what a text names; an unknown name is NULL, which nothing equals.
    fn id_of(&self, kind: &str, name: &str) -> Option<i64> {
        if let Ok(id) = name.parse() {
            return Some(id);
        }
        match kind {
            "regclass" => self.table_id(name),
            "regtype" => type_id(name),
            "regnamespace" => {
                live::NAMESPACES.iter().find(|(_, own)| *own == name).map(|(id, _)| *id)
            }
            _ => Some(live::OWNER),
        }
    }

    /// The id of a table or of a key, by its name with or without a schema.
    fn table_id(&self, name: &str) -> Option<i64> {
        let name = name.rsplit('.').next()?.trim_matches('"');
        // Descriptions are of objects in these.
        let own = [
            ("pg_class", 1259),
            ("pg_type", 1247),
            ("pg_proc", 1255),
            ("pg_namespace", 2615),
            ("pg_constraint", 2606),
            ("pg_database", 1262),
        ];
        let of_catalog = own.iter().find(|(own, _)| *own == name).map(|(_, id)| *id);
        let of_tables = || self.relations.iter().find(|own| own.name == name).map(|own| own.oid);
        let of_keys = || {
            let key = self.relations.iter().find(|own| own.key_name() == name)?.key.as_ref()?;
            Some(key.0)
        };
        of_catalog.or_else(of_tables).or_else(of_keys)
    }

    /// The description of a table, or of one of its columns.
    fn about(&self, id: i64, column: i64) -> Option<String> {
        let own = self.relations.iter().find(|own| own.oid == id)?;
        match column {
            0 => own.about.clone(),
            _ => own.numbered().find(|(number, _)| *number == column)?.1.about.clone(),
        }
    }

    fn name_of(&self, kind: &str, id: i64) -> Option<String> {
        match kind {
            "regclass" => {
                let of_table =
                    self.relations.iter().find(|own| own.oid == id).map(|own| quoted(&own.name));
                let of_key = || {
                    let is_key = |own: &&crate::catalog::relations::Relation| {
                        own.key.as_ref().is_some_and(|(key, _)| *key == id)
                    };
                    self.relations.iter().find(is_key).map(|own| quoted(&own.key_name()))
                };
                of_table
                    .or_else(of_key)
                    .or_else(|| Some(if id == 0 { "-".to_owned() } else { id.to_string() }))
            }
            "regtype" => Some(type_name(id)),
            "regnamespace" => {
                let found = live::NAMESPACES.iter().find(|(own, _)| *own == id);
                Some(found.map_or_else(|| id.to_string(), |(_, name)| (*name).to_owned()))
            }
            _ => Some(self.facts.user.clone()),
        }
    }

    /// The definition of a key's index, or the name of one of its columns.
    fn index_text(&self, id: i64, column: Option<i64>) -> Option<String> {
        let own = self
            .relations
            .iter()
            .find(|own| own.key.as_ref().is_some_and(|(key, _)| *key == id))?;
        match column.filter(|column| *column > 0) {
            None => Some(self.index_definition(own)),
            Some(column) => {
                let at = usize::try_from(column).ok()?.checked_sub(1)?;
                Self::key_columns(own).get(at).map(|name| quoted(name))
            }
        }
    }

    fn constraint_text(&self, id: i64) -> Option<String> {
        let own = self
            .relations
            .iter()
            .find(|own| own.key.as_ref().is_some_and(|(key, _)| *key == id))?;
        Some(format!("PRIMARY KEY ({})", Self::key_columns(own).join(", ")))
    }
}

/// A name as SQL has to write it.
fn quoted(name: &str) -> String {
    let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match is_plain && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// The name of a type in SQL, by its id.
pub(super) fn type_name(oid: i64) -> String {
    let (name, suffix) = match internal_name(oid) {
        name if name.starts_with('_') => (name.trim_start_matches('_').to_owned(), "[]"),
        name => (name, ""),
    };
    let sql = SQL_NAMES.iter().find(|(own, _)| *own == name).map_or(name.as_str(), |(_, sql)| sql);
    format!("{sql}{suffix}")
}

/// PostgreSQL's own name of a type.
pub(super) fn internal_name(oid: i64) -> String {
    let oid_of = |own: u32| i64::from(own) == oid;
    let found = KINDS.iter().find_map(|(_, name, own, list)| match () {
        () if oid_of(*own) => Some((*name).to_owned()),
        () if oid_of(*list) => Some(format!("_{name}")),
        () => None,
    });
    let other = || match oid {
        24 => "regproc",
        705 => "unknown",
        1042 => "bpchar",
        1043 => "varchar",
        2950 => "uuid",
        3802 => "jsonb",
        _ => "???",
    };
    found.unwrap_or_else(|| other().to_owned())
}

/// The id of a type, by either of its names.
fn type_id(name: &str) -> Option<i64> {
    let name = name.rsplit('.').next()?.trim().trim_matches('"').to_lowercase();
    let (name, is_list) = name.strip_suffix("[]").map_or((name.as_str(), false), |own| (own, true));
    let own = SQL_NAMES.iter().find(|(_, sql)| *sql == name).map_or(name, |(own, _)| own);
    let found = KINDS.iter().find(|(_, known, ..)| *known == own);
    found.map(|(_, _, oid, list)| i64::from(if is_list { *list } else { *oid }))
}

#[cfg(test)]
mod tests {
    use super::{internal_name, quoted, type_id, type_name};

    #[test]
    fn types_and_names_are_those_of_postgresql() {
        for (oid, internal, sql) in [
            (25, "text", "text"),
            (20, "int8", "bigint"),
            (701, "float8", "double precision"),
            (1184, "timestamptz", "timestamp with time zone"),
            (1009, "_text", "text[]"),
            (1016, "_int8", "bigint[]"),
            (114, "json", "json"),
            (99_999, "???", "???"),
        ] {
            assert_eq!((internal_name(oid).as_str(), type_name(oid).as_str()), (internal, sql));
            let id = (oid < 99_999).then_some(oid);
            assert_eq!(
                (type_id(internal.trim_start_matches('_')).is_some(), type_id(sql)),
                (id.is_some(), id),
                "{sql}"
            );
        }
        assert_eq!(type_id("hstore"), None);
        assert_eq!(
            ["events", "p_$browser", "Plan", "1a", ""].map(quoted),
            ["events", "\"p_$browser\"", "\"Plan\"", "\"1a\"", "\"\""]
        );
    }
}
