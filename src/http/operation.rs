//! An operation of the server, independent of its transport: [`Operation`]. An operation is a type whose fields are its
//! input, with a function that returns a typed result. The router reads it from requests ([`serve`]), pages construct
//! it themselves ([`Context::perform`]); the same rights are checked for both.

pub mod input;
pub mod other_path;
pub mod output;
pub mod serve;

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;

use crate::auth;
use crate::auth::{Asker, Principal};
use crate::budget::Memory;
use crate::openapi::Shape;
use crate::operation::input::{Input, Named};
use crate::operation::output::{Output, PageRows, Paged};
use crate::page::Page;
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::store;
use weir_app::App;
use weir_metadata::Metadata;
use weir_metadata::accounts::{PersonalKey, User, UserId};
use weir_metadata::error::MetadataError;
use weir_metadata::members::{Level, Organization};
use weir_metadata::snapshot::Snapshot;

/// One operation of the server.
pub trait Operation: Input {
    /// The caller, with the project or organization of the operation.
    type Who: Caller;

    /// The result.
    type Out: Output;

    /// The scope that a key needs, such as `person:read`.
    const SCOPE: &'static str;

    /// Checks the caller's rights besides the scope, before anything else of a request is read.
    ///
    /// # Errors
    ///
    /// 403.
    fn permit(_who: &Self::Who) -> Result<(), Problem> {
        Ok(())
    }

    /// Checks that take precedence over errors of the body: usually that the object in the path exists.
    ///
    /// # Errors
    ///
    /// 404; 403 where a right depends on the object.
    fn look_up(
        _cx: &Context<Self::Who>,
        _path: &Named,
    ) -> impl Future<Output = Result<(), Problem>> + Send {
        std::future::ready(Ok(()))
    }

    /// Performs the operation.
    ///
    /// # Errors
    ///
    /// The problem of the response.
    fn perform(
        self,
        cx: &Context<Self::Who>,
    ) -> impl Future<Output = Result<Self::Out, Problem>> + Send;
}

/// The context of an operation.
#[derive(Clone, Debug)]
pub struct Context<Who> {
    /// The engines.
    pub app: App,
    /// The caller, with the project or organization.
    pub who: Who,
    /// The format of the response, where an endpoint has several.
    pub rendering: Rendering,
    /// The memory budget for what is read and written for the response.
    pub(super) memory: Memory,
    /// Whether a page renders the result, instead of a client that receives its text.
    pub(super) is_drawn: bool,
}

impl<Who: Caller> Context<Who> {
    /// Performs another operation for the same caller.
    ///
    /// # Errors
    ///
    /// 403 if the caller lacks the rights; else those of the operation.
    pub async fn perform<O: Operation<Who = Who>>(&self, operation: O) -> Result<O::Out, Problem> {
        check::<O>(&self.who)?;
        operation.perform(self).await
    }

    /// The same context with the caller converted to another type.
    fn by<Other: From<Who>>(&self) -> Context<Other> {
        Context {
            app: self.app.clone(),
            who: self.who.clone().into(),
            rendering: self.rendering,
            memory: self.memory.clone(),
            is_drawn: self.is_drawn,
        }
    }

    /// The current snapshot of the metadata.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.app.node.metadata.snapshot()
    }

    /// The metadata store.
    pub fn metadata(&self) -> &Metadata {
        &self.app.node.metadata
    }

    /// The user of the caller.
    pub fn user(&self) -> UserId {
        self.who.user().id
    }

    /// Empty rows of a page of a list, of at most this many bytes.
    pub(super) fn rows<T: Serialize>(&self, bytes_max: usize) -> PageRows<T> {
        PageRows::new(&self.memory, bytes_max, self.is_drawn)
    }

    /// A page of a list of `count` items with these rows, which are computed and written outside the threads of sockets
    /// until they have `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// 503 if the memory budget is used up.
    pub(super) async fn paged<T: Serialize + Send + 'static>(
        &self,
        page: Page,
        count: usize,
        bytes_max: usize,
        rows: impl Iterator<Item = T> + Send + 'static,
    ) -> Result<Paged<T>, Problem> {
        let write = move |written: &mut PageRows<T>| written.add_all(rows);
        let (rows, _) = self.rows(bytes_max).add_on(&self.app.node.cpu, write).await?;
        Ok(Paged { page, count, rows })
    }

    /// Runs a write to the metadata to its end even if the client disconnects.
    ///
    /// # Errors
    ///
    /// Those of [`store::problem`].
    pub async fn write<T: Send + 'static, W>(
        &self,
        name: &'static str,
        write: impl FnOnce(Metadata) -> W,
    ) -> Result<T, Problem>
    where
        W: Future<Output = Result<T, MetadataError>> + Send + 'static,
    {
        store::write(&self.app, name, write(self.app.node.metadata.clone())).await
    }
}

