//! Settings: members of the organization, roles, and the rights that roles give.

use chrono_tz::Tz;
use maud::{Markup, html};

use crate::insight::form::fields::select;
use crate::parts;
use crate::parts::{clipped, page};
use weir_api::accounts::{Member, ResourceAccess, Role};

/// Longest names in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Longest names and addresses that a form sends, in characters.
const FIELD_MAX_CHARS: usize = 150;

/// Levels of members.
const LEVELS: [(&str, &str); 3] = [("1", "member"), ("8", "admin"), ("15", "owner")];

/// Access levels of flags, for a role and for those without one.
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

/// The key of a member who was just added, at the top of the page: it is not shown again.
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
pub fn members(project: i64, zone: Tz, members: &[Member], can_write: bool) -> Markup {
    html! {
        div class="card" id="members" {
            h2 { "Members" }
            div class="scroll" tabindex="0" role="region" aria-label="Members" {
                table {
                    thead { tr { th scope="col" { "Member" } th scope="col" { "Level" } th scope="col" { "Joined" } @if can_write { th scope="col" { "Remove" } } } }
                    tbody { @for own in members { (member(project, zone, own, can_write)) } }
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

fn member(project: i64, zone: Tz, own: &Member, can_write: bool) -> Markup {
    let level = own.level.to_string();
    let word = LEVELS.iter().find(|(number, _)| *number == level).map_or("", |(_, word)| word);
    let address = page(project, "settings/members");
    html! {
        tr {
            th scope="row" {
                (clipped(&own.user.first_name, NAME_MAX_CHARS))
                div class="quiet" { (clipped(&own.user.email, NAME_MAX_CHARS)) }
            }
            td class="short" {
                @if can_write {
                    form class="actions" method="post" action=(address) {
                        input type="hidden" name="id" value=(own.id);
                        label { span class="unseen" { "Level" } (select("level", &level, LEVELS)) }
                        button class="small" name="do" value="level" { "Save" }
                    }
                } @else { span class="badge" { (word) } }
            }
            td class="short" { (parts::time(&own.joined_at, zone)) }
            @if can_write {
                td {
                    form method="post" action=(address) data-confirm="Remove this member? The member's keys stop working." {
                        input type="hidden" name="id" value=(own.id);
                        button class="small danger" name="do" value="remove" { "Remove" }
                    }
                }
            }
        }
    }
}

/// Roles, and the rights of members without one: `default`. `members` are those of the organization.
pub fn roles(
    project: i64,
    roles: &[Role],
    default: Option<&ResourceAccess>,
    members: &[Member],
    can_write: bool,
) -> Markup {
    let access = default.map_or(37, |own| own.access_level).to_string();
    let address = page(project, "settings/roles");
    html! {
        div class="card" id="roles" {
            h2 { "Roles" }
            p class="quiet" { "Where members may only look at flags, a role lets some of them change all flags, and a flag names roles that may change it." }
            @if can_write {
                form class="bar" method="post" action=(address) {
                    @if let Some(own) = default { input type="hidden" name="id" value=(own.id); }
                    label { "Members without a role may" (select("access", &access, ACCESS)) }
                    button name="do" value="default" { "Save" }
                }
            } @else { p { "Members without a role may " (word(&access)) "." } }
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

fn role(address: &str, own: &Role, members: &[Member], can_write: bool) -> Markup {
    let id = &own.id;
    let access = own.feature_flags_access_level.to_string();
    let held = || own.members.iter().filter_map(|held| held.user.as_ref());
    let others = members.iter().filter(|one| !held().any(|user| user.uuid == one.user.uuid));
    let others: Vec<(&str, &str)> =
        others.map(|one| (one.user.uuid.as_str(), one.user.email.as_str())).collect();
    let flags: Vec<&str> = own.associated_flags.iter().map(|flag| flag.key.as_str()).collect();
    html! {
        h3 { (clipped(&own.name, NAME_MAX_CHARS)) " " span class="badge" { (word(&access)) } }
        @if !flags.is_empty() { p class="quiet" { "May change " (clipped(&flags.join(", "), NAME_MAX_CHARS)) "." } }
        ul class="plain" {
            @for member in &own.members {
                @let email = member.user.as_ref().map_or("", |user| &user.email);
                @let email = clipped(email, NAME_MAX_CHARS);
                @if can_write {
                    li {
                        form class="actions" method="post" action=(address) {
                            input type="hidden" name="id" value=(id);
                            input type="hidden" name="membership" value=(member.id);
                            (email) " " button class="small" name="do" value="take" { "Remove" }
                        }
                    }
                } @else { li { (email) } }
            }
        }
        @if own.members.is_empty() { p class="quiet" { "No members." } }
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
                label { "Called" input type="text" name="name" value=(own.name) required maxlength=(FIELD_MAX_CHARS) autocomplete="off"; }
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

    use super::{members, roles};
    use weir_api::accounts::{Member, Membership, ResourceAccess, Role, RoleMember, User};

    fn user(at: u8) -> User {
        User {
            id: i64::from(at),
            uuid: format!("u{at}"),
            distinct_id: String::new(),
            first_name: "<b>".to_owned(),
            email: format!("p{at}@x.example"),
            is_email_verified: true,
        }
    }

    fn people() -> Vec<Member> {
        let joined_at = || "2026-01-02T03:04:05Z".to_owned();
        let person = |at: u8, level: i64| Member {
            id: format!("m{at}"),
            user: user(at),
            level,
            joined_at: joined_at(),
            personal_api_key: None,
        };
        vec![person(1, 15), person(2, 1)]
    }

    /// A role of which the first person is a member.
    fn role(name: &str) -> Role {
        let member = Membership {
            id: "k".to_owned(),
            role_id: "r".to_owned(),
            organization_member: RoleMember { user: Some(user(1)) },
            user: Some(user(1)),
            joined_at: String::new(),
            updated_at: String::new(),
        };
        Role {
            id: "r".to_owned(),
            name: name.to_owned(),
            feature_flags_access_level: 21,
            created_at: String::new(),
            created_by: None,
            members: vec![member],
            associated_flags: Vec::new(),
        }
    }

    #[test]
    fn only_those_who_may_see_forms() {
        for can_write in [false, true] {
            let shown = members(1, Tz::UTC, &people(), can_write).0
                + &roles(1, &[role("Dev<i>")], None, &people(), can_write).0;
            assert_eq!(shown.contains("<form"), shown.contains("<button"), "{shown}");
            assert_eq!(shown.contains("<button"), can_write, "{shown}");
            assert!(shown.contains("&lt;b&gt;") && shown.contains("Dev&lt;i&gt;"), "{shown}");
            assert!(shown.contains("only look at flags"), "{shown}");
        }
    }

    #[test]
    fn a_role_is_given_to_those_who_lack_it() {
        let default = ResourceAccess {
            id: 7,
            resource: "feature flags".to_owned(),
            access_level: 21,
            organization: String::new(),
            created_at: String::new(),
            updated_at: String::new(),
            created_by: None,
        };
        let shown = roles(1, &[role("Dev")], Some(&default), &people(), true).0;
        assert!(!shown.contains("value=\"u1\"") && shown.contains("value=\"u2\""), "{shown}");
        assert!(shown.contains("<option value=\"21\" selected>"), "{shown}");
    }
}
