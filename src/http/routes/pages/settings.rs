//! Settings: the project, members and roles, keys, sessions. Changes are operations of the API; those of members and
//! roles are in `members`.

use chrono_tz::TZ_VARIANTS;
use maud::html;

use crate::operation::input::New;
use crate::response::Problem;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other};
use crate::routes::personal_api_keys::KeyWrite;
use crate::routes::projects::ProjectWrite;
use crate::routes::{organizations, personal_api_keys, projects, resource_access, roles, store};
use crate::{auth, page};
use weir_base::error::Kind;
use weir_metadata::members::Level;
use weir_web::pages::members::Added;
use weir_web::pages::settings::Shown;
use weir_web::pages::{members as people, settings as shown};
use weir_web::parts;
use weir_web::state::parameters::Parameters;

/// Most members, roles and keys on the page.
const ROWS: page::Page = page::Page { limit: 500, offset: 0 };

/// `GET settings`.
pub async fn settings(visit: Visit) -> Result<Sent, Problem> {
    let session = visit.session.as_ref().map(|session| session.id);
    Ok(Sent::Page(whole(&visit.asking, session, &Made::default()).await?))
}

/// Secrets created by a form, which are shown only once.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The value of a new personal key.
    pub key: Option<String>,
    /// A new member with their first key.
    pub member: Option<Added>,
}

/// The page of settings.
pub(super) async fn whole(
    asking: &Asking,
    session: Option<i64>,
    made: &Made,
) -> Result<Page, Problem> {
    let (id, zone) = (asking.project(), asking.zone);
    let project = asking.perform(projects::Retrieve {}).await?;
    let zones: Vec<&str> = TZ_VARIANTS.iter().map(|zone| zone.name()).collect();
    let keys = asking.if_may(personal_api_keys::List { page: ROWS }).await?;
    let members = asking.if_may(organizations::Members { page: ROWS }).await?;
    let members = members.map(|found| found.results);
    let roles = asking.if_may(roles::List { page: ROWS }).await?;
    let defaults = asking.if_may(resource_access::List { page: ROWS }).await?;
    let is_admin = auth::require_level(&asking.asker.key, Level::Admin).is_ok();
    let may = |scope: &str| is_admin && asking.may(scope);
    let sessions = match asking.may("personal_api_key:read") {
        true => sessions(asking, session).await?,
        false => Vec::new(),
    };
    let content = html! {
        @if let Some(key) = &made.key { (shown::new_key(key)) }
        @if let Some(added) = &made.member { (people::added(added)) }
        (shown::project(id, &project, &zones, asking.may("project:write")))
        (shown::files(id, &asking.app.shard.tables.name("events")))
        (shown::kept(id, &project, may("project:write")))
        @if let Some(members) = &members {
            (people::members(id, zone, members, may("organization_member:write")))
        }
        @if let Some(roles) = &roles {
            @let default = defaults.as_ref().and_then(|own| own.results.first());
            (people::roles(id, &roles.results, default, members.as_deref().unwrap_or_default(), may("organization:write")))
        }
        @if let Some(keys) = &keys { (shown::keys(id, zone, &keys.results, asking.may("personal_api_key:write"))) }
        (shown::sessions(id, zone, &sessions))
        @if may("project:write") {
            (shown::another_project(id))
            (shown::deletion(id, &project))
        }
    };
    Ok(Page::new("Settings", content))
}

async fn sessions(asking: &Asking, own: Option<i64>) -> Result<Vec<Shown>, Problem> {
    let found =
        asking.app.node.metadata.sessions(asking.asker.user.id).await.map_err(store::problem)?;
    let shown = found.into_iter().map(|session| Shown {
        id: session.id,
        client: session.client,
        created_at: session.created_at.to_rfc3339(),
        used_at: session.used_at.to_rfc3339(),
        is_own: own == Some(session.id),
    });
    Ok(shown.collect())
}

