//! Lists of selected columns of persons and groups: [`ActorsQuery`], of everybody, of those whose ids SQL gives, or of
//! those behind a point of an insight. Its rows are the table of persons or groups, with the columns of the source
//! beside them, over which SQL selects ([`Select`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, ListBuilder, RecordBatch, StringViewArray, UInt64Builder,
};
use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, JoinType, cast};
use datafusion::prelude::{ident, lit};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::answered::Answered;
use crate::columns::text;
use crate::dependence::Dependence;
use crate::filters::Filters;
use crate::select::{Select, Special, Written};
use crate::selection::{Unit, searched};
use crate::sql::SqlQuery;
use crate::{Actor, InsightError, ProjectSettings, Who, person_name};
use weir_api::node::{AnyNode, NodeError};
use weir_api::nodes::check::parse;
use weir_api::nodes::filter::Properties;
use weir_api::nodes::lists as nodes;
use weir_api::nodes::lists::ListQuery;
use weir_identity::IdentityError;
use weir_identity::view::View as IdentityView;
use weir_query::dialect::sql_text::literal;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;
use weir_query::output::lists::{Cell, Content};

/// The kinds of its nodes: that of today, and those of older clients.
pub const KINDS: [&str; 3] = ["ActorsQuery", "PersonsQuery", "PersonsNode"];

/// What persons are selected by, unless the question says otherwise (PostHog's choice).
const SELECT: [&str; 3] = ["person", "id", "person.$delete"];

/// The column of a source that has the ids.
const KEY: &str = "key_of_the_source";

/// The kind of nodes about the groups of a type.
pub const GROUPS: &str = "GroupsQuery";

/// Names of such columns in SQL; else it is the first one.
const KEYS: [&str; 3] = ["actor_id", "person_id", "group_key"];

/// Types of filters that ask of persons.
const OF_PERSONS: [&str; 3] = ["person", "person_metadata", "cohort"];

/// Most actors behind a point that can be ordered and filtered.
pub const ACTORS_MAX: usize = 100_000;

/// What makes the JSON of an actor.
pub type Body = Arc<dyn Fn(&IdentityView, &Who) -> Result<Value, IdentityError> + Send + Sync>;

/// A list of selected columns of persons or groups.
#[derive(Clone, Debug)]
pub struct ActorsQuery {
    select: Select<ActorCell>,
    filters: Filters,
    unit: Unit,
    source: Option<SqlQuery>,
}

/// A cell of a list of actors that is not a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorCell {
    /// What the group is called.
    GroupName,
    /// The person, or whoever it is.
    Actor,
    /// The group.
    Group,
    /// Where pages have a button.
    Delete,
    /// Where there are recordings in PostHog.
    Recordings,
}

impl Special for ActorCell {
    const MISSING: Option<usize> = Some(0);

    fn named(name: &str) -> Option<Self> {
        match name {
            "actor" | "person" => Some(Self::Actor),
            "group" => Some(Self::Group),
            "group_name" => Some(Self::GroupName),
            "person.$delete" => Some(Self::Delete),
            "matched_recordings" => Some(Self::Recordings),
            _ => None,
        }
    }

    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::GroupName => &["id", "properties['name']"],
            _ => &["id"],
        }
    }

    fn order(self, owner: &ProjectSettings) -> String {
        match self {
            Self::Actor => {
                let keys = person_name::keys(owner.person_names.as_deref());
                format!("properties[{}]", literal(keys.first().copied().unwrap_or("email")))
            }
            Self::Group => "properties['name']".to_owned(),
            Self::GroupName => "coalesce(properties['name'], id)".to_owned(),
            Self::Delete | Self::Recordings => "id".to_owned(),
        }
    }

    fn first_order(self, _: &ProjectSettings) -> (String, bool) {
        ("id".to_owned(), false)
    }
}

