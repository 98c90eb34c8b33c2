//! Property definitions: list, retrieve, edit, delete. Only events create them. A list is a query
//! plan over the tables `property_definitions` and `event_properties`; `body` is the JSON form of a
//! definition.

mod body;

use std::collections::HashMap;

use arrow::array::AsArray;
use arrow::array::RecordBatch;
use arrow::datatypes::Int64Type;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::JoinType;
use datafusion::prelude::DataFrame;
use datafusion::prelude::col;
use datafusion::prelude::lit;
use hyper::StatusCode;
use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::app::App;
use crate::error::Kind;
use crate::event::auto_set::AUTO_SET;
use crate::event::json;
use crate::event::schema::GROUP_TYPES_MAX;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::csv;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::page::Page;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::definition_questions::boolean;
use crate::http::routes::definition_questions::id;
use crate::http::routes::definition_questions::names;
use crate::http::routes::property_definitions::body::DefinitionBody;
use crate::http::routes::query;
use crate::http::routes::store;
use crate::http::routes::store::problem;
use crate::metadata::annotations::Notes;
use crate::metadata::annotations::NotesPatch;
use crate::metadata::properties::ValueType;
use crate::metadata::property_edits::PropertyPatch;
use crate::query::QueryError;
use crate::query::View;
use crate::query::rows::json_rows;

/// Event properties that lists omit, because they are of no use for filters.
const HIDDEN: [&str; 14] = [
    "distinct_id",
    "$set",
    "$set_once",
    "$initial_referrer",
    "$initial_referring_domain",
    "$groups",
    "$group_type",
    "$group_key",
    "$group_set",
    "$group_0",
    "$group_1",
    "$group_2",
    "$group_3",
    "$group_4",
];

/// Prefix of further omitted properties.
const HIDDEN_PREFIX: &str = "$session_entry_";
/// Most words of a search: each is one more step of the plan.
const TERMS_MAX: usize = 50;

/// Prefix of the properties that contain flag values.
const FLAG_PREFIX: &str = "$feature/";

/// Most events that one request may name together with a property.
const SEEN_MAX: usize = 1000;

/// Name of the field that says whether a property was seen on the named events.
const IS_SEEN: &str = "is_seen_on_filtered_events";

/// The annotations of all definitions of a project, by id.
type AllNotes = HashMap<Uuid, Notes>;

/// `GET property_definitions/`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let page = Page::of(&request);
    let notes = app.metadata.annotations(asker.project.id).await.map_err(problem)?;
    let wanted = Wanted::of(&request, &notes)?;
    let (count, found) = find(app, &asker, &wanted, page).await.map_err(query::problem)?;
    let snapshot = app.metadata.snapshot();
    let bodies = found.into_iter().map(|row| DefinitionBody::of_row(row, &notes, &snapshot));
    Ok(page.answer(app, &request, rendering, count, bodies.collect()))
}

/// `GET property_definitions/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    app.engine.wait().await.map_err(query::problem)?;
    let found = app.metadata.property_definition(call.asker.project.id, id).await;
    let (own, notes) = found.map_err(problem)?;
    let body = DefinitionBody::new(own, notes, &app.metadata.snapshot());
    Ok(csv::render(StatusCode::OK, call.rendering, &body))
}

/// `PATCH property_definitions/:id/`, and `PUT`, which requires no more fields: an absent field
/// keeps its value. The name cannot be changed.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    let Call { asker, request, .. } = call;
    app.engine.wait().await.map_err(query::problem)?;
    let (metadata, project, by) = (app.metadata.clone(), asker.project.id, asker.user.id);
    // 404 for an unknown definition precedes 400 for a bad body.
    metadata.property_definition(project, id).await.map_err(problem)?;
    let patch = patch(Fields::read(request).await?)?;
    let write = async move { metadata.update_property_definition(project, id, patch, by).await };
    let (own, notes) = store::write(app, "update-property-definition", write).await?;
    let body = DefinitionBody::new(own, notes, &app.metadata.snapshot());
    Ok(Response::json(StatusCode::OK, &body))
}

