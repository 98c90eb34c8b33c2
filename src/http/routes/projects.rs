//! Projects: list, create, change, delete, rotate the public token. PostHog's newer paths for projects are under the
//! organization, with the same operations.

use std::sync::Arc;

use chrono_tz::Tz;
use serde_json::{Value, json};

use crate::auth;
use crate::auth::{Asker, Principal};
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice, refused};
use crate::operation::input::{Creates, New, input};
use crate::operation::output::{Created, Done, Listed};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::Problem;
use weir_api::nodes::check::check_filters;
use weir_api::projects as api;
use weir_base::clock::UnixMicros;
use weir_event::json::FromJson;
use weir_insights::filters::Filters;
use weir_metadata::Metadata;
use weir_metadata::accounts::{NewProject, Project, ProjectPatch};
use weir_metadata::members::Level;

input! {
    /// The projects of the caller's organization that the key may use.
    pub struct List {
        query page: Page,
    }
}

impl Operation for List {
    type Who = Asker;
    type Out = Listed<api::Project>;
    const SCOPE: &'static str = "project:read";

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        let may = |project: &&Arc<Project>| cx.who.key.may_use(project);
        let projects: Vec<&Arc<Project>> = snapshot.projects().filter(may).collect();
        let now = cx.app.engine.now();
        Ok(Listed::part_of(self.page, projects, |own| project(own, now)))
    }
}

input! {
    /// Makes a project.
    pub struct Create {
        body project: New<ProjectWrite>,
    }
}

impl Operation for Create {
    type Who = Asker;
    type Out = Created<api::Project>;
    const SCOPE: &'static str = "project:write";

    fn permit(who: &Asker) -> Result<(), Problem> {
        auth::require_level(&who.key, Level::Admin)
    }

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        let mut body = self.project.0;
        let (user, token) = (cx.user(), body.api_token.take());
        let mut settings = body.patch();
        let name = settings.name.take().unwrap_or_default();
        let new = NewProject { settings, token };
        let write = |metadata: Metadata| async move {
            metadata.create_project(user, &name, new, &auth::seed()).await
        };
        let made = cx.write("create-project", write).await?;
        Ok(Created(project(&made, cx.app.engine.now())))
    }
}

input! {
    /// One project.
    pub struct Retrieve {}
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::Project;
    const SCOPE: &'static str = "project:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        Ok(project(&cx.who.project, cx.app.engine.now()))
    }
}

input! {
    /// Changes a project; an absent field keeps its value.
    pub struct Update {
        body change: ProjectWrite,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::Project;
    const SCOPE: &'static str = "project:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let own = &cx.who.project;
        if self.change.api_token.as_ref().is_some_and(|token| *token != own.token) {
            let detail =
                "A token is chosen when the project is created; reset_token makes another one.";
            return Err(refused("api_token", "invalid_input", detail));
        }
        // It removes events.
        if self.change.event_retention_days.is_some_and(|days| days != own.event_retention_days) {
            auth::require_level(&cx.who.key, Level::Admin)?;
        }
        let (id, patch) = (own.id, self.change.patch());
        let write = |metadata: Metadata| async move { metadata.update_project(id, patch).await };
        let changed = cx.write("update-project", write).await?;
        Ok(project(&changed, cx.app.engine.now()))
    }
}

input! {
    /// Deletes a project with everything in it: its token, events, persons, groups, flags, cohorts, insights and dashboards
    /// end with the response. They leave the files within `deletion-interval`. The last project of an organization stays.
    pub struct Delete {}
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = "project:write";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require_level(&who.key, Level::Admin)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (by, id) = (cx.user(), cx.who.project.id);
        let write = |metadata: Metadata| async move { metadata.delete_project(by, id).await };
        cx.write("delete-project", write).await?;
        Ok(Done)
    }
}

input! {
    /// Makes another public token. SDKs that send the previous one are refused from then on.
    pub struct ResetToken {}
}

