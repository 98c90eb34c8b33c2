//! The tables of `pg_catalog` that have rows.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::error::Result;

use crate::catalog::Catalog;
use crate::catalog::table::{Cell, Row, table};
use crate::types::{KINDS, Kind};

/// Ids of PostgreSQL's own objects.
pub(super) const NAMESPACE_CATALOG: i64 = 11;
pub(super) const NAMESPACE_PUBLIC: i64 = 2200;
pub(super) const NAMESPACE_INFORMATION: i64 = 13_000;
pub(super) const OWNER: i64 = 10;
pub(super) const DATABASE: i64 = 5;
/// The access methods `heap` and `btree`.
const HEAP: i64 = 2;
const BTREE: i64 = 403;
/// The catalog tables that descriptions are of.
const CLASS_RELATIONS: i64 = 1259;
/// The collations `default` and `C`.
const COLLATION_DEFAULT: i64 = 100;
const COLLATION_C: i64 = 950;

/// The schemas with their ids.
pub(super) const NAMESPACES: [(i64, &str); 3] = [
    (NAMESPACE_CATALOG, "pg_catalog"),
    (NAMESPACE_PUBLIC, "public"),
    (NAMESPACE_INFORMATION, "information_schema"),
];

/// Types of PostgreSQL that columns do not have, but clients look up: name, id, category, length, id of its list.
const OTHER_TYPES: [(&str, i64, &str, i64, i64); 10] = [
    ("regproc", 24, "N", 4, 1008),
    ("xid", 28, "U", 4, 1011),
    ("bpchar", 1042, "S", -1, 1014),
    ("varchar", 1043, "S", -1, 1015),
    ("timetz", 1266, "D", 12, 1270),
    ("uuid", 2950, "U", 16, 2951),
    ("jsonb", 3802, "U", -1, 3807),
    ("unknown", 705, "X", -2, 0),
    ("void", 2278, "P", 4, 0),
    ("record", 2249, "P", -1, 2287),
];

impl Catalog {
    /// A table of `pg_catalog` with rows; `None` if there is none of this name.
    pub(super) fn live(&self, name: &str) -> Option<Result<Arc<dyn TableProvider>>> {
        Some(match name {
            "pg_namespace" => table("oid:l nspname:t nspowner:l nspacl:T", &namespaces()),
            "pg_class" => table(CLASS, &self.classes()),
            "pg_attribute" => table(ATTRIBUTE, &self.attributes()),
            "pg_type" => table(TYPE, &types()),
            "pg_index" => table(INDEX, &self.indexes()),
            "pg_constraint" => table(CONSTRAINT, &self.constraints()),
            "pg_description" => {
                table("objoid:l classoid:l objsubid:i description:t", &self.descriptions())
            }
            "pg_database" => table(DATABASES, &self.databases()),
            "pg_roles" | "pg_user" | "pg_authid" => table(ROLES, &self.roles()),
            "pg_tables" => table(
                "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b hastriggers:b rowsecurity:b",
                &self.tables(),
            ),
            "pg_indexes" => table(
                "schemaname:t tablename:t indexname:t tablespace:t indexdef:t",
                &self.index_texts(),
            ),
            "pg_settings" => table(SETTINGS, &self.settings()),
            "pg_am" => table("oid:l amname:t amhandler:t amtype:t", &access_methods()),
            "pg_collation" => table(COLLATION, &collations()),
            "pg_stat_user_tables" | "pg_stat_all_tables" => table(
                "relid:l schemaname:t relname:t seq_scan:l idx_scan:l n_live_tup:l n_dead_tup:l n_tup_ins:l \
                 n_tup_upd:l n_tup_del:l last_vacuum:t last_analyze:t",
                &self.statistics(),
            ),
            "pg_get_keywords" => table("word:t catcode:t catdesc:t", &[]),
            _ => return None,
        })
    }

