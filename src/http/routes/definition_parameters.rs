//! Shared by event definitions and property definitions: parameters of lists, and notes of users.

use crate::auth::Principal;
use crate::fields::refused;
use crate::openapi::{Parameter, Shape};
use crate::operation::Context;
use crate::operation::input::InQuery;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::query::problems;
use crate::routes::user_body::user;
use weir_api::definitions as api;
use weir_event::json;
use weir_metadata::accounts::UserId;
use weir_metadata::annotations::Notes;
use weir_metadata::snapshot::Snapshot;

/// A boolean parameter in Django's notation ([`boolean`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Truth(pub Option<bool>);

impl Truth {
    /// Whether it is given and true.
    pub fn is_true(self) -> bool {
        self.0 == Some(true)
    }
}

impl InQuery for Truth {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::boolean(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        boolean(request, name).map(Self)
    }
}

/// A boolean parameter in Django's notation. An empty one counts as absent.
pub(super) fn boolean(request: &Request, name: &'static str) -> Result<Option<bool>, Problem> {
    let Some(text) = request.query(name) else { return Ok(None) };
    match text.to_lowercase().as_str() {
        "" | "null" => Ok(None),
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Some(true)),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(Some(false)),
        _ => Err(refused(name, "invalid_input", "Must be a valid boolean.")),
    }
}

/// A parameter with a JSON list of names. An empty one counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Names(pub Option<Vec<String>>);

impl InQuery for Names {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let text = request.query(name).filter(|text| !text.is_empty());
        let Some(text) = text else { return Ok(Self(None)) };
        let names = json::read(text.as_bytes()).map(|names| Self(Some(names)));
        names.map_err(|_| refused(name, "invalid_input", "Must be a JSON list of names."))
    }
}

/// The words of a search, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Terms(pub Vec<String>);

impl Terms {
    /// Splits a text into words.
    pub fn of(text: &str) -> Self {
        Self(text.split_whitespace().map(str::to_lowercase).collect())
    }
}

impl InQuery for Terms {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::shared(name));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        Ok(Self::of(&request.query(name).unwrap_or_default()))
    }
}

/// Waits until the definitions include the events acknowledged so far; they are derived from the log.
pub(super) async fn caught_up(cx: &Context<Principal>) -> Result<(), Problem> {
    cx.app.engine.wait().await.map_err(problems::problem)
}

/// The notes of users on a definition; `snapshot` contains these users.
pub(super) fn notes(notes: &Notes, snapshot: &Snapshot) -> api::Notes {
    let user = |id: Option<UserId>| snapshot.user(id?).map(|found| user(found));
    api::Notes {
        description: notes.description.clone(),
        updated_at: notes.updated_at.map(|at| at.to_rfc3339()),
        updated_by: user(notes.updated_by),
        verified: notes.verified,
        verified_at: notes.verified_at.map(|at| at.to_rfc3339()),
        verified_by: user(notes.verified_by),
        hidden: notes.hidden,
    }
}
