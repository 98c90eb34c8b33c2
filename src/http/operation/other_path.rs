//! An operation under another path, which names its caller's project or organization otherwise: [`As`], with the callers
//! that only such paths have.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::auth;
use crate::auth::{Asker, Principal};
use crate::openapi::Shape;
use crate::operation::input::{Input, Parts, Reading};
use crate::operation::{Caller, Context, Member, Named, Operation, Root};
use crate::request::Request;
use crate::response::Problem;
use weir_metadata::accounts::{PersonalKey, User};
use weir_metadata::snapshot::Snapshot;

/// The operation `O` under a path whose caller is a `Who`.
#[derive(Debug)]
pub struct As<Who, O>(O, PhantomData<Who>);

impl<Who: Caller, O: Input> Input for As<Who, O> {
    const READING: Reading = O::READING;

    fn describe(shape: &mut Shape) {
        O::describe(shape);
    }

    fn take(parts: &mut Parts<'_>) -> Result<Self, Problem> {
        O::take(parts).map(|operation| Self(operation, PhantomData))
    }
}

impl<Who: Caller + Into<O::Who>, O: Operation> Operation for As<Who, O> {
    type Who = Who;
    type Out = O::Out;
    const SCOPE: &'static str = O::SCOPE;

    fn permit(who: &Who) -> Result<(), Problem> {
        O::permit(&who.clone().into())
    }

    async fn perform(self, cx: &Context<Who>) -> Result<Self::Out, Problem> {
        let Context { app, who, rendering, memory, is_drawn } = cx.clone();
        let cx = Context { app, who: who.into(), rendering, memory, is_drawn };
        self.0.perform(&cx).await
    }
}

impl From<Member> for Asker {
    fn from(own: Member) -> Self {
        Self { key: own.key, user: own.user }
    }
}

/// The caller, and a project that the path names by `:id` after its organization.
#[derive(Clone, Debug)]
pub struct InOrganization(Principal);

impl From<InOrganization> for Principal {
    fn from(own: InOrganization) -> Self {
        own.0
    }
}

impl Caller for InOrganization {
    const ROOT: Root = Root::Organization;

    fn of_path(
        snapshot: &Snapshot,
        request: &Request,
        asker: Asker,
        owner: &str,
        path: &Named,
    ) -> Result<Self, Problem> {
        auth::organization(snapshot, &asker.user, owner)?;
        let project = path.iter().find(|(name, _)| *name == "id").map(|(_, id)| id.as_str());
        auth::principal(snapshot, request, asker, project.unwrap_or_default()).map(Self)
    }

    fn of_page(_: &Snapshot, principal: &Principal) -> Result<Self, Problem> {
        Ok(Self(principal.clone()))
    }

    fn key(&self) -> &Arc<PersonalKey> {
        &self.0.key
    }

    fn user(&self) -> &Arc<User> {
        &self.0.user
    }
}