    fn classes(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for own in &self.relations {
            rows.push(vec![
                ("oid", own.oid.into()),
                ("relname", own.name.as_str().into()),
                ("relnamespace", NAMESPACE_PUBLIC.into()),
                ("reltype", 0.into()),
                ("relowner", OWNER.into()),
                ("relam", HEAP.into()),
                ("relfilenode", own.oid.into()),
                ("reltuples", (-1).into()),
                ("relhasindex", own.key.is_some().into()),
                ("relpersistence", "p".into()),
                ("relkind", "r".into()),
                ("relnatts", length(own.columns.len())),
                ("relispopulated", true.into()),
                ("relreplident", "d".into()),
            ]);
            if let Some((oid, columns)) = &own.key {
                rows.push(vec![
                    ("oid", (*oid).into()),
                    ("relname", own.key_name().into()),
                    ("relnamespace", NAMESPACE_PUBLIC.into()),
                    ("relowner", OWNER.into()),
                    ("relam", BTREE.into()),
                    ("relfilenode", (*oid).into()),
                    ("relpersistence", "p".into()),
                    ("relkind", "i".into()),
                    ("relnatts", length(columns.len())),
                    ("relispopulated", true.into()),
                    ("relreplident", "n".into()),
                ]);
            }
        }
        rows
    }

    fn attributes(&self) -> Vec<Row> {
        let of_table = |(oid, number, own): (i64, i64, &crate::catalog::relations::Column)| -> Row {
            let is_text = matches!(own.kind, Kind::Text | Kind::Name);
            vec![
                ("attrelid", oid.into()),
                ("attname", own.name.as_str().into()),
                ("atttypid", i64::from(own.kind.oid()).into()),
                ("attstattarget", (-1).into()),
                ("attlen", i64::from(own.kind.size()).into()),
                ("attnum", number.into()),
                ("attcacheoff", (-1).into()),
                ("atttypmod", (-1).into()),
                ("attndims", i64::from(matches!(own.kind, Kind::List(_))).into()),
                ("attalign", "i".into()),
                ("attstorage", "x".into()),
                ("attcompression", "".into()),
                ("attnotnull", (!own.is_nullable).into()),
                ("attidentity", "".into()),
                ("attgenerated", "".into()),
                ("attislocal", true.into()),
                ("attcollation", if is_text { COLLATION_DEFAULT } else { 0 }.into()),
            ]
        };
        let mut rows = Vec::new();
        for own in &self.relations {
            rows.extend(own.numbered().map(|(number, column)| of_table((own.oid, number, column))));
            if let Some((oid, key)) = &own.key {
                let columns = key.iter().filter_map(|at| {
                    let at = usize::try_from(*at).ok()?.checked_sub(1)?;
                    own.columns.get(at)
                });
                rows.extend(
                    (1..).zip(columns).map(|(number, column)| of_table((*oid, number, column))),
                );
            }
        }
        rows
    }

    fn indexes(&self) -> Vec<Row> {
        let keyed = self.relations.iter().filter_map(|own| Some((own, own.key.as_ref()?)));
        let row =
            |(own, (oid, key)): (&crate::catalog::relations::Relation, &(i64, Vec<i64>))| -> Row {
                vec![
                    ("indexrelid", (*oid).into()),
                    ("indrelid", own.oid.into()),
                    ("indnatts", length(key.len())),
                    ("indnkeyatts", length(key.len())),
                    ("indisunique", true.into()),
                    ("indisprimary", true.into()),
                    ("indimmediate", true.into()),
                    ("indisvalid", true.into()),
                    ("indisready", true.into()),
                    ("indislive", true.into()),
                    ("indkey", key.clone().into()),
                    ("indoption", vec![0; key.len()].into()),
                    ("indclass", vec![0; key.len()].into()),
                    ("indcollation", vec![0; key.len()].into()),
                ]
            };
        keyed.map(row).collect()
    }

