//! Saved insights: their list, and the form that saves one.

use maud::{Markup, html};
use serde_json::Value;

use crate::insight::links;
use crate::parts::clipped;
use crate::state::insight::{Kind, Question};
use crate::state::saved_sql::SavedSql;
use crate::state::stored;

/// Longest name of an insight.
pub const NAME_MAX_CHARS: usize = 200;

/// Longest description in a list, in characters.
const TOLD_MAX_CHARS: usize = 300;

/// Value that the form sends for a dashboard that is still to be created.
pub const NEW_DASHBOARD: &str = "new";

/// A saved insight or a dashboard, as lists show it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The id in the API.
    pub id: i64,
    /// The id in addresses; empty for dashboards.
    pub short_id: String,
    /// Its name; may be empty.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its query; null for dashboards.
    pub query: Value,
    /// When it was saved last, in the zone of the project.
    pub updated_at: String,
    /// Who created it.
    pub by: String,
    /// Whether it is a favourite insight or a pinned dashboard, which come first in lists.
    pub is_favourite: bool,
}

impl Saved {
    /// Title in lists.
    pub fn title(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        match self.kind() {
            Some(kind) => format!("{} {}", kind.title(), self.short_id),
            None if self.short_id.is_empty() => format!("Dashboard {}", self.id),
            None if SavedSql::of(&self.query).is_some() => format!("SQL {}", self.short_id),
            None => format!("Insight {}", self.short_id),
        }
    }

    /// The title with a star, if it comes first.
    pub fn starred(&self) -> String {
        if self.is_favourite { format!("★ {}", self.title()) } else { self.title() }
    }

    /// Its type, as lists show it.
    fn what(&self) -> &'static str {
        match self.kind() {
            Some(kind) => kind.title(),
            None if SavedSql::of(&self.query).is_some() => "SQL",
            None => "Other",
        }
    }

    /// The query reduced to the fields that a list shows; the whole one may be long.
    #[must_use]
    pub fn outlined(self) -> Self {
        Self { query: stored::outline(&self.query), ..self }
    }

    /// The kind of insight; `None` where this server has no page for it.
    pub fn kind(&self) -> Option<Kind> {
        stored::kind_of(&self.query)
    }
}

/// Element id of the navigation between kinds.
const KINDS: &str = "kinds";

/// Links to the kinds of insights, which keep the series, dates and filters of a query.
pub fn kinds(project: i64, current: Option<Kind>, question: Option<&Question>) -> Markup {
    let link = |kind: Kind| match question.map(|question| question.of_kind(kind)) {
        Some(other) if !other.print().is_empty() => links::question(project, &other),
        _ => links::kind(project, kind),
    };
    html! {
        nav class="tabs" id=(KINDS) aria-label="Kinds of insights" {
            @for kind in Kind::ALL {
                @let is_current = (Some(kind) == current).then_some("page");
                a href=(link(kind)) aria-current=[is_current] { (kind.title()) }
            }
            a href=(links::insights(project)) aria-current=[current.is_none().then_some("page")] { "Saved" }
        }
    }
}

/// Favourites first, otherwise in the same order.
pub(super) fn favourites_first(all: &[Saved]) -> Vec<&Saved> {
    let mut sorted: Vec<&Saved> = all.iter().collect();
    sorted.sort_by_key(|own| !own.is_favourite);
    sorted
}

/// The list of saved insights.
pub fn list(project: i64, insights: &[Saved]) -> Markup {
    html! {
        (kinds(project, None, None))
        @if insights.is_empty() {
            div class="empty" {
                h2 { "No saved insights yet" }
                p {
                    "Create one, for example "
                    a href=(links::kind(project, Kind::Trends)) { "how many events came in" }
                    " or " a href=(links::kind(project, Kind::Funnel)) { "how many go from one step to the next" }
                    ", and save it below the result."
                }
            }
        } @else { (rows("Saved insights", insights, true, |own| links::saved(project, &own.short_id))) }
    }
}