impl Operation for ResetToken {
    type Who = Principal;
    type Out = api::Project;
    const SCOPE: &'static str = "project:write";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require_level(&who.key, Level::Admin)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let id = cx.who.project.id;
        let write =
            |metadata: Metadata| async move { metadata.rotate_token(id, &auth::seed()).await };
        let changed = cx.write("reset-token", write).await?;
        Ok(project(&changed, cx.app.engine.now()))
    }
}

body! {
    /// A new project, or a change of one.
    #[derive(Default)]
    pub struct ProjectWrite {
        /// What it is called.
        name: Option<String>,
        /// Of the IANA database
        timezone: Option<Tz>,
        /// Properties whose first present value is a person's name; null for the defaults.
        person_display_name_properties: Option<NameProperties>,
        /// Filters by which queries leave out the operator's own traffic.
        test_account_filters: Option<TestFilters>,
        /// Whether events are stored without the addresses of their clients.
        anonymize_ips: Option<bool>,
        /// The day on which weeks begin: 0 for Sunday, 1 for Monday.
        week_start_day: Option<Option<i64>>,
        /// The token with which SDKs send, if it is chosen: only of a new project, and none that was that of a project.
        api_token: Option<String>,
        /// Days for which events are kept, by their `timestamp`; null for all. Older ones are in no answer.
        event_retention_days: Option<Option<i64>>,
    }
}

impl Creates for ProjectWrite {
    const NEEDS: &'static [&'static str] = &["name"];
}

impl ProjectWrite {
    fn patch(self) -> ProjectPatch {
        ProjectPatch {
            name: self.name,
            timezone: self.timezone.map(|zone| zone.name().to_owned()),
            person_display_name_properties: self.person_display_name_properties.map(|own| own.0),
            anonymize_ips: self.anonymize_ips,
            week_start_day: self.week_start_day.map(Option::unwrap_or_default),
            test_account_filters: self.test_account_filters.map(|own| own.0),
            event_retention_days: self.event_retention_days,
        }
    }
}

impl Field for Option<Tz> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.text(name)?.map(|text| zone(name, &text)).transpose()
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// Parses the time zone in the field `name`.
pub(super) fn zone(name: &'static str, text: &str) -> Result<Tz, Problem> {
    text.parse().map_err(|_| not_a_choice(name, text))
}

/// Properties of which the first present value is a person's name; none for the defaults.
#[derive(Debug)]
pub struct NameProperties(Option<Vec<String>>);

impl Field for Option<NameProperties> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let names = match fields.nullable_value(name) {
            None => return Ok(None),
            Some(None) => None,
            Some(Some(names)) => {
                let refused = || refused(name, "not_a_list", "Expected a list of texts.");
                let names = Vec::<String>::from_json(names).ok_or_else(refused)?;
                Some(names).filter(|names| !names.is_empty())
            }
        };
        Ok(Some(NameProperties(names)))
    }

    fn schema() -> Value {
        json!({"type": ["array", "null"], "items": {"type": "string"}})
    }
}

/// Filters on events and persons.
#[derive(Debug)]
pub struct TestFilters(Value);

impl Field for Option<TestFilters> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(filters) = fields.value(name)? else { return Ok(None) };
        check_filters(&filters, name).map_err(|error| {
            refused(error.field.replace('.', "__"), "invalid_input", error.detail)
        })?;
        let read = Filters::default().add(&filters, name);
        if !filters.is_array() || read.is_err() {
            let detail = "Expected a list of property filters.";
            return Err(refused(name, "invalid_input", detail));
        }
        Ok(Some(TestFilters(filters)))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "object"}})
    }
}

fn project(own: &Project, now: UnixMicros) -> api::Project {
    api::Project {
        id: own.id.0,
        organization: own.organization.to_string(),
        name: own.name.clone(),
        api_token: own.token.clone(),
        timezone: own.timezone.clone(),
        anonymize_ips: own.anonymize_ips,
        week_start_day: own.week_start_day,
        test_account_filters: own.test_account_filters.clone(),
        person_display_name_properties: own.person_display_name_properties.clone(),
        event_retention_days: own.event_retention_days,
        events_kept_from: own.kept_from(now).map(UnixMicros::to_rfc3339),
        created_at: own.created_at.to_rfc3339(),
    }
}