/// Checks that the caller has the rights to an operation.
///
/// # Errors
///
/// 403.
fn check<O: Operation>(who: &O::Who) -> Result<(), Problem> {
    auth::require(who.key(), O::SCOPE)?;
    O::permit(who)
}

/// The OpenAPI description of an operation.
pub fn shape<O: Operation>() -> Shape {
    let mut shape = Shape::empty();
    O::describe(&mut shape);
    <O::Out as Output>::describe(&mut shape);
    shape
}

/// Owners in paths, by the prefix of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// `P/`: a project.
    Project,
    /// `O/`: an organization.
    Organization,
    /// `/api/`: no owner.
    Neither,
}

impl Root {
    /// Whether a path of the table has this prefix.
    pub(super) const fn is_that_of(self, path: &str) -> bool {
        match path.as_bytes() {
            [b'P', b'/', ..] => matches!(self, Self::Project),
            [b'O', b'/', ..] => matches!(self, Self::Organization),
            _ => matches!(self, Self::Neither),
        }
    }
}

/// The caller of an operation, with the project or organization that the operation is about.
pub trait Caller: Clone + Send + Sync + Sized {
    /// The paths of its operations.
    const ROOT: Root;

    /// The caller `asker` with the project or organization `owner` of the path; `owner` is empty without one. `path`
    /// has the other values of the path.
    ///
    /// # Errors
    ///
    /// 404 for an unknown owner, 403 for one that the key may not use.
    fn of_path(
        snapshot: &Snapshot,
        request: &Request,
        asker: Asker,
        owner: &str,
        path: &Named,
    ) -> Result<Self, Problem>;

    /// The caller who views a page of a project.
    ///
    /// # Errors
    ///
    /// As [`Self::of_path`].
    fn of_page(snapshot: &Snapshot, principal: &Principal) -> Result<Self, Problem>;

    /// The key that was sent.
    fn key(&self) -> &Arc<PersonalKey>;

    /// The owner of the key.
    fn user(&self) -> &Arc<User>;
}

impl Caller for Asker {
    const ROOT: Root = Root::Neither;

    fn of_path(
        _: &Snapshot,
        _: &Request,
        asker: Asker,
        _: &str,
        _: &Named,
    ) -> Result<Self, Problem> {
        Ok(asker)
    }

    fn of_page(_: &Snapshot, principal: &Principal) -> Result<Self, Problem> {
        Ok(principal.asker())
    }

    fn key(&self) -> &Arc<PersonalKey> {
        &self.key
    }

    fn user(&self) -> &Arc<User> {
        &self.user
    }
}

impl Caller for Principal {
    const ROOT: Root = Root::Project;

    fn of_path(
        snapshot: &Snapshot,
        request: &Request,
        asker: Asker,
        owner: &str,
        _: &Named,
    ) -> Result<Self, Problem> {
        auth::principal(snapshot, request, asker, owner)
    }

    fn of_page(_: &Snapshot, principal: &Principal) -> Result<Self, Problem> {
        Ok(principal.clone())
    }

    fn key(&self) -> &Arc<PersonalKey> {
        &self.key
    }

    fn user(&self) -> &Arc<User> {
        &self.user
    }
}

/// The caller, and the organization of the request, which is the caller's.
#[derive(Clone, Debug)]
pub struct Member {
    /// The key that was sent.
    pub key: Arc<PersonalKey>,
    /// The owner of the key.
    pub user: Arc<User>,
    /// The organization.
    pub organization: Arc<Organization>,
}

impl Member {
    /// Checks that the user is an admin, with a key that is not limited to some projects.
    ///
    /// # Errors
    ///
    /// 403.
    pub fn require_admin(&self) -> Result<(), Problem> {
        auth::require_level(&self.key, Level::Admin)
    }

    /// As [`Self::require_admin`], for changes that let others change flags: a caller without the right to change flags
    /// cannot grant it.
    ///
    /// # Errors
    ///
    /// 403.
    pub fn require_granter(&self) -> Result<(), Problem> {
        self.require_admin()?;
        auth::require(&self.key, "feature_flag:write")
    }
}

impl Caller for Member {
    const ROOT: Root = Root::Organization;

    fn of_path(
        snapshot: &Snapshot,
        _: &Request,
        asker: Asker,
        owner: &str,
        _: &Named,
    ) -> Result<Self, Problem> {
        let organization = auth::organization(snapshot, &asker.user, owner)?;
        Ok(Self { key: asker.key, user: asker.user, organization })
    }

    fn of_page(snapshot: &Snapshot, principal: &Principal) -> Result<Self, Problem> {
        let organization = auth::organization(snapshot, &principal.user, auth::CURRENT)?;
        let Principal { key, user, .. } = principal.clone();
        Ok(Self { key, user, organization })
    }

    fn key(&self) -> &Arc<PersonalKey> {
        &self.key
    }

    fn user(&self) -> &Arc<User> {
        &self.user
    }
}
