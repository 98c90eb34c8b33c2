//! The shard of a request: that of the project that it names, as the endpoint that answers it will find it. What is not found
//! here is refused, with its own words, by whoever answers requests about no project.

use std::borrow::Cow;

use hyper::header::HeaderValue;

use crate::auth;
use crate::cluster::Cluster;
use crate::fields::Fields;
use crate::forward::LOCATED;
use crate::operation::Root;
use crate::public::Public;
use crate::request::Request;
use crate::router::Route;
use crate::routes::documents::shared;
use crate::routes::internal::Internal;
use crate::routes::pages;
use crate::table::Managed;
use weir_event::id::{ProjectId, ShardId};
use weir_metadata::snapshot::Snapshot;
use weir_wire::encoding::hints::{Hints, PathKind};

/// What a request says about its project.
enum Named {
    /// A project, which is known or not.
    Project(Option<ProjectId>),
    /// Nothing.
    Nothing,
}

/// The project of a request, if it is known, and the version of the metadata in which a node has looked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) project: Option<ProjectId>,
    version: Option<i64>,
}

impl Located {
    /// A request about no project.
    pub(super) const fn nowhere() -> Self {
        Self { project: None, version: None }
    }

    /// For the node that the request is passed on to.
    pub(super) fn to_header(self) -> HeaderValue {
        let project = self.project.map_or(String::new(), |project| project.to_string());
        let version = self.version.unwrap_or_default();
        // Digits and a point are allowed in headers.
        HeaderValue::try_from(format!("{version}.{project}"))
            .unwrap_or(HeaderValue::from_static(""))
    }

    /// What the node says that passes the request on.
    fn told(request: &Request) -> Option<Self> {
        let told = request.headers.get(LOCATED).filter(|_| request.is_of_server())?;
        let (version, project) = told.to_str().ok()?.split_once('.')?;
        let project = match project {
            "" => None,
            project => Some(ProjectId(project.parse().ok()?)),
        };
        Some(Self { project, version: Some(version.parse().ok()?) })
    }
}

impl Cluster {
    /// The shard of a project; the first, if it is not known.
    pub(super) fn shard(&self, project: Option<ProjectId>) -> ShardId {
        let snapshot = self.node.metadata.snapshot();
        let project = project.and_then(|project| snapshot.project(project));
        project.map_or(ShardId::FIRST, |project| project.shard)
    }

    /// The project of a request.
    pub(super) async fn located(&self, route: &Route, request: &mut Request) -> Located {
        // Another node has looked. This one has to know whatever that one did.
        if let Some(located) = Located::told(request) {
            if self.node.metadata.snapshot().version < located.version {
                self.refresh().await;
            }
            return located;
        }
        // What people and programs edit is read as of now, whichever node they edited it on.
        if matches!(route, Route::Managed(_) | Route::Page(_)) {
            self.refresh().await;
        }
        let mut named = self.named(route, request).await;
        if matches!(named, Named::Project(None)) {
            self.refresh_for_unknown().await;
            named = self.named(route, request).await;
        }
        let project = match named {
            Named::Project(project) => project,
            Named::Nothing => None,
        };
        Located { project, version: self.node.metadata.snapshot().version }
    }

    /// The shard of a command that asks about a project: of its body, or of the query; without one it is the first.
    pub(super) async fn shard_of_command(&self, what: Internal, request: &mut Request) -> ShardId {
        let project = match what {
            Internal::Mcp => request.query("project").and_then(|project| project.parse().ok()),
            _ => match Fields::peek_all(request).await {
                Some(mut fields) => fields.nullable_integer("project").ok().flatten().flatten(),
                None => None,
            },
        };
        self.refresh().await;
        self.shard(Some(ProjectId(project.unwrap_or(1))))
    }

    async fn named(&self, route: &Route, request: &mut Request) -> Named {
        let snapshot = self.node.metadata.snapshot();
        match route {
            Route::Public(public) => self.named_to_public(public, request, &snapshot).await,
            Route::Managed(managed) => in_path(managed, request, &snapshot).await,
            Route::Page(pages::Route::Page(located)) => {
                Named::Project(located.project.parse().ok().map(ProjectId))
            }
            Route::Page(_) | Route::Internal(_) | Route::WrongMethod(_) | Route::Unknown => {
                Named::Nothing
            }
        }
    }