/// `POST settings/project`.
pub async fn change_project(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let form = form(visit.request).await?;
    let change = ProjectWrite {
        name: Some(form.get("name").trim().to_owned()),
        timezone: Some(projects::zone("timezone", form.get("timezone").trim())?),
        anonymize_ips: Some(form.get("anonymize_ips") == "true"),
        ..ProjectWrite::default()
    };
    asking.perform(projects::Update { change }).await?;
    back(&asking, "")
}

/// `POST settings/projects`: creates a project, whose page is shown next.
pub async fn create_project(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let form = form(visit.request).await?;
    let name = Some(form.get("name").trim().to_owned());
    let api_token = Some(form.get("api_token").trim().to_owned()).filter(|own| !own.is_empty());
    let project = New(ProjectWrite { name, api_token, ..ProjectWrite::default() });
    let made = asking.perform(projects::Create { project }).await?.0;
    let address = parts::page(made.id, "onboarding");
    Ok(Sent::Other(see_other(&address)?))
}

/// `POST settings/retention`: how long events are kept; for ever without a number.
pub async fn change_retention(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let form = form(visit.request).await?;
    let days = match form.get("event_retention_days").trim() {
        "" => None,
        days => Some(days.parse().map_err(|_| not_a_number("event_retention_days"))?),
    };
    let change = ProjectWrite { event_retention_days: Some(days), ..ProjectWrite::default() };
    asking.perform(projects::Update { change }).await?;
    back(&asking, "#kept")
}

/// `POST settings/delete`: deletes the project, if its name is given.
pub async fn delete_project(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let form = form(visit.request).await?;
    let project = asking.perform(projects::Retrieve {}).await?;
    if form.get("name").trim() != project.name.trim() {
        let detail = "The name is not that of the project. Nothing is deleted.";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    asking.perform(projects::Delete {}).await?;
    Ok(Sent::Other(see_other("/")?))
}

/// `POST settings/token`: replaces the token; SDKs need the new one from now on.
pub async fn reset_token(visit: Visit) -> Result<Sent, Problem> {
    visit.asking.perform(projects::ResetToken {}).await?;
    back(&visit.asking, "")
}

/// `POST settings/keys`.
pub async fn create_key(visit: Visit) -> Result<Sent, Problem> {
    let (asking, session) =
        (visit.asking.clone(), visit.session.as_ref().map(|session| session.id));
    let form = form(visit.request).await?;
    let label = form.get("label").trim().to_owned();
    let scopes = form.get("scopes").split_whitespace().map(str::to_owned).collect();
    let key = KeyWrite { label, scopes, scoped_teams: None, scoped_organizations: None };
    let made = asking.perform(personal_api_keys::Create { key }).await?.0;
    let made = Made { key: made.value, ..Made::default() };
    Ok(Sent::Page(whole(&asking, session, &made).await?))
}

/// `POST settings/keys/revoke`.
pub async fn revoke_key(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let id = number(&form(visit.request).await?)?.to_string();
    asking.perform(personal_api_keys::Revoke { id }).await?;
    back(&asking, "#keys")
}

/// `POST settings/sessions/end`.
pub async fn end_session(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let id = number(&form(visit.request).await?)?;
    let (metadata, user) = (asking.app.node.metadata.clone(), asking.asker.user.id);
    let end = async move { metadata.end_session(user, id).await };
    store::write(&asking.app, "end-session", end).await?;
    back(&asking, "#sessions")
}

fn number(form: &Parameters) -> Result<i64, Problem> {
    form.get("id").parse().map_err(|_| not_a_number("id"))
}

fn not_a_number(field: &str) -> Problem {
    Problem::new(Kind::Invalid, "invalid_input", format!("The field {field} is not a number."))
}

/// Redirects to a part of the page.
pub(super) fn back(asking: &Asking, part: &str) -> Result<Sent, Problem> {
    let address = format!("{}{part}", parts::page(asking.project(), "settings"));
    Ok(Sent::Other(see_other(&address)?))
}
