//! Settings: who belongs to the organization, and what roles let them do.

use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::Value;

use crate::insight::form::fields::select;
use crate::parts;
use crate::parts::{clipped, integer, items, page, text};

/// Longest names in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Longest names and addresses that a form sends, in characters.
const FIELD_MAX_CHARS: usize = 150;

/// Levels of members.
const LEVELS: [(&str, &str); 3] = [("1", "member"), ("8", "admin"), ("15", "owner")];

/// What a role, or nobody's role, lets do with flags.
const ACCESS: [(&str, &str); 2] = [("37", "change flags"), ("21", "only look at flags")];

/// A member who was just added.
#[derive(Clone, Debug)]
pub struct Added {
    /// The email address.
    pub email: String,
    /// The key with which the member signs in.
    pub key: String,
    /// The address of this server.
    pub server: String,
}

/// The key of a member who was just added. It stands at the top of the page: it is not shown again.
pub fn added(added: &Added) -> Markup {
    html! {
        div class="note" role="status" {
            p { "Send this key to " b { (clipped(&added.email, NAME_MAX_CHARS)) } " now: it is not shown again. It signs in at "
                code { (added.server) "/login" } "." }
            (parts::code("member-key", &added.key))
        }
    }
}

/// Members of the organization.
pub fn members((project, zone): (i64, Tz), members: &[Value], can_write: bool) -> Markup {
    html! {
        div class="card" id="members" {
            h2 { "Members" }
            div class="scroll" tabindex="0" role="region" aria-label="Members" {
                table {
                    thead { tr { th scope="col" { "Member" } th scope="col" { "Level" } th scope="col" { "Joined" } @if can_write { th scope="col" { "Remove" } } } }
                    tbody { @for own in members { (member((project, zone), own, can_write)) } }
                }
            }
            @if can_write {
                form class="bar" method="post" action=(page(project, "settings/members")) {
                    label { "Name" input type="text" name="first_name" maxlength=(FIELD_MAX_CHARS) autocomplete="off"; }
                    label { "Email address" input class="wide" type="email" name="email" required maxlength=(FIELD_MAX_CHARS) autocomplete="off"; }
                    label { "Level" (select("level", "1", LEVELS)) }
                    button class="main" name="do" value="add" { "Add" }
                }
                p class="quiet" { "Admins change the organization and its projects, owners make and end owners. No mail is sent: "
                    "the new member's key is shown here once." }
            }
        }
    }
}

fn member((project, zone): (i64, Tz), own: &Value, can_write: bool) -> Markup {
    let user = own.get("user").unwrap_or(own);
    let level = integer(own, "level").unwrap_or_default().to_string();
    let word = LEVELS.iter().find(|(number, _)| *number == level).map_or("", |(_, word)| word);
    let address = page(project, "settings/members");
    html! {
        tr {
            th scope="row" {
                (clipped(text(user, "first_name"), NAME_MAX_CHARS))
                div class="quiet" { (clipped(text(user, "email"), NAME_MAX_CHARS)) }
            }
            td class="short" {
                @if can_write {
                    form class="actions" method="post" action=(address) {
                        input type="hidden" name="id" value=(text(own, "id"));
                        label { span class="unseen" { "Level" } (select("level", &level, LEVELS)) }
                        button class="small" name="do" value="level" { "Save" }
                    }
                } @else { span class="badge" { (word) } }
            }
            td class="short" { (parts::time(text(own, "joined_at"), zone)) }
            @if can_write {
                td {
                    form method="post" action=(address) data-confirm="Remove this member? The member's keys stop working." {
                        input type="hidden" name="id" value=(text(own, "id"));
                        button class="small danger" name="do" value="remove" { "Remove" }
                    }
                }
            }
        }
    }
}

/// Roles, and what those without one may do. `defaults` are the API's, `members` those of the organization.
pub fn roles(
    project: i64,
    roles: &[Value],
    (defaults, members): (&[Value], &[Value]),
    can_write: bool,
) -> Markup {
    let default = defaults.first().and_then(|own| integer(own, "access_level")).unwrap_or(37);
    let default = default.to_string();
    let address = page(project, "settings/roles");
    html! {
        div class="card" id="roles" {
            h2 { "Roles" }
            p class="quiet" { "Where members may only look at flags, a role lets some of them change all flags, and a flag names roles that may change it." }
            @if can_write {
                form class="bar" method="post" action=(address) {
                    @if let Some(id) = defaults.first().and_then(|own| integer(own, "id")) { input type="hidden" name="id" value=(id); }
                    label { "Members without a role may" (select("access", &default, ACCESS)) }
                    button name="do" value="default" { "Save" }
                }
            } @else { p { "Members without a role may " (word(&default)) "." } }
            @if roles.is_empty() { p class="quiet" { "There are no roles yet." } }
            ul class="plain" { @for own in roles { li class="card" { (role(&address, own, members, can_write)) } } }
            @if can_write {
                form class="bar" method="post" action=(address) {
                    label { "New role" input type="text" name="name" required maxlength=(FIELD_MAX_CHARS) autocomplete="off" placeholder="Developers"; }
                    label { "Access of its members" (select("access", "37", ACCESS)) }
                    button class="main" name="do" value="create" { "Create" }
                }
            }
        }
    }
}