/// `DELETE property_definitions/:id/`. The definition returns when such a property arrives.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (id, project, by) = (id(call.id())?, call.asker.project.id, call.asker.user.id);
    app.engine.wait().await.map_err(query::problem)?;
    let metadata = app.metadata.clone();
    let write = async move { metadata.delete_property_definition(project, id, by).await };
    store::write(app, "delete-property-definition", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// `GET property_definitions/seen_together/?event_names=a&event_names=b&property_name=`: the named
/// events that ever had the property. The names may also be one JSON list.
pub async fn seen_together(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let request = &call.request;
    let required = |name| refused(name, "required", "This field is required.");
    let given = request.query_all().filter(|(name, _)| name == "event_names");
    let mut events: Vec<String> = given.map(|(_, value)| value.into_owned()).collect();
    if let [list] = events.as_slice()
        && let Ok(names) = json::read(list.as_bytes())
    {
        events = names;
    }
    if events.is_empty() {
        return Err(required("event_names"));
    }
    if events.len() > SEEN_MAX {
        let detail = format!("Ensure this field has no more than {SEEN_MAX} elements.");
        return Err(refused("event_names", "max_length", detail));
    }
    let property = request.query("property_name").filter(|name| !name.is_empty());
    let property = property.ok_or_else(|| required("property_name"))?;
    app.engine.wait().await.map_err(query::problem)?;
    let seen = app.metadata.seen_together(call.asker.project.id, &events, &property).await;
    let seen = seen.map_err(problem)?;
    let seen_by_name: Map<String, Value> =
        events.into_iter().map(|name| (name.clone(), seen.contains(&name).into())).collect();
    Ok(Response::json(StatusCode::OK, &seen_by_name))
}

/// Reads a change. The first invalid field is the error.
fn patch(mut fields: Fields) -> Result<PropertyPatch, Problem> {
    let types = ValueType::ALL.map(ValueType::name);
    let named = fields.nullable_choice("property_type", &types)?;
    let value_type = |name: String| ValueType::ALL.into_iter().find(|own| own.name() == name);
    Ok(PropertyPatch {
        value_type: named.map(|name| name.and_then(value_type)),
        tags: fields.texts("tags")?,
        notes: NotesPatch {
            description: fields.nullable_text("description")?,
            verified: fields.boolean("verified")?,
            hidden: fields.boolean("hidden")?,
            ..NotesPatch::default()
        },
    })
}

/// Filters of a request.
#[derive(Debug)]
struct Wanted {
    filters: Vec<Expr>,
    /// Names of events; the response says which properties were seen on them.
    events: Option<Vec<String>>,
    /// Whether properties not seen on these events are omitted.
    only_seen: bool,
    /// Ids of verified definitions, which come first.
    verified: Vec<Expr>,
}

impl Wanted {
    fn of(request: &Request, notes: &AllNotes) -> Result<Self, Problem> {
        let mut filters = kind_filters(request)?;
        let is_of_persons = request.query("type").as_deref() == Some("person");
        let search = request.query("search").unwrap_or_default();
        if search.split_whitespace().count() > TERMS_MAX {
            let detail = format!("A search has at most {TERMS_MAX} words.");
            return Err(refused("search", "invalid_input", detail));
        }
        filters.extend(search.split_whitespace().map(|term| matches_term(term, is_of_persons)));
        if let Some(names) = request.query("properties").filter(|names| !names.is_empty()) {
            filters.push(is_one_of(names.split(',')));
        }
        if boolean(request, "is_numerical")? == Some(true) {
            filters.push(col("is_numerical"));
            filters.push(!is_one_of(["distinct_id", "timestamp"]));
        }
        if let Some(wanted) = boolean(request, "is_feature_flag")? {
            let is_flag = starts_with(FLAG_PREFIX);
            filters.push(if wanted { is_flag } else { !is_flag });
        }
        if let Some(names) = names(request, "excluded_properties")? {
            filters.push(!is_one_of(names.iter().map(String::as_str)));
        }
        let events = names(request, "event_names")?.filter(|names| !names.is_empty());
        let only_seen = boolean(request, "filter_by_event_names")? == Some(true);
        let those = |is: &dyn Fn(&Notes) -> bool| -> Vec<Expr> {
            notes.iter().filter(|(_, notes)| is(notes)).map(|(id, _)| lit(id.to_string())).collect()
        };
        if boolean(request, "exclude_hidden")? == Some(true) {
            filters.push(col("id").in_list(those(&|notes| notes.hidden), true));
        }
        let verified = those(&|notes| notes.verified);
        Ok(Self { filters, events, only_seen, verified })
    }
}

/// Whether a name contains a search term. For person properties, a prefix of `latest` also matches
/// names that are not about the first visit (`initial`), as in PostHog.
fn matches_term(term: &str, is_of_persons: bool) -> Expr {
    let has = |part: &str| {
        let name = datafusion::functions::expr_fn::lower(col("name"));
        datafusion::functions::expr_fn::contains(name, lit(part))
    };
    let term = term.to_lowercase();
    match is_of_persons && "latest".contains(&term) {
        true => has(&term).or(!has("initial")),
        false => has(&term),
    }
}

/// Filters by the kind of object that has the properties.
fn kind_filters(request: &Request) -> Result<Vec<Expr>, Problem> {
    let kind = request.query("type").unwrap_or_else(|| "event".into()).into_owned();
    if !matches!(kind.as_str(), "event" | "person" | "group" | "session") {
        let problem = invalid("invalid_choice", format!("\"{kind}\" is not a valid choice."));
        return Err(problem.with_attr(Attr::Name("type".into())));
    }
    let refuse = |detail: &str| Err(invalid("invalid_input", detail.to_owned()));
    let mut filters = vec![col("type").eq(lit(kind.as_str()))];
    match (kind.as_str(), request.query("group_type_index")) {
        ("group", None) => return refuse("`group_type_index` must be set for `group` type"),
        ("group", Some(text)) => match text.parse::<i64>() {
            Ok(index) if usize::try_from(index).is_ok_and(|index| index < GROUP_TYPES_MAX) => {
                filters.push(col("group_type_index").eq(lit(index)));
            }
            _ => return refuse("Invalid value for `group_type_index`"),
        },
        (_, Some(_)) => return refuse("`group_type_index` can only set for `group` type"),
        (_, None) => {}
    }
    if kind == "event" {
        filters.push(!is_one_of(HIDDEN));
        filters.push(!starts_with(HIDDEN_PREFIX));
    } else if request.query("event_names").is_some_and(|names| !names.is_empty()) {
        return refuse("`event_names` can only be set for `event` type");
    }
    if boolean(request, "exclude_core_properties")? == Some(true) {
        filters.push(!starts_with("$"));
        filters.push(!is_one_of(AUTO_SET.map(|(name, _)| name)));
    }
    Ok(filters)
}

fn starts_with(prefix: &str) -> Expr {
    datafusion::functions::expr_fn::starts_with(col("name"), lit(prefix))
}

fn is_one_of<'n>(names: impl IntoIterator<Item = &'n str>) -> Expr {
    col("name").in_list(names.into_iter().map(lit).collect(), false)
}

