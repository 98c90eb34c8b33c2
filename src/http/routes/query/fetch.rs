//! `GET query/?query=SELECT ...&format=csv`: SQL in an address, for programs that read a file from one, such as
//! `read_csv` of pandas and of DuckDB.

use std::future::ready;

use futures::stream;
use hyper::StatusCode;

use crate::auth::Principal;
use crate::fields::refused;
use crate::openapi::{Parameter, Shape, Success};
use crate::operation::input::{InQuery, Needed, input};
use crate::operation::output::{Output, Reply};
use crate::operation::{Context, Operation};
use crate::rendering::{MEDIA_TYPES, NAMES, media_type, named};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::query::{answer, file_of};
use weir_query::kernel::files::File;
use weir_query::output::format::Format;

/// The format of a file, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Wanted(Format);

impl InQuery for Wanted {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::one_of(name, &NAMES).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let sent = request.query(name).unwrap_or_default();
        if sent.is_empty() {
            return Ok(Self(Format::Json));
        }
        named(&sent).map(Self).ok_or_else(|| {
            let detail = format!("There is no such format; there is {}.", NAMES.join(", "));
            refused(name, "invalid_choice", detail)
        })
    }
}

input! {
    /// Answers a text of SQL.
    pub struct Fetch {
        /// One statement of SQL
        query query: Needed,
        /// The format of the rows; json by default, one object a line, with query-rows-max rows at most
        query format: Wanted,
    }
}

/// The rows in a format.
#[derive(Debug)]
pub struct Fetched(Format, File);

impl Output for Fetched {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success { status: StatusCode::OK, says: "The rows", schema: None });
        shape.files = MEDIA_TYPES;
    }

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        let Self(format, file) = self;
        let bytes = match file {
            File::Whole(bytes) => bytes,
            long @ File::Long(_) => return Ok(answer::file(format, long)),
        };
        // Without a length: rows without ORDER BY come in another order each time, so the next answer, of which a reader
        // of HEAD would ask for ranges, may have another one.
        let whole = stream::once(ready(Ok(bytes)));
        Ok(Response::stream(StatusCode::OK, media_type(format), whole))
    }
}

impl Operation for Fetch {
    type Who = Principal;
    type Out = Fetched;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Self { query: Needed(sql), format: Wanted(format) } = self;
        Ok(Fetched(format, file_of(&cx.app, &cx.who.project, &sql, format).await?))
    }
}