fn role(address: &str, own: &Value, members: &[Value], can_write: bool) -> Markup {
    let id = text(own, "id");
    let access = integer(own, "feature_flags_access_level").unwrap_or(37).to_string();
    let held = items(own, "members");
    let user = |of: &Value| of.get("user").map(|user| text(user, "uuid").to_owned());
    let others = members.iter().filter(|one| !held.iter().any(|own| user(own) == user(one)));
    let others: Vec<(&str, &str)> = others
        .filter_map(|one| one.get("user"))
        .map(|user| (text(user, "uuid"), text(user, "email")))
        .collect();
    let flags: Vec<&str> =
        items(own, "associated_flags").iter().map(|flag| text(flag, "key")).collect();
    html! {
        h3 { (clipped(text(own, "name"), NAME_MAX_CHARS)) " " span class="badge" { (word(&access)) } }
        @if !flags.is_empty() { p class="quiet" { "May change " (clipped(&flags.join(", "), NAME_MAX_CHARS)) "." } }
        ul class="plain" {
            @for member in held {
                @let user = member.get("user").unwrap_or(&Value::Null);
                @let email = clipped(text(user, "email"), NAME_MAX_CHARS);
                @if can_write {
                    li {
                        form class="actions" method="post" action=(address) {
                            input type="hidden" name="id" value=(id);
                            input type="hidden" name="membership" value=(text(member, "id"));
                            (email) " " button class="small" name="do" value="take" { "Remove" }
                        }
                    }
                } @else { li { (email) } }
            }
        }
        @if held.is_empty() { p class="quiet" { "No members." } }
        @if can_write {
            @if !others.is_empty() {
                form class="bar" method="post" action=(address) {
                    input type="hidden" name="id" value=(id);
                    label { "Add member" (select("user", "", others)) }
                    button name="do" value="give" { "Add" }
                }
            }
            form class="bar" method="post" action=(address) {
                input type="hidden" name="id" value=(id);
                label { "Called" input type="text" name="name" value=(text(own, "name")) required maxlength=(FIELD_MAX_CHARS) autocomplete="off"; }
                label { "Access of its members" (select("access", &access, ACCESS)) }
                button name="do" value="save" { "Save" }
                button class="danger" name="do" value="delete" { "Delete role" }
            }
        }
    }
}

fn word(access: &str) -> &'static str {
    ACCESS.iter().find(|(number, _)| *number == access).map_or("change flags", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;
    use serde_json::{Value, json};

    use super::{members, roles};

    fn people() -> Vec<Value> {
        let person = |at: u8, level: u8| {
            json!({"id": format!("m{at}"), "level": level, "joined_at": "2026-01-02T03:04:05Z",
                "user": {"uuid": format!("u{at}"), "first_name": "<b>", "email": format!("p{at}@x.example")}})
        };
        vec![person(1, 15), person(2, 1)]
    }

    #[test]
    fn only_those_who_may_see_forms() {
        let role = json!({"id": "r", "name": "Dev<i>", "feature_flags_access_level": 21,
            "members": [{"id": "k", "user": {"uuid": "u1", "email": "p1@x.example"}}], "associated_flags": []});
        for can_write in [false, true] {
            let shown = members((1, Tz::UTC), &people(), can_write).0
                + &roles(1, std::slice::from_ref(&role), (&[], &people()), can_write).0;
            assert_eq!(shown.contains("<form"), shown.contains("<button"), "{shown}");
            assert_eq!(shown.contains("<button"), can_write, "{shown}");
            assert!(shown.contains("&lt;b&gt;") && shown.contains("Dev&lt;i&gt;"), "{shown}");
            assert!(shown.contains("only look at flags"), "{shown}");
        }
    }

    #[test]
    fn a_role_is_given_to_those_who_lack_it() {
        let role =
            json!({"id": "r", "name": "Dev", "members": [{"id": "k", "user": {"uuid": "u1"}}]});
        let shown = roles(1, &[role], (&[json!({"id": 7, "access_level": 21})], &people()), true).0;
        assert!(!shown.contains("value=\"u1\"") && shown.contains("value=\"u2\""), "{shown}");
        assert!(shown.contains("<option value=\"21\" selected>"), "{shown}");
    }
}
