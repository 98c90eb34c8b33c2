//! An operation over HTTP: authenticates the caller, checks the rights, reads the input, performs it, responds. In this
//! order, so that a caller without the rights learns nothing else about the operation.

use std::future::Future;
use std::pin::Pin;

use hyper::Method;

use crate::auth::Asker;
use crate::fields::Fields;
use crate::operation::input::{Parts, Reading};
use crate::operation::output::{Output, Reply};
use crate::operation::{Caller, Context, Operation};
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::{multipart, operation};
use weir_app::App;

/// A function that serves a request to an operation.
pub type Serve = for<'a> fn(&'a App, Arrived) -> Serving<'a>;

/// A future response.
pub type Serving<'a> = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send + 'a>>;

/// An authenticated request to the endpoint of an operation.
#[derive(Debug)]
pub struct Arrived {
    /// The project or organization in the path; empty without one.
    pub owner: String,
    /// Names and values of the `:names` in the path.
    pub path: Vec<(&'static str, String)>,
    /// The format of the response; an unsupported format is refused after the rights are checked.
    pub rendering: Result<Rendering, Problem>,
    /// The authenticated caller.
    pub asker: Asker,
    /// The request, its body unread.
    pub request: Request,
}

/// Reads an operation from a request, performs it, and responds.
pub fn serve<O: Operation>(app: &App, arrived: Arrived) -> Serving<'_> {
    Box::pin(async move {
        let begun = begin(app, arrived, operation::check::<O>, O::READING).await?;
        let Begun { cx, request, path, body } = begun;
        let take = |body| O::take(&mut Parts { request: &request, path: &path, body });
        let operation = match body.and_then(take) {
            Ok(operation) => operation,
            Err(problem) => {
                O::look_up(&cx, &path).await?;
                return Err(problem);
            }
        };
        let out = operation.perform(&cx).await?;
        out.respond(&Reply { app, request: &request, rendering: cx.rendering }).await
    })
}

/// A request whose caller has the rights to its operation; its input is not read yet.
struct Begun<Who> {
    cx: Context<Who>,
    request: Request,
    path: Vec<(&'static str, String)>,
    body: Result<Fields, Problem>,
}

async fn begin<Who: Caller>(
    app: &App,
    arrived: Arrived,
    check: fn(&Who) -> Result<(), Problem>,
    reading: Reading,
) -> Result<Begun<Who>, Problem> {
    let Arrived { owner, path, rendering, asker, mut request } = arrived;
    let snapshot = app.node.metadata.snapshot();
    let who = Who::of_path(&snapshot, &request, asker, &owner, &path)?;
    check(&who)?;
    let rendering = rendering?;
    let memory = request.memory();
    let cx = Context { app: app.clone(), who, rendering, memory, is_drawn: false };
    let body = fields(app, &mut request, reading).await;
    Ok(Begun { cx, request, path, body })
}

/// Reads the fields of a body.
async fn fields(app: &App, request: &mut Request, reading: Reading) -> Result<Fields, Problem> {
    match reading {
        Reading::Nothing => Ok(Fields::default()),
        Reading::ObjectOfPost if request.method != Method::POST => Ok(Fields::default()),
        Reading::Object | Reading::ObjectOfPost => Fields::take(request).await,
        Reading::List => Fields::take_many(request).await,
        Reading::ObjectOrForm(read) => {
            let content_type = request.header("content-type").unwrap_or_default().to_owned();
            if !multipart::is_it(&content_type) {
                return Fields::take(request).await;
            }
            let bytes_max = app.node.config.http.body_max_bytes.as_u64();
            let body = request.body.take().read(bytes_max).await?;
            read(&content_type, &body)
        }
    }
}
