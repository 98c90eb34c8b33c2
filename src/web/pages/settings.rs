//! Settings: the project, its files, keys, sessions.

use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::Value;

use crate::parts;
use crate::parts::{clipped, literal, page};
use weir_api::keys::Key;
use weir_api::projects::Project;

/// Longest names in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// One session of the user.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The id.
    pub id: i64,
    /// The browser's user agent.
    pub client: String,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub used_at: String,
    /// Whether the page was requested in this session.
    pub is_own: bool,
}

/// The project.
pub fn project(id: i64, project: &Project, zones: &[&str], can_write: bool) -> Markup {
    let Project { name, timezone: zone, .. } = project;
    html! {
        div class="card" {
            h2 { "Project" }
            h3 { "Token, with which SDKs send" }
            (parts::code("token", &project.api_token))
            br;
            @if can_write {
                form class="stack" method="post" action=(page(id, "settings/project")) {
                    label { "Name" input class="wide" type="text" name="name" value=(name) maxlength="200" required; }
                    label { "Time zone" select name="timezone" {
                        @for own in zones { option value=(own) selected[own == zone] { (own) } }
                    } }
                    label class="check" { input type="checkbox" name="anonymize_ips" value="true" checked[project.anonymize_ips];
                        "Discard client IP addresses" }
                    button class="main" { "Save" }
                }
                form method="post" action=(page(id, "settings/token")) data-confirm="SDKs that send with the token of now are refused from then on. Make another one?" {
                    button class="small danger" { "Rotate token" }
                }
            } @else {
                dl class="facts" { dt { "Name" } dd { (name) } dt { "Time zone" } dd { (zone) } }
            }
        }
    }
}

/// How other programs read the events: `table` is the directory of the table.
pub fn files(project: i64, table: &str) -> Markup {
    let own = literal(table);
    let duckdb = format!(
        "INSTALL delta; LOAD delta;\nSELECT event, count(*) AS events\nFROM delta_scan({own})\nWHERE project_id = {project}\nGROUP BY event ORDER BY events DESC;"
    );
    let quoted = Value::from(table);
    let polars = format!(
        "import polars as pl\n\nevents = pl.scan_delta({quoted}).filter(pl.col(\"project_id\") == {project})\nprint(events.group_by(\"event\").len().collect())"
    );
    html! {
        div class="card" id="files" {
            h2 { "Files" }
            p { "All events are Parquet files in a Delta table. Programs on this machine read them without the server, in "
                code { (table) } "." }
            h3 { "DuckDB" } (parts::code("files-duckdb", &duckdb))
            h3 { "Polars" } (parts::code("files-polars", &polars))
        }
    }
}

/// The value of a key that was just created, at the top of the page: it is not shown again.
pub fn new_key(value: &str) -> Markup {
    html! {
        div class="note" role="status" { p { "Copy the new key now: it is not shown again." } (parts::code("new-key", value)) }
    }
}

/// Personal API keys.
pub fn keys(project: i64, zone: Tz, keys: &[Key], can_write: bool) -> Markup {
    html! {
        div class="card" id="keys" {
            h2 { "Personal API keys" }
            div class="scroll" tabindex="0" role="region" aria-label="Keys" {
                table {
                    thead { tr { th scope="col" { "Label" } th scope="col" { "Key" } th scope="col" { "Scopes" } th scope="col" { "Last used" } th scope="col" { "" } } }
                    tbody {
                        @for key in keys {
                            tr {
                                th scope="row" { (clipped(&key.label, NAME_MAX_CHARS)) }
                                td { code { (key.mask_value) } }
                                td { (key.scopes.join(" ")) }
                                td class="short" { (parts::time(key.last_used_at.as_deref().unwrap_or_default(), zone)) }
                                td { @if can_write {
                                    form method="post" action=(page(project, "settings/keys/revoke")) data-confirm="Revoke this key? Programs that use it stop working." {
                                        input type="hidden" name="id" value=(key.id);
                                        button class="small danger" { "Revoke" }
                                    }
                                } }
                            }
                        }
                    }
                }
            }
            @if can_write {
                form class="bar" method="post" action=(page(project, "settings/keys")) {
                    label { "Label" input type="text" name="label" required maxlength="40"; }
                    label { "Scopes, separated by spaces; * for all" input class="wide" type="text" name="scopes" value="*" maxlength="1000" required; }
                    button class="main" { "Create" }
                }
            }
        }
    }
}

/// The sessions of the user.
pub fn sessions(project: i64, zone: Tz, sessions: &[Shown]) -> Markup {
    html! {
        div class="card" id="sessions" {
            h2 { "Active sessions" }
            @if sessions.is_empty() { p class="quiet" { "Nowhere by a browser." } }
            ul class="plain" {
                @for session in sessions {
                    li {
                        form class="actions" method="post" action=(page(project, "settings/sessions/end")) {
                            input type="hidden" name="id" value=(session.id);
                            span { (clipped(&session.client, NAME_MAX_CHARS)) }
                            span class="quiet" { "since " (parts::time(&session.created_at, zone)) ", last used " (parts::time(&session.used_at, zone)) }
                            @if session.is_own { span class="badge good" { "this one" } }
                            button class="small" { "End" }
                        }
                    }
                }
            }
        }
    }
}

/// Data retention, and how data is deleted.
pub fn kept(id: i64, project: &Project, can_write: bool) -> Markup {
    let days = project.event_retention_days.map(|days| days.to_string()).unwrap_or_default();
    html! {
        div class="card" id="kept" {
            h2 { "Data retention" }
            @match &project.events_kept_from {
                None => p { "Events are kept until they are deleted: none is removed for its age." }
                Some(from) => p { "No event from before " (from) " is kept." }
            }
            @if can_write {
                form class="bar" method="post" action=(page(id, "settings/retention")) data-confirm="Older events are removed for good: they do not come back when they are kept for longer later. Keep events for this time?" {
                    label { "Days for which events are kept; empty for ever" input type="number" name="event_retention_days" min="1" max="36500" value=(days); }
                    button class="main" { "Save" }
                }
            }
            p { "A person is deleted on its page, with its events or without; "
                a href=(page(id, "data-management/deletions")) { "deletions" } " are shown with the proof that nothing is left." }
        }
    }
}

/// The form that deletes the project.
pub fn deletion(id: i64, project: &Project) -> Markup {
    html! {
        div class="card" id="delete" {
            h2 { "Delete the project" }
            p { "Its token, events, persons, flags, cohorts, insights and dashboards end at once, and leave the files within the hour if nothing else is set. There is no way back, and its token cannot be given to another project." }
            form class="bar" method="post" action=(page(id, "settings/delete")) data-confirm="Delete this project with everything in it, for good?" {
                label { "Its name, to be sure" input class="wide" type="text" name="name" maxlength="200" required autocomplete="off" placeholder=(clipped(&project.name, NAME_MAX_CHARS)); }
                button class="danger" { "Delete project" }
            }
        }
    }
}

/// The form that creates another project.
pub fn another_project(project: i64) -> Markup {
    html! {
        div class="card" id="another" {
            h2 { "New project" }
            p class="quiet" { "A project has its own token, events, persons, flags and insights." }
            form class="bar" method="post" action=(page(project, "settings/projects")) {
                label { "Name" input class="wide" type="text" name="name" maxlength="200" required autocomplete="off"; }
                label { "Token, if its SDKs have one already" input class="wide" type="text" name="api_token" maxlength="64" autocomplete="off"; }
                button { "Create project" }
            }
        }
    }
}
