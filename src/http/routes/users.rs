//! The owner of a key: `/api/users/@me/`.

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Asker;
use crate::body::body;
use crate::call::Call;
use crate::fields::Fields;
use crate::openapi::Operation;
use crate::response::{Problem, Response};
use crate::routes::organizations::OrganizationBody;
use crate::routes::store;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_metadata::accounts::{PersonalKey, User};
use weir_metadata::members::UserPatch;
use weir_metadata::snapshot::Snapshot;

/// A user as sent to that user; the names are PostHog's.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Me")]
struct MeBody<'a> {
    id: i64,
    uuid: String,
    distinct_id: &'a str,
    first_name: &'a str,
    email: &'a str,
    is_email_verified: bool,
    date_joined: String,
    team: Option<TeamPart<'a>>,
    organization: Option<OrganizationBody>,
    organizations: Vec<OrganizationBody>,
}

/// The project of `@current`; none if the key may not use it.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "CurrentProject")]
struct TeamPart<'a> {
    id: i64,
    name: &'a str,
    organization: String,
    api_token: &'a str,
    timezone: &'a str,
}

impl<'a> MeBody<'a> {
    /// `user` as sent to the holder of this key.
    fn new(user: &'a User, key: &PersonalKey, snapshot: &'a Snapshot) -> Self {
        let own = snapshot.organization(user.organization);
        let own = || own.map(|organization| OrganizationBody::new(organization, user.level));
        let may_see = |id: &ProjectId| key.projects.as_ref().is_none_or(|own| own.contains(id));
        let project = user.current_project.filter(may_see).and_then(|id| snapshot.project(id));
        Self {
            id: user.id.0,
            uuid: user.uuid.to_string(),
            distinct_id: &user.distinct_id,
            first_name: &user.first_name,
            email: &user.email,
            is_email_verified: user.is_email_verified,
            date_joined: user.created_at.to_rfc3339(),
            team: project.map(|project| TeamPart {
                id: project.id.0,
                name: &project.name,
                organization: project.organization.to_string(),
                api_token: &project.token,
                timezone: &project.timezone,
            }),
            organization: own(),
            organizations: own().into_iter().collect(),
        }
    }
}

pub(crate) const RETRIEVE: Operation = Operation::ok::<MeBody<'static>>("The asker");

/// `GET /api/users/@me/`, or by one's own uuid.
pub async fn retrieve(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    check_own(&call)?;
    let Asker { key, user } = &call.asker;
    Ok(MeBody::new(user, key, &app.node.metadata.snapshot()).to_response())
}

pub(crate) const UPDATE: Operation =
    Operation::ok::<MeBody<'static>>("Change the asker").optional_body::<MeWrite>();

/// `PATCH /api/users/@me/`: `first_name`, `email`, and `set_current_team`, the project for
/// `@current`.
pub async fn update(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    check_own(&call)?;
    let Asker { key, user } = call.asker;
    let (metadata, id) = (app.node.metadata.clone(), user.id);
    let sent = MeWrite::read(&mut Fields::read(call.request).await?)?;
    let patch = UserPatch {
        first_name: sent.first_name,
        email: sent.email,
        current_project: sent.set_current_team.flatten().map(ProjectId),
    };
    let write = async move { metadata.update_user(id, patch).await };
    let user = store::write(app, "update-user", write).await?;
    Ok(MeBody::new(&user, &key, &app.node.metadata.snapshot()).to_response())
}

body! {
    /// A change of the asker.
    struct MeWrite {
        first_name: Option<String>,
        email: Option<String> = {"format": "email"},
        /// The project that @current means.
        set_current_team: Option<Option<i64>>,
    }
}

impl MeBody<'_> {
    fn to_response(&self) -> Response {
        Response::json(StatusCode::OK, self)
    }
}

/// 404 for other users.
fn check_own(call: &Call<Asker>) -> Result<(), Problem> {
    let own = call.asker.user.uuid.to_string();
    if call.id() == "@me" || call.id().eq_ignore_ascii_case(&own) {
        return Ok(());
    }
    Err(Problem::not_found("Not found."))
}