    fn constraints(&self) -> Vec<Row> {
        let keyed = self.relations.iter().filter_map(|own| Some((own, own.key.as_ref()?)));
        let row =
            |(own, (oid, key)): (&crate::catalog::relations::Relation, &(i64, Vec<i64>))| -> Row {
                vec![
                    // Ids of a table of its own: they may be those of keys.
                    ("oid", (*oid).into()),
                    ("conname", own.key_name().into()),
                    ("connamespace", NAMESPACE_PUBLIC.into()),
                    ("contype", "p".into()),
                    ("convalidated", true.into()),
                    ("conrelid", own.oid.into()),
                    ("conindid", (*oid).into()),
                    ("confupdtype", " ".into()),
                    ("confdeltype", " ".into()),
                    ("confmatchtype", " ".into()),
                    ("conislocal", true.into()),
                    ("connoinherit", true.into()),
                    ("conkey", key.clone().into()),
                ]
            };
        keyed.map(row).collect()
    }

    fn descriptions(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut add = |oid: i64, number: i64, about: &Option<String>| {
            if let Some(about) = about {
                rows.push(vec![
                    ("objoid", oid.into()),
                    ("classoid", CLASS_RELATIONS.into()),
                    ("objsubid", number.into()),
                    ("description", about.as_str().into()),
                ]);
            }
        };
        for own in &self.relations {
            add(own.oid, 0, &own.about);
            own.numbered().for_each(|(number, column)| add(own.oid, number, &column.about));
        }
        rows
    }

    fn databases(&self) -> Vec<Row> {
        vec![vec![
            ("oid", DATABASE.into()),
            ("datname", self.facts.database.as_str().into()),
            ("datdba", OWNER.into()),
            ("encoding", 6.into()),
            ("datlocprovider", "c".into()),
            ("datallowconn", true.into()),
            ("datconnlimit", (-1).into()),
            ("dattablespace", 1663.into()),
            ("datcollate", "C".into()),
            ("datctype", "C".into()),
        ]]
    }

    fn roles(&self) -> Vec<Row> {
        vec![vec![
            ("oid", OWNER.into()),
            ("rolname", self.facts.user.as_str().into()),
            ("usename", self.facts.user.as_str().into()),
            ("usesysid", OWNER.into()),
            ("rolinherit", true.into()),
            ("rolcanlogin", true.into()),
            ("rolconnlimit", (-1).into()),
        ]]
    }

    fn tables(&self) -> Vec<Row> {
        let row = |own: &crate::catalog::relations::Relation| -> Row {
            vec![
                ("schemaname", "public".into()),
                ("tablename", own.name.as_str().into()),
                ("tableowner", self.facts.user.as_str().into()),
                ("hasindexes", own.key.is_some().into()),
            ]
        };
        self.relations.iter().map(row).collect()
    }

    fn index_texts(&self) -> Vec<Row> {
        let keyed = self.relations.iter().filter(|own| own.key.is_some());
        let row = |own: &crate::catalog::relations::Relation| -> Row {
            vec![
                ("schemaname", "public".into()),
                ("tablename", own.name.as_str().into()),
                ("indexname", own.key_name().into()),
                ("indexdef", self.index_definition(own).into()),
            ]
        };
        keyed.map(row).collect()
    }

    fn settings(&self) -> Vec<Row> {
        let row = |(name, value): (&String, &String)| -> Row {
            vec![
                ("name", name.as_str().into()),
                ("setting", value.as_str().into()),
                ("category", "Client Connection Defaults".into()),
                ("context", "user".into()),
                ("vartype", "string".into()),
                ("source", "default".into()),
                ("boot_val", value.as_str().into()),
                ("reset_val", value.as_str().into()),
            ]
        };
        self.facts.settings.iter().map(row).collect()
    }

    fn statistics(&self) -> Vec<Row> {
        let row = |own: &crate::catalog::relations::Relation| -> Row {
            vec![
                ("relid", own.oid.into()),
                ("schemaname", "public".into()),
                ("relname", own.name.as_str().into()),
            ]
        };
        self.relations.iter().map(row).collect()
    }

    /// The names of the columns of a key.
    pub(super) fn key_columns(own: &crate::catalog::relations::Relation) -> Vec<&str> {
        let key = own.key.iter().flat_map(|(_, key)| key);
        let named = key.filter_map(|at| {
            let at = usize::try_from(*at).ok()?.checked_sub(1)?;
            own.columns.get(at).map(|column| column.name.as_str())
        });
        named.collect()
    }

