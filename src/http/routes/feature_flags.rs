//! Feature flag management: list, create, retrieve, change. `metadata` validates flags, `flags` evaluates them; neither
//! is done here.
//!
//! A flag is deleted, and restored, by setting `deleted`. DELETE is refused.

pub mod across;
pub mod actions;
pub mod body;
pub mod bulk;
pub mod copy;
pub mod evaluations;
pub mod filter;
pub mod preview;
pub mod role_access;
pub mod rollout;
pub mod status;
pub mod test_evaluation;

use std::sync::Arc;

use hyper::Method;
use serde_json::json;

use crate::auth::Principal;
use crate::operation::input::{Named, New, input, part};
use crate::operation::output::{Created, Never, Paged};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::response::Problem;
use crate::routes::activity::Logged;
use crate::routes::feature_flags::body::{FlagWrite, whole};
use crate::routes::feature_flags::filter::{Filters, Wanted};
use crate::routes::feature_flags::status::Calls;
use crate::routes::store::problem;
use crate::rows::PAGE_MAX_BYTES;
use weir_api::flags as api;
use weir_base::error::Kind;
use weir_metadata::Metadata;
use weir_metadata::activity::Scope;
use weir_metadata::error::MetadataError;
use weir_metadata::flags::{FlagId, FlagPatch, StoredFlag};

/// Allowed methods of one flag.
const ALLOW: &str = "GET, PUT, PATCH, HEAD, OPTIONS";

input! {
    /// The flags that are not deleted, newest first.
    pub struct List {
        query filters: Filters,
        /// Such as -created_at
        query order: Option<String>,
        query page: Page,
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Paged<api::Flag>;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { filters, order, page } = self;
        let (snapshot, asker) = (cx.snapshot(), cx.who.clone());
        let wanted = Wanted::of_query(cx, &filters).await?;
        let flags = snapshot.flags(asker.project.id).iter();
        let mut found: Vec<_> = flags.filter(|flag| wanted.includes(flag)).collect();
        filter::sort(&mut found, order.as_deref());
        let shown = found.iter().skip(page.offset).take(page.limit);
        let (count, shown) = (found.len(), shown.map(|flag| Arc::clone(flag)).collect::<Vec<_>>());
        let calls = Calls::of_project(&cx.app, asker.project.id).await?;
        let users = Arc::clone(&snapshot);
        let rows = shown.into_iter().map(move |flag| whole(&flag, &users, &asker, &calls));
        cx.paged(page, count, PAGE_MAX_BYTES, rows).await
    }
}

input! {
    /// Makes a flag.
    pub struct Create {
        body flag: New<FlagWrite>,
    }
}

impl Operation for Create {
    type Who = Principal;
    type Out = Created<api::Flag>;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, user, new) = (cx.who.project.id, cx.user(), self.flag.0.into_patch());
        let write =
            |metadata: Metadata| async move { metadata.create_flag(project, user, new).await };
        let flag = cx.write("create-flag", write).await?;
        Ok(Created(shown(cx, &flag, &Calls::none(&cx.app))))
    }
}

input! {
    /// One flag, also a deleted one, so that it can be viewed before it is restored.
    pub struct Retrieve {
        path id: i64,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = api::Flag;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = find(cx, self.id).await?;
        let calls = Calls::of_flag(&cx.app, flag.id).await?;
        Ok(shown(cx, &flag, &calls))
    }
}

input! {
    /// Changes a flag by a body with more fields: as in PostHog, an absent field keeps its value.
    pub struct Replace {
        path id: i64,
        body flag: New<FlagWrite>,
    }
}

impl Operation for Replace {
    type Who = Principal;
    type Out = api::Flag;
    const SCOPE: &'static str = "feature_flag:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        Update::look_up(cx, path).await
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        Update { id: self.id, flag: self.flag.0 }.perform(cx).await
    }
}

