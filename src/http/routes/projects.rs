//! Projects: list, create, change, rotate the public token.

use std::sync::Arc;

use chrono_tz::Tz;
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::auth;
use crate::auth::{Asker, Principal};
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::store;
use weir_app::App;
use weir_event::json::FromJson;
use weir_insights::filters::Filters;
use weir_insights::known::check_filters;
use weir_metadata::accounts::{Project, ProjectPatch};
use weir_metadata::members::Level;

/// A project as sent to clients; the names are PostHog's.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Project")]
struct ProjectBody<'a> {
    id: i64,
    organization: String,
    name: &'a str,
    api_token: &'a str,
    timezone: &'a str,
    anonymize_ips: bool,
    week_start_day: i64,
    #[schemars(with = "Vec<Map<String, Value>>")]
    test_account_filters: &'a Value,
    person_display_name_properties: Option<&'a [String]>,
    created_at: String,
}

impl<'a> ProjectBody<'a> {
    fn new(project: &'a Project) -> Self {
        Self {
            id: project.id.0,
            organization: project.organization.to_string(),
            name: &project.name,
            api_token: &project.token,
            timezone: &project.timezone,
            anonymize_ips: project.anonymize_ips,
            week_start_day: project.week_start_day,
            test_account_filters: &project.test_account_filters,
            person_display_name_properties: project.person_display_name_properties.as_deref(),
            created_at: project.created_at.to_rfc3339(),
        }
    }
}

pub(crate) const LIST: Description = Description::page::<ProjectBody<'static>>("Projects");

/// `GET /api/projects/`: the projects of the caller's organization that the key may use. An alias is
/// `/api/organizations/:organization/projects/`, PostHog's newer name.
pub async fn list(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    check_organization(app, &call)?;
    let Call { asker, rendering, request, .. } = call;
    let (snapshot, page) = (app.node.metadata.snapshot(), Page::of(&request));
    let may = |project: &&Arc<Project>| auth::may_use(&asker.key, project);
    let projects: Vec<&Arc<Project>> = snapshot.projects().filter(may).collect();
    let shown = projects.iter().skip(page.offset).take(page.limit);
    let bodies = shown.map(|project| ProjectBody::new(project)).collect();
    Ok(page.answer_short(app, &request, rendering, (projects.len(), bodies)))
}

pub(crate) const CREATE: Description =
    Description::created::<ProjectBody<'static>>("Make a project")
        .optional_body::<by_hand::ProjectWrite>()
        .requires(&["name"]);

/// `POST /api/projects/`, and under the organization.
pub async fn create(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    check_organization(app, &call)?;
    auth::require_level(&call.asker.key, Level::Admin)?;
    let mut fields = Fields::read(call.request).await?;
    fields.require("name")?;
    let name = fields.text("name")?.unwrap_or_default();
    let patch = patch(fields)?;
    let (metadata, user) = (app.node.metadata.clone(), call.asker.user.id);
    let write = async move { metadata.create_project(user, &name, patch, &auth::seed()).await };
    let project = store::write(app, "create-project", write).await?;
    Ok(Response::json(StatusCode::CREATED, &ProjectBody::new(&project)))
}

pub(crate) const RETRIEVE: Description = Description::ok::<ProjectBody<'static>>("One project");

/// `GET /api/projects/:project/`.
pub async fn retrieve(_app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    Ok(Response::json(StatusCode::OK, &ProjectBody::new(&call.asker.project)))
}

pub(crate) const UPDATE: Description = Description::ok::<ProjectBody<'static>>("Change a project")
    .optional_body::<by_hand::ProjectWrite>();

/// `PATCH /api/projects/:project/`, and `PUT`, which requires no more fields.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    let name = fields.text("name")?;
    let patch = ProjectPatch { name, ..patch(fields)? };
    let (metadata, id) = (app.node.metadata.clone(), asker.project.id);
    let write = async move { metadata.update_project(id, patch).await };
    let project = store::write(app, "update-project", write).await?;
    Ok(Response::json(StatusCode::OK, &ProjectBody::new(&project)))
}

