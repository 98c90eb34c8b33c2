//! The types that asyncpg looks up by a recursive statement, which no client of another kind sends and which is not planned
//! here: [`is_asked`], [`rows`]. It is answered from the list of types.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int32Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::Int64Type;

use crate::error::Failure;
use crate::rows::{Column, Columns, Rows};
use crate::types::{Item, KINDS, Kind};
use weir_query::dialect::parameters::Parameter;

/// The type id of `oid[]`, the type of the only parameter.
pub(super) const PARAMETER: u32 = 1028;

/// What only this statement has.
const NAME: &str = "typeinfo_tree(";

/// The columns of the answer.
const COLUMNS: [(&str, Kind); 14] = [
    ("oid", Kind::Oid),
    ("ns", Kind::Name),
    ("name", Kind::Name),
    ("kind", Kind::Char),
    ("basetype", Kind::Oid),
    ("elemtype", Kind::Oid),
    ("elemdelim", Kind::Char),
    ("range_subtype", Kind::Oid),
    ("attrtypoids", Kind::List(Item::Oid)),
    ("attrnames", Kind::List(Item::Text)),
    ("depth", Kind::Int4),
    ("basetype_name", Kind::Text),
    ("elemtype_name", Kind::Text),
    ("range_subtype_name", Kind::Text),
];

/// A type that is answered.
struct TypeRow {
    oid: u32,
    name: String,
    /// The type of the items of a list.
    item: Option<(u32, &'static str)>,
    /// How far it is from a type that was asked for.
    depth: i32,
}

/// Whether a statement is this one.
pub(crate) fn is_asked(sql: &str) -> bool {
    sql.contains(NAME)
}

/// Its columns.
pub(super) fn columns() -> Columns {
    COLUMNS.iter().map(|(name, kind)| Column { name: (*name).to_owned(), kind: *kind }).collect()
}

/// The types with the ids in its parameter, those of the items of lists first.
pub(super) fn rows(values: &[Parameter]) -> Result<Rows, Failure> {
    let number = |own: &Parameter| match own {
        Parameter::Number(own) => own.parse::<u32>().ok(),
        _ => None,
    };
    let asked: Vec<u32> = match values {
        [Parameter::List(items, _)] => items.iter().filter_map(number).collect(),
        _ => return Err(Failure::invalid_value("a list of ids is expected")),
    };
    let mut found = Vec::new();
    for (_, name, oid, list) in KINDS {
        if asked.contains(&list) {
            found.push(TypeRow { oid, name: name.to_owned(), item: None, depth: 1 });
            let item = Some((oid, name));
            found.push(TypeRow { oid: list, name: format!("_{name}"), item, depth: 0 });
        } else if asked.contains(&oid) {
            found.push(TypeRow { oid, name: name.to_owned(), item: None, depth: 0 });
        }
    }
    found.sort_by_key(|own| std::cmp::Reverse(own.depth));
    let count = found.len();
    let text = |own: &dyn Fn(&TypeRow) -> Option<String>| {
        Arc::new(found.iter().map(own).collect::<StringArray>()) as ArrayRef
    };
    let nothing = || Arc::new(Int64Array::new_null(count)) as ArrayRef;
    let no_text = || Arc::new(StringArray::new_null(count)) as ArrayRef;
    let ids = Int64Array::from_iter_values(found.iter().map(|own| i64::from(own.oid)));
    let items = found.iter().map(|own| own.item.map(|(oid, _)| i64::from(oid)));
    let lists = vec![None::<Vec<Option<i64>>>; count];
    let lists = arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
    let mut names = ListBuilder::new(StringBuilder::new());
    (0..count).for_each(|_| names.append(false));
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(ids),
        text(&|_| Some("pg_catalog".to_owned())),
        text(&|own| Some(own.name.clone())),
        text(&|_| Some("b".to_owned())),
        nothing(),
        Arc::new(items.collect::<Int64Array>()),
        text(&|own| own.item.map(|_| ",".to_owned())),
        nothing(),
        Arc::new(lists),
        Arc::new(names.finish()),
        Arc::new(Int32Array::from_iter_values(found.iter().map(|own| own.depth))),
        no_text(),
        text(&|own| own.item.map(|(_, name)| name.to_owned())),
        no_text(),
    ];
    let named = COLUMNS.iter().map(|(name, _)| *name).zip(arrays);
    let batch =
        RecordBatch::try_from_iter_with_nullable(named.map(|(name, own)| (name, own, true)));
    let batch = batch.map_err(|error| Failure::new("XX000", error.to_string()))?;
    Ok(Rows::fixed(batch, columns()))
}
