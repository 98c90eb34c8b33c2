//! An operation under a second path with another form of owner in the path: [`As`], with the callers that only such
//! paths have.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::auth;
use crate::auth::{Asker, Principal};
use crate::openapi::Shape;
use crate::operation::input::{Input, Named, Parts, Reading, part};
use crate::operation::{Caller, Context, Member, Operation, Root};
use crate::request::Request;
use crate::response::Problem;
use weir_metadata::accounts::{PersonalKey, User};
use weir_metadata::snapshot::Snapshot;

/// The operation `O` under a path whose caller has the type `Who`.
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

impl<Who: Caller, O: Operation<Who: From<Who>>> Operation for As<Who, O> {
    type Who = Who;
    type Out = O::Out;
    const SCOPE: &'static str = O::SCOPE;

    fn permit(who: &Who) -> Result<(), Problem> {
        O::permit(&who.clone().into())
    }

    async fn look_up(cx: &Context<Who>, path: &Named) -> Result<(), Problem> {
        O::look_up(&cx.by(), path).await
    }

    async fn perform(self, cx: &Context<Who>) -> Result<Self::Out, Problem> {
        self.0.perform(&cx.by()).await
    }
}

impl From<Member> for Asker {
    fn from(own: Member) -> Self {
        Self { key: own.key, user: own.user }
    }
}

/// The caller, and a project that the path names by `:id` below its organization.
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
        let project: String = part(path, "id")?;
        auth::principal(snapshot, request, asker, &project).map(Self)
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