impl ActorsQuery {
    /// Reads a node whose source is none, or SQL.
    ///
    /// # Errors
    ///
    /// A field is malformed, has too much, or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, InsightError> {
        Self::of(&parse(query)?)
    }

    /// The list of a node whose source is none, or SQL.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn of(sent: &nodes::ActorsQuery) -> Result<Self, InsightError> {
        let source = sent.source.as_ref();
        let source = source.map(|AnyNode(source)| SqlQuery::parse(source).map_err(of_source));
        Ok(Self { source: source.transpose()?, ..Self::behind(sent, Unit::Persons)? })
    }

    /// The list of a node whose source is an insight, about actors of this kind.
    ///
    /// # Errors
    ///
    /// A field is malformed, or has too much.
    pub fn behind(sent: &nodes::ActorsQuery, unit: Unit) -> Result<Self, NodeError> {
        let usual = match unit {
            Unit::Persons => &SELECT[..],
            Unit::Groups(_) => &["group"],
        };
        let select = Select::of(&sent.base, usual)?;
        let mut filters = filters(&sent.base, sent.search.as_deref(), unit)?;
        if let Some(cohort) = sent.cohort {
            let filter = json!([{"key": "id", "type": "cohort", "value": cohort}]);
            filters.add(&filter, "cohort")?;
        }
        if let Some(id) = &sent.distinct_id {
            let filter = json!([{"key": "distinct_id", "type": "person_metadata", "operator": "exact", "value": id}]);
            filters.add(&filter, "distinctId")?;
        }
        Ok(Self { select, filters, unit, source: None })
    }

    /// Reads a `GroupsQuery`: the groups of a type, the newest first.
    ///
    /// # Errors
    ///
    /// A field is malformed, or has too much.
    pub fn groups(query: &Value) -> Result<Self, NodeError> {
        let sent = parse::<nodes::GroupsQuery>(query)?;
        let unit = Unit::of(sent.group_type_index, "group_type_index")?;
        if unit == Unit::Persons {
            return Err(NodeError::new("group_type_index", "This field is required."));
        }
        let filters = filters(&sent.base, sent.search.as_deref(), unit)?;
        let select = Select::of(&sent.base, &["group_name"])?;
        Ok(Self { select: select.usually(("created_at", true)), filters, unit, source: None })
    }

    /// The rows. `found` are the actors behind a point, if the source is an insight.
    pub fn answer<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
        (found, body): (Option<&'a [Actor]>, Body),
    ) -> BoxFuture<'a, Result<Answered, InsightError>> {
        Box::pin(async move {
            // Persons in the filters are as of every acknowledged event.
            engine.wait().await?;
            let view = match &self.source {
                Some(source) => source.view(engine, owner).await?,
                None => engine.view(owner.project).await?,
            };
            let view = Arc::new(view);
            let mut actors = self.actors(engine, &view, owner).await?;
            if let Some(found) = found {
                actors = beside(actors, view.rows(rows(found)?)?)?;
            }
            let written = self.select.written(engine, (&view, owner), &[("id", false)]);
            let Written { query, columns, .. } = written.await?;
            let persons = engine.persons(owner.project);
            let made =
                |cell: ActorCell, places: &[usize]| cell.made((self.unit, &persons), &body, places);
            let source = self.source.as_ref().map(|source| source.text.clone());
            let planning = Box::pin(async move {
                if let Some(source) = source {
                    actors = beside(actors, keyed(&view.sql(&source).await?)?)?;
                }
                view.composed(("actors", actors), query).await
            });
            self.select.answered(engine, owner.project, (columns, made), planning).await
        })
    }

    /// The persons, or the groups of a type, that match the filters, with the columns that filters read.
    async fn actors(
        &self,
        engine: &Engine,
        view: &View,
        owner: &ProjectSettings,
    ) -> Result<DataFrame, InsightError> {
        let rows = match self.unit {
            Unit::Persons => view.table("persons").await?.select(vec![
                ident("uuid").alias("id"),
                ident("created_at"),
                ident("is_identified"),
                ident("properties"),
                ident("uuid").alias("person_id"),
            ])?,
            Unit::Groups(index) => {
                let groups = view.table("groups").await?;
                let is_of_type = ident("group_type_index").eq(lit(i64::from(index)));
                groups.filter(is_of_type)?.select(vec![
                    ident("key").alias("id"),
                    ident("key"),
                    ident("created_at"),
                    ident("properties"),
                    ident("key").alias(format!("group_{index}")),
                ])?
            }
        };
        let condition = match self.unit {
            Unit::Persons => self.filters.condition_of_persons(engine, owner.project),
            Unit::Groups(_) => self.filters.condition(engine, owner.project, view.exact()),
        };
        match condition {
            Some(condition) => Ok(rows.filter(condition)?),
            None => Ok(rows),
        }
    }
}

