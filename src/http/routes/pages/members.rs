//! Forms of settings that change the members of the organization, and roles.

use crate::response::Problem;
use crate::routes::pages::settings::{Made, back, whole};
use crate::routes::pages::visit::{Asking, Sent, Visit, form};
use crate::routes::resource_access::{AccessLevelWrite, ResourceAccessWrite};
use crate::routes::roles::{RoleCreate, RoleMemberWrite, RoleWrite};
use crate::routes::{organizations, resource_access, roles};
use weir_base::error::Kind;
use weir_metadata::members::Level;
use weir_web::pages::members::Added;
use weir_web::state::parameters::Parameters;

/// `POST settings/members`: `do` is `add`, `level` or `remove`. A new member's key is shown once.
pub async fn change(visit: Visit) -> Result<Sent, Problem> {
    let (asking, session) =
        (visit.asking.clone(), visit.session.as_ref().map(|session| session.id));
    let form = form(visit.request).await?;
    let uuid = form.get("id").to_owned();
    match form.get("do") {
        "add" => {
            let email = form.get("email").trim().to_owned();
            let first_name = Some(form.get("first_name").trim().to_owned());
            let level = Some(level(&form)?);
            let member = organizations::MemberWrite { email: email.clone(), first_name, level };
            let made = asking.perform(organizations::AddMember { member }).await?.0;
            let key = made.personal_api_key.unwrap_or_default();
            let member = Added { email, key, server: asking.server.clone() };
            let made = Made { member: Some(member), ..Made::default() };
            return Ok(Sent::Page(whole(&asking, session, &made).await?));
        }
        "level" => {
            let change = organizations::LevelWrite { level: level(&form)? };
            asking.perform(organizations::UpdateMember { uuid, change }).await?;
        }
        "remove" => {
            asking.perform(organizations::RemoveMember { uuid }).await?;
        }
        other => return Err(unknown(other)),
    }
    back(&asking, "#members")
}

/// `POST settings/roles`: `do` is `default` (access of members without a role), `create`, `save`, `delete`, `give` or
/// `take`.
pub async fn change_roles(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let form = form(visit.request).await?;
    let id = form.get("id").to_owned();
    let name = || form.get("name").trim().to_owned();
    let access = || number(&form, "access");
    match form.get("do") {
        "default" => set_default(&asking, &id, access()?).await?,
        "create" => {
            let feature_flags_access_level = Some(roles::AccessLevel(access()?));
            let role = RoleCreate { name: name(), feature_flags_access_level };
            asking.perform(roles::Create { role }).await?;
        }
        "save" => {
            let feature_flags_access_level = Some(roles::AccessLevel(access()?));
            let role = RoleWrite { name: Some(name()), feature_flags_access_level };
            asking.perform(roles::Update { id, role }).await?;
        }
        "delete" => {
            asking.perform(roles::Delete { id }).await?;
        }
        "give" => {
            let member = RoleMemberWrite { user_uuid: form.get("user").to_owned() };
            asking.perform(roles::AddMember { id, member }).await?;
        }
        "take" => {
            let membership = form.get("membership").to_owned();
            asking.perform(roles::RemoveMember { id, membership }).await?;
        }
        other => return Err(unknown(other)),
    }
    back(&asking, "#roles")
}

/// Sets the access of members without a role: changes the default with this id, or creates one.
async fn set_default(asking: &Asking, id: &str, access: i64) -> Result<(), Problem> {
    let access_level = resource_access::AccessLevel(access);
    if id.is_empty() {
        let resource = "feature flags".to_owned();
        let access = ResourceAccessWrite { resource, access_level };
        asking.perform(resource_access::Create { access }).await?;
        return Ok(());
    }
    let id = id.parse().map_err(|_| Problem::not_found("Not found."))?;
    let access = AccessLevelWrite { access_level };
    asking.perform(resource_access::Update { id, access }).await?;
    Ok(())
}

/// The level in a form.
fn level(form: &Parameters) -> Result<Level, Problem> {
    let number = number(form, "level")?;
    Level::from_number(number).ok_or_else(|| wrong(format!("There is no level {number}.")))
}

fn number(form: &Parameters, name: &str) -> Result<i64, Problem> {
    let wrong = || wrong(format!("The field {name} is not a number."));
    form.get(name).parse().map_err(|_| wrong())
}

fn unknown(what: &str) -> Problem {
    wrong(format!("There is nothing to do that is called \"{what}\"."))
}

fn wrong(detail: String) -> Problem {
    Problem::new(Kind::Invalid, "invalid_input", detail)
}