/// Saved insights or dashboards as a table; `link` makes the address of one.
pub(super) fn rows(
    title: &str,
    all: &[Saved],
    has_kinds: bool,
    link: impl Fn(&Saved) -> String,
) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(title) {
            table {
                thead { tr {
                    th scope="col" { "Name" } @if has_kinds { th scope="col" { "Kind" } }
                    th scope="col" { "By" } th scope="col" { "Changed" }
                } }
                tbody {
                    @for own in favourites_first(all) {
                        tr {
                            th scope="row" {
                                a href=(link(own)) { bdi { (own.starred()) } }
                                @if !own.description.is_empty() { div class="quiet" { (clipped(&own.description, TOLD_MAX_CHARS)) } }
                            }
                            @if has_kinds { td class="short" { (own.what()) } }
                            td class="wrap" { (own.by) }
                            td class="short" { (own.updated_at) }
                        }
                    }
                }
            }
        }
    }
}

/// Kind that the form sends for saved SQL.
pub const SQL: &str = "sql";

/// The form that saves a query and puts it on a dashboard; `can_make`: whether also on a new one.
pub fn form(project: i64, question: &Question, dashboards: &[Saved], can_make: bool) -> Markup {
    let asked = [("kind", question.kind().name()), ("question", &question.print())];
    saving(project, &asked, dashboards, can_make)
}

/// The form that saves SQL and how its rows are shown.
pub fn sql_form(project: i64, sql: &SavedSql, dashboards: &[Saved], can_make: bool) -> Markup {
    let chart = sql.chart.map_or("", |chart| chart.name);
    saving(
        project,
        &[("kind", SQL), ("question", &sql.sql), ("chart", chart)],
        dashboards,
        can_make,
    )
}

/// A saved insight, and the actions that its page offers.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The id in addresses.
    pub short_id: String,
    /// The dashboards that it is on.
    pub boards: Vec<i64>,
    /// Whether the query on the page differs from the saved one.
    pub is_changed: bool,
    /// Whether it may be changed.
    pub can_change: bool,
    /// Whether it may be put on a dashboard.
    pub can_place: bool,
}

/// Value that the form of a saved insight sends to replace the saved query by that of the page.
pub const ASK: &str = "ask";

/// Value that it sends to put the insight on a dashboard.
pub const PLACE: &str = "place";

/// The form that saves the query on the page under the name of the saved insight; `asked` are its hidden fields.
pub fn changing(project: i64, kept: &Kept, asked: &[(&str, &str)]) -> Markup {
    let address = links::saved(project, &kept.short_id);
    html! {
        @if kept.is_changed && kept.can_change {
            form class="save" method="post" action=(address) {
                @for (name, value) in asked { input type="hidden" name=(name) value=(value); }
                span class="quiet" { "Unsaved changes. " }
                button class="main" name="do" value=(ASK) { "Save changes" }
                a class="button" href=(address) { "Discard them" }
            }
        }
    }
}

/// The form that puts a saved insight on one of the dashboards on which it is not, or on a new one.
pub fn placing(project: i64, kept: &Kept, dashboards: &[Saved]) -> Markup {
    html! {
        @if kept.can_place {
            form class="save" method="post" action=(links::saved(project, &kept.short_id)) {
                label {
                    "Dashboard "
                    select name="dashboard" {
                        @for own in dashboards.iter().filter(|own| !kept.boards.contains(&own.id)) {
                            option value=(own.id) { (own.title()) }
                        }
                        option value=(NEW_DASHBOARD) { "a new dashboard" }
                    }
                }
                button name="do" value=(PLACE) { "Add to it" }
            }
        }
    }
}

fn saving(project: i64, asked: &[(&str, &str)], dashboards: &[Saved], can_make: bool) -> Markup {
    html! {
        form class="save" method="post" action=(links::insights(project)) {
            @for (name, value) in asked { input type="hidden" name=(name) value=(value); }
            label { "Name " input name="name" required maxlength=(NAME_MAX_CHARS) placeholder="Signups by week"; }
            @if can_make || !dashboards.is_empty() {
                label {
                    "Dashboard "
                    select name="dashboard" {
                        option value="" { "none" }
                        @for own in dashboards { option value=(own.id) { (own.title()) } }
                        @if can_make { option value=(NEW_DASHBOARD) { "a new dashboard" } }
                    }
                }
            }
            button class="main" { "Save" }
        }
    }
}