input! {
    /// Changes a flag.
    pub struct Update {
        path id: i64,
        body flag: FlagWrite,
    }
}

impl Operation for Update {
    type Who = Principal;
    type Out = api::Flag;
    const SCOPE: &'static str = "feature_flag:write";

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        find(cx, part(path, "id")?).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = find(cx, self.id).await?;
        changed(cx, &flag, self.flag.into_patch()).await
    }
}

input! {
    /// Refused without a body, unlike other refusals (the API specification, Endpoints).
    pub struct Delete {}
}

impl Operation for Delete {
    type Who = Principal;
    type Out = Never;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, _: &Context<Principal>) -> Result<Never, Problem> {
        Err(delete_refused())
    }
}

/// The response to DELETE of an object that is deleted by setting `deleted`.
pub(super) fn delete_refused() -> Problem {
    Problem::method_not_allowed(&Method::DELETE, ALLOW).with_body(None)
}

impl Logged for StoredFlag {
    const SCOPE: Scope = Scope::FeatureFlag;
    const READ: &'static str = "activity_log:read";
    type Id = String;

    async fn item(cx: &Context<Principal>, id: String) -> Result<String, Problem> {
        // Without a body, unlike other 404 responses.
        let gone = || Problem::not_found("Not found.").with_body(None);
        let number = id.parse().map(FlagId).map_err(|_| gone())?;
        match cx.metadata().flag(cx.who.project.id, number).await {
            Err(MetadataError::NotFound(_)) => Err(gone()),
            found => found.map(|_| id).map_err(problem),
        }
    }
}

/// A flag of the project, deleted or not.
async fn find(cx: &Context<Principal>, id: i64) -> Result<Arc<StoredFlag>, Problem> {
    cx.metadata().flag(cx.who.project.id, FlagId(id)).await.map_err(problem)
}

/// The flag as sent to the caller.
fn shown(cx: &Context<Principal>, flag: &StoredFlag, calls: &Calls) -> api::Flag {
    whole(flag, &cx.snapshot(), &cx.who, calls)
}

/// Changes a flag.
async fn change(
    cx: &Context<Principal>,
    id: FlagId,
    patch: FlagPatch,
) -> Result<Arc<StoredFlag>, Problem> {
    let (project, user) = (cx.who.project.id, cx.user());
    let write =
        |metadata: Metadata| async move { metadata.update_flag(project, user, id, patch).await };
    Ok(cx.write("update-flag", write).await?.after)
}

/// Changes a flag, and returns it as sent to the caller.
async fn changed(
    cx: &Context<Principal>,
    flag: &StoredFlag,
    patch: FlagPatch,
) -> Result<api::Flag, Problem> {
    // Read before the change, so that nothing can fail after it.
    let calls = Calls::of_flag(&cx.app, flag.id).await?;
    let flag = change(cx, flag.id, patch).await?;
    Ok(shown(cx, &flag, &calls))
}

/// An error in PostHog's short format.
fn short_error(error: &str) -> Problem {
    let problem = Problem::new(Kind::Invalid, "invalid_input", error.to_owned());
    problem.with_body(Some(json!({"error": error})))
}

/// The error of an action that cannot be performed.
fn unsuccessful(error: &str) -> Problem {
    let problem = Problem::new(Kind::Invalid, "invalid_input", error.to_owned());
    problem.with_body(Some(json!({"success": false, "error": error})))
}

#[cfg(test)]
mod tests {
    use crate::operation::input::InPath;
    use crate::response::Response;

    /// "`:id` is an integer" (the API specification); unknown sub-paths end here too.
    #[test]
    fn ids_are_integers() {
        let of = |text: &str| <i64 as InPath>::of(text);
        assert_eq!(of("7").unwrap(), 7);
        for text in ["", "my-flag", "activity", "1.5", "7 ", "99999999999999999999"] {
            assert_eq!(Response::from(of(text).unwrap_err()).status, 404, "{text}");
        }
    }
}