    async fn named_to_public(
        &self,
        public: &Public,
        request: &mut Request,
        snapshot: &Snapshot,
    ) -> Named {
        let by_number = |project: &str| project.parse().ok().map(ProjectId);
        match public {
            Public::Capture(kind) => self.named_in_body(kind.path(), request).await,
            Public::Discarded(_) => match self.named_in_body(PathKind::Modern, request).await {
                Named::Project(None) => by_token(request, snapshot),
                named => named,
            },
            Public::Flags => match self.named_in_body(PathKind::Legacy, request).await {
                Named::Project(None) => by_token(request, snapshot),
                named => named,
            },
            Public::Definitions(project) | Public::FlagPayload { project, .. } => {
                match by_number(project) {
                    Some(project) => Named::Project(Some(project)),
                    None => by_token(request, snapshot),
                }
            }
            Public::Start { token, .. } => {
                Named::Project(snapshot.project_by_token(token).map(|project| project.id))
            }
            Public::CaptureV1
            | Public::Otel
            | Public::FlagsWithoutSubject
            | Public::List(_)
            | Public::OfrepAll
            | Public::OfrepOne(_)
            | Public::FlagEvents => by_token(request, snapshot),
            Public::Mcp(project) => match by_number(project) {
                Some(project) => Named::Project(Some(project)),
                None => by_key(request, None, auth::CURRENT, snapshot),
            },
            Public::Shared(file) => {
                let token = file.strip_suffix(".json").unwrap_or(file);
                let share = shared::find(&self.node.metadata, token).await.ok();
                Named::Project(share.map(|share| share.project))
            }
            Public::Root
            | Public::Liveness
            | Public::Readiness
            | Public::Metrics
            | Public::Description
            | Public::Static(_)
            | Public::Llms
            | Public::LlmsFull => Named::Nothing,
        }
    }

    /// By the token in a body of events, or of a question about flags.
    async fn named_in_body(&self, path: PathKind, request: &mut Request) -> Named {
        let header = |name| request.headers.get(name).map(|value| value.as_bytes());
        let (content, coding) = (header("content-type"), header("content-encoding"));
        let hints = Hints::new(request.query_string(), content, coding, path);
        let limit_bytes = self.node.config.http.body_max_bytes.as_u64();
        let Some(body) = request.body.peek(limit_bytes).await.cloned() else {
            return Named::Nothing;
        };
        Named::Project(self.node.locator.project_of(body, hints).await.ok())
    }
}

/// By a token in the query or in a header.
fn by_token(request: &Request, snapshot: &Snapshot) -> Named {
    let in_query = request.query("token").or_else(|| request.query("api_key"));
    let header = |name| request.header(name).map(Cow::from);
    let in_header = || header("x-api-key").or_else(|| auth::project_token(request).map(Cow::from));
    let Some(token) = in_query.or_else(in_header) else { return Named::Nothing };
    Named::Project(snapshot.project_by_token(token.trim()).map(|project| project.id))
}

async fn in_path(managed: &Managed, request: &mut Request, snapshot: &Snapshot) -> Named {
    if !Root::Project.is_that_of(managed.endpoint.path) {
        return Named::Nothing;
    }
    if let Ok(number) = managed.owner.parse() {
        return Named::Project(Some(ProjectId(number)));
    }
    if let Named::Project(Some(project)) = by_token(request, snapshot) {
        return Named::Project(Some(project));
    }
    let in_body = auth::key_in_body(request).await;
    by_key(request, in_body.as_deref(), &managed.owner, snapshot)
}

/// By the owner of a personal key.
fn by_key(request: &Request, in_body: Option<&str>, project: &str, snapshot: &Snapshot) -> Named {
    let asker = auth::asker(snapshot, request, in_body).ok();
    Named::Project(asker.and_then(|asker| auth::named(snapshot, &asker.user, project)))
}
