//! Forms of settings that change who belongs to the organization, and roles. The functions of the API make the changes.

use hyper::Method;
use serde_json::{Value, json};

use crate::auth::CURRENT;
use crate::response::Problem;
use crate::routes::pages::settings::{Made, back, whole};
use crate::routes::pages::visit::{Sent, Visit, form};
use weir_base::error::Kind;
use weir_web::pages::members::Added;
use weir_web::parts::{part, text};
use weir_web::state::parameters::Parameters;

/// `POST settings/members`: `do` is `add`, `level` or `remove`. A new member's key is shown once.
pub async fn change(visit: Visit) -> Result<Sent, Problem> {
    let (asking, session) =
        (visit.asking.clone(), visit.session.as_ref().map(|session| session.id));
    let form = form(visit.request).await?;
    let all = format!("/api/organizations/{CURRENT}/members/");
    let one = format!("{all}{}/", part(form.get("id")));
    match form.get("do") {
        "add" => {
            let body = json!({"first_name": form.get("first_name"), "email": form.get("email"),
                "level": number(&form, "level")?});
            let made = asking.send(Method::POST, &all, &body).await?;
            let member = Added {
                email: form.get("email").to_owned(),
                key: text(&made, "personal_api_key").to_owned(),
                server: asking.server.clone(),
            };
            let made = Made { member: Some(member), ..Made::default() };
            return Ok(Sent::Page(whole(&asking, session, &made).await?));
        }
        "level" => {
            let body = json!({"level": number(&form, "level")?});
            asking.send(Method::PATCH, &one, &body).await?;
        }
        "remove" => {
            asking.send(Method::DELETE, &one, &Value::Null).await?;
        }
        other => return Err(unknown(other)),
    }
    back(&asking, "#members")
}

/// `POST settings/roles`: `do` is `default` (what those without a role may), `create`, `save`, `delete`, `give` or `take`.
pub async fn change_roles(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let form = form(visit.request).await?;
    let organization = format!("/api/organizations/{CURRENT}");
    let (id, access) = (part(form.get("id")), || number(&form, "access"));
    let (all, one) = (format!("{organization}/roles/"), format!("{organization}/roles/{id}/"));
    let defaults = format!("{organization}/resource_access/");
    let (method, path, body) = match form.get("do") {
        "default" if id.is_empty() => {
            let body = json!({"resource": "feature flags", "access_level": access()?});
            (Method::POST, defaults, body)
        }
        "default" => {
            (Method::PATCH, format!("{defaults}{id}/"), json!({"access_level": access()?}))
        }
        "create" => {
            let body = json!({"name": form.get("name"), "feature_flags_access_level": access()?});
            (Method::POST, all, body)
        }
        "save" => {
            let body = json!({"name": form.get("name"), "feature_flags_access_level": access()?});
            (Method::PATCH, one, body)
        }
        "delete" => (Method::DELETE, one, Value::Null),
        "give" => {
            let body = json!({"user_uuid": form.get("user")});
            (Method::POST, format!("{one}role_memberships/"), body)
        }
        "take" => {
            let membership = part(form.get("membership"));
            (Method::DELETE, format!("{one}role_memberships/{membership}/"), Value::Null)
        }
        other => return Err(unknown(other)),
    };
    asking.send(method, &path, &body).await?;
    back(&asking, "#roles")
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
