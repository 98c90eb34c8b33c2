//! Query parameters shared by event definitions and property definitions: ids, booleans and lists of
//! names.

use uuid::Uuid;

use crate::fields::refused;
use crate::request::Request;
use crate::response::Problem;
use weir_event::json;

/// The id in a path; 404 if it is not a uuid.
pub(super) fn id(text: &str) -> Result<Uuid, Problem> {
    Uuid::try_parse(text).map_err(|_| Problem::not_found("Not found."))
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
pub(super) fn names(request: &Request, name: &'static str) -> Result<Option<Vec<String>>, Problem> {
    let Some(text) = request.query(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let names = json::read(text.as_bytes()).map(Some);
    names.map_err(|_| refused(name, "invalid_input", "Must be a JSON list of names."))
}
