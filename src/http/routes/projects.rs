//! A project itself: what identifies it, and its settings. Members and their rights are not here.

use hyper::StatusCode;
use serde::Serialize;

use crate::app::App;
use crate::error::Kind;
use crate::http::auth;
use crate::http::auth::Principal;
use crate::http::request::Request;
use crate::http::response::Attr;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::feature_flags::fields::Fields;
use crate::metadata::MetadataError;
use crate::metadata::accounts::Project;
use crate::metadata::accounts::ProjectPatch;

/// What the scopes of keys call projects.
const SCOPE: &str = "project";

/// A project as clients get it; the names are PostHog's.
#[derive(Debug, Serialize)]
struct ProjectBody<'a> {
    id: i64,
    organization: String,
    name: &'a str,
    api_token: &'a str,
    timezone: &'a str,
    anonymize_ips: bool,
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
            created_at: project.created_at.to_rfc3339(),
        }
    }
}

/// `GET /api/projects/:project/`.
pub fn retrieve(app: &App, project: &str, request: &Request) -> Result<Response, Problem> {
    let principal = principal(app, project, request, "read")?;
    Ok(Response::json(StatusCode::OK, &ProjectBody::new(&principal.project)))
}

/// `PATCH /api/projects/:project/`: `name` and `anonymize_ips`.
pub async fn update(app: &App, project: &str, request: Request) -> Result<Response, Problem> {
    let principal = principal(app, project, &request, "write")?;
    let mut fields = Fields::read(request).await?;
    let patch = ProjectPatch {
        name: fields.text("name")?,
        anonymize_ips: fields.boolean("anonymize_ips")?,
        ..ProjectPatch::default()
    };
    let (metadata, id) = (app.metadata.clone(), principal.project.id);
    let write = async move { metadata.update_project(id, patch).await };
    let written = app.tasks.0.detach("update-project", write).await;
    let project = written.map_err(|error| Problem::of(error.kind(), &error))?.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &ProjectBody::new(&project)))
}

fn principal(
    app: &App,
    project: &str,
    request: &Request,
    action: &str,
) -> Result<Principal, Problem> {
    let principal = auth::principal(&app.metadata.snapshot(), request, project)?;
    auth::require(&principal, SCOPE, action)?;
    Ok(principal)
}

fn problem(error: MetadataError) -> Problem {
    match error {
        MetadataError::Rejected(violation) => {
            let attr = violation.attr.map_or(Attr::Null, |attr| Attr::Name(attr.into()));
            Problem::new(Kind::Invalid, violation.code, violation.detail).with_attr(attr)
        }
        other => Problem::of(other.kind(), &other),
    }
}
