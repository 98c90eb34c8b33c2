//! Property definitions, listed and retrieved: plans over the tables `property_definitions` and
//! `event_properties`.

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
use serde_json::json;

use crate::app::App;
use crate::error::Kind;
use crate::event::schema::GROUP_TYPES_MAX;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::page::Page;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::query;
use crate::query::QueryError;
use crate::query::View;
use crate::query::rows::json_rows;

/// Properties of events that lists leave out, since they are no use to those who choose filters.
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

/// Words of a search at most: each is one more step of a plan.
const TERMS_MAX: usize = 50;

/// What keys of flags begin with.
const FLAG_PREFIX: &str = "$feature/";

/// Name of the field that says whether a property was seen on the events that were named.
const IS_SEEN: &str = "is_seen_on_filtered_events";

/// `GET property_definitions/`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let page = Page::of(&request);
    let wanted = Wanted::of(&request)?;
    let (count, found) = find(app, &asker, &wanted, page).await.map_err(query::problem)?;
    Ok(page.answer(app, &request, rendering, count, found))
}

/// `GET property_definitions/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let one = async {
        let definitions = app.engine.view(call.asker.project.id).await?;
        let definitions = definitions.table("property_definitions").await?;
        bodies(app, definitions.filter(col("id").eq(lit(call.id().to_lowercase())))?).await
    };
    let found: Result<Vec<Value>, QueryError> = one.await;
    let mut found = found.map_err(query::problem)?;
    let definition = found.pop().ok_or_else(|| Problem::not_found("Not found."))?;
    Ok(Response::json(StatusCode::OK, &definition))
}

/// What a request asks for.
#[derive(Debug)]
struct Wanted {
    filters: Vec<Expr>,
    /// Names of events, if their properties are to be told from others.
    events: Option<Vec<String>>,
    /// Whether others are left out.
    only_seen: bool,
}

impl Wanted {
    fn of(request: &Request) -> Result<Self, Problem> {
        let mut filters = kind_filters(request)?;
        let search = request.query("search").unwrap_or_default();
        if search.split_whitespace().count() > TERMS_MAX {
            let detail = format!("A search has at most {TERMS_MAX} words.");
            let problem = invalid("invalid_input", detail);
            return Err(problem.with_attr(Attr::Name("search".into())));
        }
        for term in search.split_whitespace() {
            let name = datafusion::functions::expr_fn::lower(col("name"));
            let term = lit(term.to_lowercase());
            filters.push(datafusion::functions::expr_fn::contains(name, term));
        }
        if let Some(names) = request.query("properties").filter(|names| !names.is_empty()) {
            filters.push(is_one_of(names.split(',')));
        }
        if boolean(request, "is_numerical")? == Some(true) {
            filters.push(col("is_numerical"));
            filters.push(!is_one_of(["distinct_id", "timestamp"]));
        }
        if let Some(wanted) = boolean(request, "is_feature_flag")? {
            let prefix = lit(FLAG_PREFIX);
            let is_flag = datafusion::functions::expr_fn::starts_with(col("name"), prefix);
            filters.push(if wanted { is_flag } else { !is_flag });
        }
        if let Some(names) = names(request, "excluded_properties")? {
            filters.push(!is_one_of(names.iter().map(String::as_str)));
        }
        let events = names(request, "event_names")?.filter(|names| !names.is_empty());
        let only_seen = boolean(request, "filter_by_event_names")? == Some(true);
        Ok(Self { filters, events, only_seen })
    }
}

/// Filters by what the properties are properties of.
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
        filters.push(match boolean(request, "exclude_core_properties")? {
            Some(true) => !starts_with_dollar(),
            _ => !is_one_of(HIDDEN),
        });
    } else if request.query("event_names").is_some_and(|names| !names.is_empty()) {
        return refuse("`event_names` can only be set for `event` type");
    }
    Ok(filters)
}

fn starts_with_dollar() -> Expr {
    datafusion::functions::expr_fn::starts_with(col("name"), lit("$"))
}

fn is_one_of<'n>(names: impl IntoIterator<Item = &'n str>) -> Expr {
    col("name").in_list(names.into_iter().map(lit).collect(), false)
}

fn invalid(code: &'static str, detail: String) -> Problem {
    Problem::new(Kind::Invalid, code, detail).with_attr(Attr::Null)
}

/// A parameter that is true or false, in the words that Django takes.
fn boolean(request: &Request, name: &'static str) -> Result<Option<bool>, Problem> {
    let Some(text) = request.query(name) else { return Ok(None) };
    match text.to_lowercase().as_str() {
        "" | "null" => Ok(None),
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Some(true)),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(Some(false)),
        _ => {
            let problem = invalid("invalid_input", "Must be a valid boolean.".to_owned());
            Err(problem.with_attr(Attr::Name(name.into())))
        }
    }
}

/// A parameter that is a list of names as JSON.
fn names(request: &Request, name: &'static str) -> Result<Option<Vec<String>>, Problem> {
    let Some(text) = request.query(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|_| {
        let problem = invalid("invalid_input", "Must be a JSON list of names.".to_owned());
        problem.with_attr(Attr::Name(name.into()))
    })
}

/// The definitions of a page, and how many there are in all: those seen on the named events first,
/// then by name.
async fn find(
    app: &App,
    principal: &Principal,
    wanted: &Wanted,
    page: Page,
) -> Result<(usize, Vec<Value>), QueryError> {
    let view = app.engine.view(principal.project.id).await?;
    let mut definitions = view.table("property_definitions").await?;
    for filter in &wanted.filters {
        definitions = definitions.filter(filter.clone())?;
    }
    let definitions = with_seen(&view, definitions, wanted).await?;
    let all = definitions.clone().aggregate(vec![], vec![count(lit(1)).alias("count")])?;
    let (_, counted) = app.engine.collect(all).await?;
    let mut order = vec![col("name").sort(true, false)];
    if wanted.events.is_some() {
        order.insert(0, col(IS_SEEN).sort(false, false));
    }
    let rows = definitions.sort(order)?.limit(page.offset, Some(page.limit))?;
    Ok((first_number(&counted), bodies(app, rows).await?))
}

/// Adds the column [`IS_SEEN`], if events were named, and leaves out what was not seen, if asked.
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

/// The one number of an aggregate without groups.
fn first_number(batches: &[RecordBatch]) -> usize {
    let column = batches.first().and_then(|batch| batch.columns().first());
    let numbers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    let number = numbers.and_then(|numbers| numbers.values().first().copied());
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

async fn bodies(app: &App, definitions: DataFrame) -> Result<Vec<Value>, QueryError> {
    let (_, batches) = app.engine.collect(definitions).await?;
    let rows = json_rows(&batches).map_err(|error| QueryError::Internal(error.into()))?;
    Ok(rows.into_iter().map(body).collect())
}

/// A definition as clients get it.
fn body(row: Map<String, Value>) -> Value {
    let field = |name: &str| row.get(name).cloned().unwrap_or(Value::Null);
    json!({
        "id": field("id"),
        "name": field("name"),
        "is_numerical": field("is_numerical"),
        "property_type": field("property_type"),
        "tags": [],
        IS_SEEN: field(IS_SEEN),
    })
}