impl ActorCell {
    fn made(
        self,
        (unit, view): (Unit, &Arc<IdentityView>),
        body: &Body,
        places: &[usize],
    ) -> Content {
        let (view, body, places) = (Arc::clone(view), Arc::clone(body), places.to_vec());
        let cell: Cell = Arc::new(move |batch: &RecordBatch, row: usize, out: &mut Vec<u8>| {
            let at = |number: usize| text((batch, row), places.get(number).copied());
            let id = at(0);
            let made = match self {
                Self::GroupName => json!({"display_name": at(1).or(id), "key": id}),
                Self::Actor | Self::Group => match id.and_then(|id| unit.who(id)) {
                    Some(who) => body(&view, &who)?,
                    None => json!({"id": id}),
                },
                Self::Delete => json!(1),
                Self::Recordings => json!([]),
            };
            out.extend_from_slice(made.to_string().as_bytes());
            Ok(())
        });
        let kind = match self {
            Self::GroupName | Self::Actor | Self::Group => "Tuple",
            Self::Delete => "UInt8",
            Self::Recordings => "Array(String)",
        };
        Content::Made(kind, cell)
    }
}

/// Actors with what a source has beside their ids. An actor that a source has twice is there twice.
fn beside(actors: DataFrame, source: DataFrame) -> Result<DataFrame, DataFusionError> {
    let own: BTreeSet<&str> =
        actors.schema().fields().iter().map(|field| field.name().as_str()).collect();
    let mut seen = BTreeSet::new();
    let mut kept: Vec<Expr> = Vec::new();
    for (qualifier, field) in source.schema().iter() {
        let name = field.name();
        if !own.contains(name.as_str()) && seen.insert(name.clone()) {
            let column = Column::new(qualifier.cloned(), name);
            kept.push(Expr::Column(column).alias(name));
        }
    }
    let source = source.select(kept)?;
    actors.join_on(source, JoinType::Inner, [ident("id").eq(ident(KEY))])
}

/// The rows of SQL, with the ids among them as the column [`KEY`].
fn keyed(rows: &DataFrame) -> Result<DataFrame, QueryError> {
    let columns: Vec<(Column, String)> = rows
        .schema()
        .iter()
        .map(|(qualifier, field)| {
            (Column::new(qualifier.cloned(), field.name()), field.name().clone())
        })
        .collect();
    let named = columns.iter().find(|(_, name)| KEYS.contains(&name.as_str()));
    let Some((key, _)) = named.or_else(|| columns.first()) else {
        return Err(QueryError::Invalid("the source has no column with ids".to_owned()));
    };
    let id = cast(Expr::Column(key.clone()), DataType::Utf8View).alias(KEY);
    let others = columns.iter().filter(|(_, name)| name != KEY);
    let others = others.map(|(column, _)| Expr::Column(column.clone()));
    Ok(rows.clone().select(others.chain([id]).collect::<Vec<_>>())?)
}