pub(crate) const RETRIEVE_ONE: Description = Description::ok::<ProjectBody<'static>>("One project");

/// `GET /api/organizations/:organization/projects/:id/`, the same as `/api/projects/:project/`.
pub async fn retrieve_one(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    retrieve(app, of_organization(app, call)?).await
}

pub(crate) const UPDATE_ONE: Description =
    Description::ok::<ProjectBody<'static>>("Change a project")
        .optional_body::<by_hand::ProjectWrite>();

/// `PATCH` and `PUT /api/organizations/:organization/projects/:id/`.
pub async fn update_one(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    update(app, of_organization(app, call)?).await
}

/// If the path names an organization, it must be the caller's.
fn check_organization(app: &App, call: &Call<Asker>) -> Result<(), Problem> {
    match call.parameters.is_empty() {
        true => Ok(()),
        false => {
            let snapshot = app.node.metadata.snapshot();
            auth::organization(&snapshot, &call.asker.user, call.id()).map(|_| ())
        }
    }
}

/// The call of a project that the path names after its organization.
fn of_organization(app: &App, call: Call<Asker>) -> Result<Call<Principal>, Problem> {
    check_organization(app, &call)?;
    let project = call.second_id().to_owned();
    let Call { asker, parameters, rendering, request } = call;
    let asker = auth::principal(&app.node.metadata.snapshot(), &request, asker, &project)?;
    Ok(Call { asker, parameters, rendering, request })
}

pub(crate) const RESET_TOKEN: Description =
    Description::ok::<ProjectBody<'static>>("Make another project API key; the old one ends")
        .tagged("projects");

/// `PATCH /api/projects/:project/reset_token/`: a new public token. SDKs that send the previous one
/// are refused from then on.
pub async fn reset_token(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    auth::require_level(&call.asker.key, Level::Admin)?;
    let (metadata, id) = (app.node.metadata.clone(), call.asker.project.id);
    let write = async move { metadata.rotate_token(id, &auth::seed()).await };
    let project = store::write(app, "reset-token", write).await?;
    Ok(Response::json(StatusCode::OK, &ProjectBody::new(&project)))
}

/// Reads a change of all fields except the name.
fn patch(mut fields: Fields) -> Result<ProjectPatch, Problem> {
    let timezone = fields.text("timezone")?;
    if let Some(zone) = timezone.as_deref().filter(|zone| zone.parse::<Tz>().is_err()) {
        let detail = format!("\"{zone}\" is not a valid choice.");
        return Err(refused("timezone", "invalid_choice", detail));
    }
    let names = match fields.nullable_value("person_display_name_properties") {
        None => None,
        Some(None) => Some(None),
        Some(Some(names)) => {
            let names = Vec::<String>::from_json(names);
            let refused = || {
                refused("person_display_name_properties", "not_a_list", "Expected a list of texts.")
            };
            Some(Some(names.ok_or_else(refused)?).filter(|names| !names.is_empty()))
        }
    };
    let filters = fields.value("test_account_filters")?;
    if let Some(filters) = &filters {
        check_filters(filters, "test_account_filters").map_err(|error| {
            refused(error.field.replace('.', "__"), "invalid_input", error.detail)
        })?;
        let read = Filters::default().add(filters, "test_account_filters");
        if !filters.is_array() || read.is_err() {
            let detail = "Expected a list of property filters.";
            return Err(refused("test_account_filters", "invalid_input", detail));
        }
    }
    Ok(ProjectPatch {
        timezone,
        anonymize_ips: fields.boolean("anonymize_ips")?,
        person_display_name_properties: names,
        week_start_day: fields.nullable_integer("week_start_day")?.map(Option::unwrap_or_default),
        test_account_filters: filters,
        ..ProjectPatch::default()
    })
}
