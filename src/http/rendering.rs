//! Formats of responses: [`Rendering`], and how one is chosen, by the path, the query or the headers of a request.

use crate::request::Request;
use crate::response::Problem;

/// Format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// `application/json`.
    Json,
    /// `text/csv`.
    Csv,
}

/// The formats that an endpoint supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renderings {
    /// JSON only.
    Json,
    /// JSON and CSV.
    JsonOrCsv,
    /// The endpoint chooses by a field of the body, whatever the request accepts.
    Own,
}

impl Rendering {
    /// The format of the response to a request, whose path has this suffix.
    ///
    /// # Errors
    ///
    /// As [`Self::choose`].
    pub fn of(has: Renderings, suffix: Option<Self>, request: &Request) -> Result<Self, Problem> {
        let format = request.query("format");
        Self::choose(has, suffix, format.as_deref(), request.header("accept"))
    }

    /// Chooses the format of a request: by the suffix of its path, else by `format` in its query,
    /// else by its `Accept`.
    ///
    /// # Errors
    ///
    /// 404 for a `format` that the endpoint does not support, 406 for such an `Accept`; both as in
    /// Django REST Framework.
    pub fn choose(
        has: Renderings,
        suffix: Option<Self>,
        format: Option<&str>,
        accept: Option<&str>,
    ) -> Result<Self, Problem> {
        if has == Renderings::Own {
            return Ok(Self::Json);
        }
        if let Some(suffix) = suffix {
            return Ok(suffix);
        }
        let has_csv = has == Renderings::JsonOrCsv;
        match format {
            Some("json") => return Ok(Self::Json),
            Some("csv") if has_csv => return Ok(Self::Csv),
            Some(_) => return Err(Problem::not_found("Not found.")),
            None => {}
        }
        let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
            return Ok(Self::Json);
        };
        let ranges = accept.split(',').map(|range| range.split(';').next().unwrap_or_default());
        let mut wanted = ranges.filter_map(|range| match range.trim() {
            "*/*" | "application/*" | "application/json" => Some(Self::Json),
            "text/csv" | "text/*" if has_csv => Some(Self::Csv),
            _ => None,
        });
        wanted.next().ok_or_else(Problem::not_acceptable)
    }

    /// The path without a suffix such as `.csv`, and the format of the suffix.
    pub fn of_suffix(path: &str) -> (&str, Option<Self>) {
        if let Some(stem) = path.strip_suffix(".csv") {
            return (stem, Some(Self::Csv));
        }
        match path.strip_suffix(".json") {
            Some(stem) => (stem, Some(Self::Json)),
            None => (path, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rendering, Renderings};
    use crate::response::Response;

    /// Django REST Framework, `negotiation.py`: a suffix and `format` filter the renderers (404 if
    /// none is left), `Accept` chooses among them (406 if it cannot).
    #[test]
    fn the_rendering_is_negotiated() {
        use Rendering::{Csv, Json};
        use Renderings::JsonOrCsv;
        for (has, suffix, format, accept, expected) in [
            (JsonOrCsv, None, None, None, Ok(Json)),
            (JsonOrCsv, None, None, Some("*/*"), Ok(Json)),
            (JsonOrCsv, None, None, Some("text/csv"), Ok(Csv)),
            (JsonOrCsv, None, None, Some("text/html, text/csv;q=0.9, */*;q=0.1"), Ok(Csv)),
            (JsonOrCsv, None, None, Some("text/html"), Err(406)),
            (JsonOrCsv, None, Some("csv"), Some("application/json"), Ok(Csv)),
            (JsonOrCsv, None, Some("json"), Some("text/csv"), Ok(Json)),
            (JsonOrCsv, None, Some("xml"), None, Err(404)),
            (JsonOrCsv, Some(Csv), None, Some("application/json"), Ok(Csv)),
            (Renderings::Json, None, None, Some("text/csv"), Err(406)),
            (Renderings::Json, None, Some("csv"), None, Err(404)),
            (Renderings::Json, None, None, Some(""), Ok(Json)),
            (Renderings::Own, None, None, Some("application/vnd.apache.parquet"), Ok(Json)),
        ] {
            let found = Rendering::choose(has, suffix, format, accept)
                .map_err(|problem| Response::from(problem).status.as_u16());
            assert_eq!(found, expected, "{has:?} {suffix:?} {format:?} {accept:?}");
        }
    }
}
