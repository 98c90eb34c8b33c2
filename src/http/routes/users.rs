//! The owner of a key: `/api/users/@me/`.

use crate::auth::Asker;
use crate::body::body;
use crate::operation::input::{Named, input, part};
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::organizations::organization;
use crate::routes::user_body;
use weir_api::accounts as api;
use weir_event::id::ProjectId;
use weir_metadata::Metadata;
use weir_metadata::accounts::{PersonalKey, User, UserPatch};
use weir_metadata::snapshot::Snapshot;

input! {
    /// The asker: `@me`, or one's own uuid.
    pub struct Retrieve {
        path uuid: String,
    }
}

impl Operation for Retrieve {
    type Who = Asker;
    type Out = api::Me;
    const SCOPE: &'static str = "user:read";

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        check_own(&cx.who, &self.uuid)?;
        Ok(me(&cx.who.user, &cx.who.key, &cx.snapshot()))
    }
}

input! {
    /// Changes the asker.
    pub struct Update {
        path uuid: String,
        body change: MeWrite,
    }
}

impl Operation for Update {
    type Who = Asker;
    type Out = api::Me;
    const SCOPE: &'static str = "user:write";

    async fn look_up(cx: &Context<Asker>, path: &Named) -> Result<(), Problem> {
        check_own(&cx.who, &part::<String>(path, "uuid")?)
    }

    async fn perform(self, cx: &Context<Asker>) -> Result<Self::Out, Problem> {
        check_own(&cx.who, &self.uuid)?;
        let patch = UserPatch {
            first_name: self.change.first_name,
            email: self.change.email,
            current_project: self.change.set_current_team.flatten().map(|id| Some(ProjectId(id))),
        };
        let id = cx.user();
        let write = |metadata: Metadata| async move { metadata.update_user(id, patch).await };
        let user = cx.write("update-user", write).await?;
        Ok(me(&user, &cx.who.key, &cx.snapshot()))
    }
}

body! {
    /// A change of the asker.
    pub struct MeWrite {
        /// The name.
        first_name: Option<String>,
        /// The email address.
        email: Option<String> = {"format": "email"},
        /// The project that @current means.
        set_current_team: Option<Option<i64>>,
    }
}

/// 404 for other users.
fn check_own(who: &Asker, uuid: &str) -> Result<(), Problem> {
    let own = who.user.uuid.to_string();
    if uuid == "@me" || uuid.eq_ignore_ascii_case(&own) {
        return Ok(());
    }
    Err(Problem::not_found("Not found."))
}

/// `user` as sent to the holder of this key.
fn me(user: &User, key: &PersonalKey, snapshot: &Snapshot) -> api::Me {
    let own = snapshot.organization(user.organization);
    let own = own.map(|own| organization(own, user.level));
    let may_see = |id: &ProjectId| key.projects.as_ref().is_none_or(|own| own.contains(id));
    let project = user.current_project.filter(may_see).and_then(|id| snapshot.project(id));
    api::Me {
        user: user_body::user(user),
        date_joined: user.created_at.to_rfc3339(),
        team: project.map(|project| api::CurrentProject {
            id: project.id.0,
            name: project.name.clone(),
            organization: project.organization.to_string(),
            api_token: project.token.clone(),
            timezone: project.timezone.clone(),
        }),
        organization: own.clone(),
        organizations: own.into_iter().collect(),
    }
}