/// The actors behind a point as rows.
fn rows(found: &[Actor]) -> Result<RecordBatch, DataFusionError> {
    let id = |actor: &Actor| match &actor.who {
        Who::Person(id) => id.to_string(),
        Who::Group(_, key) => key.clone(),
    };
    let ids: ArrayRef = Arc::new(StringViewArray::from_iter_values(found.iter().map(id)));
    let values: ArrayRef =
        Arc::new(Float64Array::from_iter_values(found.iter().map(|actor| actor.value)));
    let mut cells = ListBuilder::new(UInt64Builder::new());
    for actor in found {
        let places = actor.appearances.iter().filter_map(|place| u64::try_from(*place).ok());
        cells.append_value(places.map(Some));
    }
    let cells: ArrayRef = Arc::new(cells.finish());
    let columns = [
        (KEY, Arc::clone(&ids)),
        ("actor_id", ids),
        ("value", Arc::clone(&values)),
        ("event_count", values),
        ("appearances", cells),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The filters of a list of actors, and those of a search.
fn filters(sent: &ListQuery, search: Option<&str>, unit: Unit) -> Result<Filters, NodeError> {
    let mut filters = Filters::default();
    let (own, fixed) = (&sent.properties, &sent.fixed_properties);
    for (name, properties) in [("properties", own), ("fixedProperties", fixed)] {
        if let Some(Properties(properties)) = properties {
            filters.add(&about(unit, properties, name)?, name)?;
        }
    }
    if let Some(text) = search {
        filters.add(&searched(text, unit), "search")?;
    }
    Ok(filters)
}

/// Filters about actors: those without a type ask of their properties.
fn about(unit: Unit, filters: &Value, name: &str) -> Result<Value, NodeError> {
    match filters {
        Value::Array(list) => list.iter().map(|filter| about(unit, filter, name)).collect(),
        Value::Object(fields) if fields.is_empty() => Ok(filters.clone()),
        Value::Object(fields) if fields.contains_key("values") => {
            let mut fields = fields.clone();
            let values = fields.get("values").cloned().unwrap_or_default();
            fields.insert("values".to_owned(), about(unit, &values, name)?);
            Ok(Value::Object(fields))
        }
        Value::Object(fields) if fields.contains_key("key") || fields.contains_key("type") => {
            let mut fields = fields.clone();
            let kind = fields.get("type").and_then(Value::as_str);
            let is_own = match (unit, kind) {
                (_, None) => true,
                (Unit::Persons, Some(kind)) => OF_PERSONS.contains(&kind),
                (Unit::Groups(index), Some(kind)) => {
                    let sent = fields.get("group_type_index");
                    kind == "group" && sent.is_none_or(|sent| *sent == json!(index))
                }
            };
            if !is_own {
                return Err(NodeError::new(
                    name,
                    match unit {
                        Unit::Persons => {
                            "Persons can be filtered by person properties and cohorts only."
                        }
                        Unit::Groups(_) => "Groups can be filtered by their own properties only.",
                    },
                ));
            }
            match unit {
                Unit::Persons if kind.is_none() => {
                    fields.insert("type".to_owned(), json!("person"));
                }
                Unit::Persons => {}
                Unit::Groups(index) => {
                    fields.insert("type".to_owned(), json!("group"));
                    fields.insert("group_type_index".to_owned(), json!(index));
                }
            }
            Ok(Value::Object(fields))
        }
        _ => Err(NodeError::new(name, "Expected a list of filters.")),
    }
}

fn of_source(error: InsightError) -> InsightError {
    match error {
        InsightError::Node(error) => InsightError::Node(error.within("source")),
        error => error,
    }
}

impl ActorsQuery {
    /// Adds what its answer depends on.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        // Of the expressions of its columns the plan says whether the answer stays right.
        let Self { select: _, filters, unit: _, source } = self;
        on.filters(filters);
        source.iter().for_each(|source| source.depend(on));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ActorsQuery, about};
    use crate::InsightError;
    use crate::selection::Unit;

    #[test]
    fn filters_are_about_the_actors() {
        for (unit, sent, expected) in [
            (
                Unit::Persons,
                json!([{"key": "a", "value": 1}]),
                Some(json!([{"key": "a", "value": 1, "type": "person"}])),
            ),
            (
                Unit::Persons,
                json!({"type": "OR", "values": [{"key": "id", "value": 1, "type": "cohort"}]}),
                Some(
                    json!({"type": "OR", "values": [{"key": "id", "value": 1, "type": "cohort"}]}),
                ),
            ),
            (
                Unit::Groups(2),
                json!([{"key": "a", "value": 1}]),
                Some(json!([{"key": "a", "value": 1, "type": "group", "group_type_index": 2}])),
            ),
            (Unit::Persons, json!([]), Some(json!([]))),
            (Unit::Persons, json!([{"key": "a", "value": 1, "type": "event"}]), None),
            (Unit::Persons, json!([{"key": "a", "value": 1, "type": "hogql"}]), None),
            (Unit::Groups(2), json!([{"key": "a", "value": 1, "type": "person"}]), None),
            (
                Unit::Groups(2),
                json!([{"key": "a", "value": 1, "type": "group", "group_type_index": 1}]),
                None,
            ),
            (Unit::Persons, json!({"a": 1}), None),
            (Unit::Persons, json!("a"), None),
        ] {
            let found = about(unit, &sent, "properties");
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{sent}");
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        for (node, field) in [
            (json!({"select": ["id FROM events"]}), "select"),
            (json!({"orderBy": ["id; SELECT 1"]}), "orderBy"),
            (json!({"properties": [{"key": "a", "value": 1, "type": "event"}]}), "properties"),
            (json!({"fixedProperties": 7}), "fixedProperties"),
            (json!({"search": 1}), "search"),
            (json!({"cohort": "x"}), "cohort"),
            (json!({"distinctId": 1}), "distinctId"),
            (json!({"offset": -1}), "offset"),
            (json!({"source": {"kind": "HogQLQuery", "query": ""}}), "source.query"),
            (
                json!({"source": {"kind": "HogQLQuery", "query": "SELECT 1", "filters": 1}}),
                "source.filters",
            ),
        ] {
            match ActorsQuery::parse(&node).unwrap_err() {
                InsightError::Node(error) => assert_eq!(error.field, field, "{node}: {error}"),
                InsightError::Query(error) => panic!("{node}: {error}"),
            }
        }
        ActorsQuery::parse(&json!({"kind": "PersonsNode", "cohort": 1, "distinctId": "a"}))
            .unwrap();
    }
}