fn invalid(code: &'static str, detail: String) -> Problem {
    Problem::new(Kind::Invalid, code, detail).with_attr(Attr::Null)
}

/// The rows of a page, and the total number of rows. Ordered: properties seen on the named events
/// first, then verified ones, then by name.
async fn find(
    app: &App,
    principal: &Principal,
    wanted: &Wanted,
    page: Page,
) -> Result<(usize, Vec<Map<String, Value>>), QueryError> {
    let view = app.engine.view(principal.project.id).await?;
    let mut definitions = view.table("property_definitions").await?;
    for filter in &wanted.filters {
        definitions = definitions.filter(filter.clone())?;
    }
    let definitions = with_seen(&view, definitions, wanted).await?;
    let all = definitions.clone().aggregate(vec![], vec![count(lit(1)).alias("count")])?;
    let (_, counted) = app.engine.collect(all).await?;
    let mut order = Vec::new();
    if wanted.events.is_some() {
        order.push(col(IS_SEEN).sort(false, false));
    }
    if !wanted.verified.is_empty() {
        order.push(col("id").in_list(wanted.verified.clone(), false).sort(false, false));
    }
    order.push(col("name").sort(true, false));
    let count = first_number(&counted);
    // The offset of a plan must not lie behind the last row.
    let rows = definitions.sort(order)?.limit(page.offset.min(count), Some(page.limit))?;
    let (_, batches) = app.engine.collect(rows).await?;
    let rows = json_rows(&batches).map_err(|error| QueryError::Internal(error.into()))?;
    Ok((count, rows))
}

/// Adds the column [`IS_SEEN`] if events are named, and omits unseen properties if requested.
async fn with_seen(
    view: &View,
    definitions: DataFrame,
    wanted: &Wanted,
) -> Result<DataFrame, QueryError> {
    if wanted.events.is_none() && !wanted.only_seen {
        return Ok(definitions);
    }
    let mut pairs = view.table("event_properties").await?;
    if let Some(events) = &wanted.events {
        let events = events.iter().map(|event| lit(event.as_str())).collect();
        pairs = pairs.filter(col("event").in_list(events, false))?;
    }
    let seen = pairs.select(vec![col("property").alias("seen")])?.distinct()?;
    let join = if wanted.only_seen { JoinType::Inner } else { JoinType::Left };
    let joined = definitions.join(seen, join, &["name"], &["seen"], None)?;
    if wanted.events.is_none() {
        return Ok(joined);
    }
    Ok(joined.with_column(IS_SEEN, col("seen").is_not_null())?)
}

/// The single number of an aggregate without groups.
fn first_number(batches: &[RecordBatch]) -> usize {
    let column = batches.first().and_then(|batch| batch.columns().first());
    let numbers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    let number = numbers.and_then(|numbers| numbers.values().first().copied());
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}