    /// The statement that would make a key's index.
    pub(super) fn index_definition(&self, own: &crate::catalog::relations::Relation) -> String {
        let columns = Self::key_columns(own).join(", ");
        let (name, table) = (own.key_name(), &own.name);
        format!("CREATE UNIQUE INDEX {name} ON public.{table} USING btree ({columns})")
    }
}

fn length(items: usize) -> Cell {
    Cell::Int(i64::try_from(items).unwrap_or(i64::MAX))
}

fn namespaces() -> Vec<Row> {
    let row = |(oid, name): &(i64, &str)| -> Row {
        vec![("oid", (*oid).into()), ("nspname", (*name).into()), ("nspowner", OWNER.into())]
    };
    NAMESPACES.iter().map(row).collect()
}

fn types() -> Vec<Row> {
    let row = |(name, oid, category, length, list, item): (&str, i64, &str, i64, i64, i64)| -> Row {
        vec![
            ("oid", oid.into()),
            ("typname", name.into()),
            ("typnamespace", NAMESPACE_CATALOG.into()),
            ("typowner", OWNER.into()),
            ("typlen", length.into()),
            ("typbyval", (length > 0 && length <= 8).into()),
            ("typtype", if category == "P" { "p" } else { "b" }.into()),
            ("typcategory", category.into()),
            (
                "typispreferred",
                matches!(name, "text" | "bool" | "float8" | "oid" | "timestamptz" | "interval")
                    .into(),
            ),
            ("typisdefined", true.into()),
            ("typdelim", ",".into()),
            ("typelem", item.into()),
            ("typarray", list.into()),
            ("typinput", if item > 0 { "array_in".to_owned() } else { format!("{name}in") }.into()),
            (
                "typoutput",
                if item > 0 { "array_out".to_owned() } else { format!("{name}out") }.into(),
            ),
            ("typreceive", receiver(name, item).into()),
            ("typsend", receiver(name, item).replace("recv", "send").into()),
            ("typalign", "i".into()),
            ("typstorage", "p".into()),
            ("typtypmod", (-1).into()),
            (
                "typcollation",
                if matches!(name, "text" | "varchar" | "bpchar") { COLLATION_DEFAULT } else { 0 }
                    .into(),
            ),
        ]
    };
    let own = KINDS.iter().map(|(kind, name, oid, list)| {
        (*name, i64::from(*oid), category(*kind), i64::from(kind.size()), i64::from(*list))
    });
    let all: Vec<_> = own.chain(OTHER_TYPES).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (name, oid, category, length, list) in all {
        rows.push(row((name, oid, category, length, list, 0)));
        if list > 0 {
            let listed = format!("_{name}");
            rows.push(row((&listed, list, "A", -1, 0, oid)));
        }
    }
    rows
}

/// The function that reads the binary form of a type, by which some clients know it.
fn receiver(name: &str, item: i64) -> String {
    const WITH_DASH: [&str; 11] = [
        "date",
        "time",
        "timetz",
        "timestamp",
        "timestamptz",
        "interval",
        "numeric",
        "json",
        "jsonb",
        "uuid",
        "record",
    ];
    match name {
        _ if item > 0 => "array_recv".to_owned(),
        name if WITH_DASH.contains(&name) || name == "void" => format!("{name}_recv"),
        name => format!("{name}recv"),
    }
}

/// The category of a type, by which clients choose conversions.
fn category(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "B",
        Kind::Int2
        | Kind::Int4
        | Kind::Int8
        | Kind::Float4
        | Kind::Float8
        | Kind::Numeric(..)
        | Kind::Oid => "N",
        Kind::Text | Kind::Name => "S",
        Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz => "D",
        Kind::Interval => "T",
        Kind::List(_) => "A",
        Kind::Char => "Z",
        Kind::Json | Kind::Bytea => "U",
    }
}

fn access_methods() -> Vec<Row> {
    [(HEAP, "heap", "t"), (BTREE, "btree", "i")]
        .map(|(oid, name, kind)| {
            vec![("oid", oid.into()), ("amname", name.into()), ("amtype", kind.into())]
        })
        .to_vec()
}

