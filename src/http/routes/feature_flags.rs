//! Placeholder.

use crate::app::App;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;

macro_rules! none { () => { Err(Problem::not_found("Not found.")) } }
pub async fn flags(_: &App, _: Request) -> Result<Response, Problem> { none!() }
pub fn list(_: &App, _: &str, _: &Request) -> Result<Response, Problem> { none!() }
pub async fn create(_: &App, _: &str, _: Request) -> Result<Response, Problem> { none!() }
pub async fn update(_: &App, _: &str, _: &str, _: Request) -> Result<Response, Problem> { none!() }
pub async fn retrieve(_: &App, _: &str, _: &str, _: Request) -> Result<Response, Problem> { none!() }
