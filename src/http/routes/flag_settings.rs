//! Settings of all flags of a project: version of property matching, `minimal_flag_called_events`, and
//! the project's secret key.

use serde_json::{Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, not_a_choice};
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use weir_api::projects as api;
use weir_event::predicate::Matching;
use weir_metadata::Metadata;
use weir_metadata::members::Level;

input! {
    /// What all flags of the project share.
    pub struct Retrieve {}
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::FlagSettings;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        Ok(settings(cx))
    }
}

input! {
    /// Changes what all flags share, for users who may change every flag.
    pub struct Update {
        body change: FeatureFlagsSettingsUpdateBody,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::FlagSettings;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, user) = (cx.who.project.id, cx.user());
        let matching = self.change.property_matching_version;
        let minimal = self.change.minimal_flag_called_events;
        if matching.is_some() || minimal.is_some() {
            let write = |metadata: Metadata| async move {
                metadata.set_flag_settings(project, user, matching, minimal).await
            };
            cx.write("set-flag-settings", write).await?;
        }
        Ok(settings(cx))
    }
}

input! {
    /// Makes another secret key of the project, which is returned only here, and revokes the previous one.
    pub struct RotateSecret {}
}

impl Operation for RotateSecret {
    type Who = Principal;
    type Out = api::ProjectSecret;
    const SCOPE: &'static str = "project:write";

    fn permit(who: &Principal) -> Result<(), Problem> {
        auth::require_level(&who.key, Level::Admin)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, user) = (cx.who.project.id, cx.user());
        let write = |metadata: Metadata| async move {
            metadata.rotate_secret_key(project, user, &auth::seed()).await
        };
        let secret_api_token = cx.write("rotate-secret-key", write).await?;
        Ok(api::ProjectSecret { secret_api_token })
    }
}

body! {
    /// A change of what all flags share.
    pub struct FeatureFlagsSettingsUpdateBody {
        /// How filters of flags compare texts such as `true`: 1 as truth values, 2 as texts.
        property_matching_version: Option<Matching>,
        /// SDKs may leave out of `$feature_flag_called` what says nothing of the flag.
        minimal_flag_called_events: Option<bool>,
    }
}

impl Field for Option<Matching> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(version) = fields.value(name)? else { return Ok(None) };
        match version.as_i64() {
            Some(1) => Ok(Some(Matching::Legacy)),
            Some(2) => Ok(Some(Matching::Explicit)),
            _ => Err(not_a_choice(name, version)),
        }
    }

    fn schema() -> Value {
        json!({"type": "integer", "enum": [1, 2]})
    }
}

fn settings(cx: &Context<Principal>) -> api::FlagSettings {
    let (snapshot, project) = (cx.snapshot(), cx.who.project.id);
    let settings = snapshot.flag_settings(project);
    api::FlagSettings {
        property_matching_version: match snapshot.matching(project) {
            Matching::Legacy => 1,
            Matching::Explicit => 2,
        },
        minimal_flag_called_events: snapshot.has_minimal_called_events(project),
        secret_api_token_mask: settings.and_then(|settings| settings.secret_mask.clone()),
    }
}