fn collations() -> Vec<Row> {
    [(COLLATION_DEFAULT, "default"), (COLLATION_C, "C")]
        .map(|(oid, name)| {
            vec![
                ("oid", oid.into()),
                ("collname", name.into()),
                ("collnamespace", NAMESPACE_CATALOG.into()),
                ("collowner", OWNER.into()),
                ("collprovider", "c".into()),
                ("collisdeterministic", true.into()),
                ("collencoding", (-1).into()),
                ("collcollate", "C".into()),
                ("collctype", "C".into()),
            ]
        })
        .to_vec()
}

const CLASS: &str = "oid:l relname:t relnamespace:l reltype:l reloftype:l relowner:l relam:l relfilenode:l \
    reltablespace:l relpages:i reltuples:f relallvisible:i reltoastrelid:l relhasindex:b relisshared:b \
    relpersistence:t relkind:t relnatts:s relchecks:s relhasrules:b relhastriggers:b relhassubclass:b \
    relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident:t relispartition:b relrewrite:l \
    relfrozenxid:l relminmxid:l relacl:T reloptions:T relpartbound:t relhasoids:b";

const ATTRIBUTE: &str = "attrelid:l attname:t atttypid:l attstattarget:i attlen:s attnum:s attndims:i attcacheoff:i \
    atttypmod:i attbyval:b attalign:t attstorage:t attcompression:t attnotnull:b atthasdef:b atthasmissing:b \
    attidentity:t attgenerated:t attisdropped:b attislocal:b attinhcount:i attcollation:l attacl:T attoptions:T \
    attfdwoptions:T attmissingval:t";

const TYPE: &str = "oid:l typname:t typnamespace:l typowner:l typlen:s typbyval:b typtype:t typcategory:t \
    typispreferred:b typisdefined:b typdelim:t typrelid:l typsubscript:t typelem:l typarray:l typinput:t typoutput:t \
    typreceive:t typsend:t typmodin:t typmodout:t typanalyze:t typalign:t typstorage:t typnotnull:b typbasetype:l \
    typtypmod:i typndims:i typcollation:l typdefaultbin:t typdefault:t typacl:T";

const INDEX: &str = "indexrelid:l indrelid:l indnatts:s indnkeyatts:s indisunique:b indnullsnotdistinct:b indisprimary:b \
    indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b \
    indisreplident:b indkey:S indcollation:L indclass:L indoption:S indexprs:t indpred:t";

const CONSTRAINT: &str = "oid:l conname:t connamespace:l contype:t condeferrable:b condeferred:b convalidated:b \
    conrelid:l contypid:l conindid:l conparentid:l confrelid:l confupdtype:t confdeltype:t confmatchtype:t \
    conislocal:b coninhcount:i connoinherit:b conkey:S confkey:S conpfeqop:L conppeqop:L conffeqop:L confdelsetcols:S \
    conexclop:L conbin:t consrc:t";

const DATABASES: &str = "oid:l datname:t datdba:l encoding:i datlocprovider:t datistemplate:b datallowconn:b \
    datconnlimit:i datfrozenxid:l datminmxid:l dattablespace:l datcollate:t datctype:t daticulocale:t \
    datcollversion:t datacl:T";

const ROLES: &str = "oid:l rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b \
    rolreplication:b rolconnlimit:i rolpassword:t rolvaliduntil:t rolbypassrls:b rolconfig:T usename:t usesysid:l \
    usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t valuntil:t useconfig:T";

const SETTINGS: &str = "name:t setting:t unit:t category:t short_desc:t extra_desc:t context:t vartype:t source:t \
    min_val:t max_val:t enumvals:T boot_val:t reset_val:t sourcefile:t sourceline:i pending_restart:b";

const COLLATION: &str = "oid:l collname:t collnamespace:l collowner:l collprovider:t collisdeterministic:b \
    collencoding:i collcollate:t collctype:t colliculocale:t collversion:t";
