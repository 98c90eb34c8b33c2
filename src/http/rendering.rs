//! Formats of responses: [`Rendering`], and how one is chosen, by the path, the query or the headers of a request.

use hyper::header::HeaderValue;

use crate::request::Request;
use crate::response::Problem;
use weir_query::output::format::Format;

/// Format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// `application/json`.
    Json,
    /// `text/csv`.
    Csv,
    /// `application/x-ndjson`.
    JsonLines,
    /// `application/vnd.apache.parquet`.
    Parquet,
    /// `application/vnd.apache.arrow.stream`.
    Arrow,
}

/// The formats of SQL, one row each: name, which is also a suffix of paths; variant of [`Format`]; media type, what
/// follows it in headers, and whether it is a text. All lists and lookups are made from these rows.
macro_rules! formats {
    ($($name:literal $format:ident $media_type:literal $charset:literal $is_text:literal;)*) => {
        /// The formats of SQL, each with its media type; the first is the default.
        const FORMATS: &[(Format, &str)] = &[$((Format::$format, $media_type)),*];

        /// The names of these formats.
        pub const NAMES: [&str; FORMATS.len()] = [$($name),*];

        /// The media types of these formats, and whether each is a text; that of lines is there twice.
        pub(super) const MEDIA_TYPES: &[(&str, bool)] = &[$(($media_type, $is_text)),*];

        /// The format with this name.
        pub fn named(name: &str) -> Option<Format> {
            match name {
                $($name => Some(Format::$format),)*
                _ => None,
            }
        }

        /// The media type of a response in this format.
        pub fn media_type(format: Format) -> HeaderValue {
            HeaderValue::from_static(match format {
                $(Format::$format => concat!($media_type, $charset),)*
            })
        }
    };
}

formats! {
    "json"    Json      "application/x-ndjson"                ""                true;
    "jsonl"   JsonLines "application/x-ndjson"                ""                true;
    "csv"     Csv       "text/csv"                            "; charset=utf-8" true;
    "table"   Table     "text/plain"                          "; charset=utf-8" true;
    "parquet" Parquet   "application/vnd.apache.parquet"      ""                false;
    "arrow"   Arrow     "application/vnd.apache.arrow.stream" ""                false;
}

/// The formats that an endpoint supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renderings {
    /// JSON only.
    Json,
    /// JSON, and files of rows.
    JsonOrFile,
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
        let has_files = has == Renderings::JsonOrFile;
        if let Some(format) = format {
            let found = Self::named(format).filter(|own| has_files || *own == Self::Json);
            return found.ok_or_else(|| Problem::not_found("Not found."));
        }
        let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
            return Ok(Self::Json);
        };
        let ranges = accept.split(',').map(|range| range.split(';').next().unwrap_or_default());
        let mut wanted = ranges.filter_map(|range| match range.trim() {
            "*/*" | "application/*" | "application/json" => Some(Self::Json),
            "text/*" if has_files => Some(Self::Csv),
            other => {
                let mut files = FORMATS.iter().filter(|(format, _)| format.is_streamed());
                let file = files.find(|(_, media_type)| *media_type == other);
                file.filter(|_| has_files).and_then(|(format, _)| Self::of_format(*format))
            }
        });
        wanted.next().ok_or_else(Problem::not_acceptable)
    }

    /// The path without a suffix such as `.csv`, and the format of the suffix.
    pub fn of_suffix(path: &str) -> (&str, Option<Self>) {
        let named = path.rsplit_once('.').and_then(|(stem, name)| Some((stem, Self::named(name)?)));
        match named {
            Some((stem, rendering)) => (stem, Some(rendering)),
            None => (path, None),
        }
    }

    /// The format with this name.
    pub fn named(name: &str) -> Option<Self> {
        named(name).and_then(Self::of_format)
    }

    /// The format of responses with the name of this one of SQL; `None` for tables of terminals.
    fn of_format(format: Format) -> Option<Self> {
        match format {
            Format::Json => Some(Self::Json),
            Format::Csv => Some(Self::Csv),
            Format::JsonLines => Some(Self::JsonLines),
            Format::Parquet => Some(Self::Parquet),
            Format::Arrow => Some(Self::Arrow),
            Format::Table => None,
        }
    }

    /// The format of the rows in files of SQL; `None` for JSON, which is no file of rows.
    pub fn format(self) -> Option<Format> {
        match self {
            Self::Json => None,
            Self::Csv => Some(Format::Csv),
            Self::JsonLines => Some(Format::JsonLines),
            Self::Parquet => Some(Format::Parquet),
            Self::Arrow => Some(Format::Arrow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FORMATS, NAMES, Rendering, Renderings, media_type, named};
    use crate::response::Response;

    #[test]
    fn formats_have_their_names() {
        let formats: Vec<_> = FORMATS.iter().map(|(format, _)| Some(*format)).collect();
        assert_eq!(NAMES.map(named).to_vec(), formats);
        for (format, plain) in FORMATS {
            let media_type = media_type(*format);
            assert!(media_type.to_str().unwrap().starts_with(plain), "{media_type:?}");
        }
        // The name of a suffix and of `format=`: the same, but for tables of terminals.
        let renderings = NAMES.map(|name| Rendering::named(name).and_then(Rendering::format));
        let files = FORMATS.iter().map(|(format, _)| format.is_streamed().then_some(*format));
        assert_eq!(renderings.to_vec(), files.collect::<Vec<_>>());
    }

    /// Django REST Framework, `negotiation.py`: a suffix and `format` filter the renderers (404 if
    /// none is left), `Accept` chooses among them (406 if it cannot).
    #[test]
    fn the_rendering_is_negotiated() {
        use Rendering::{Csv, Json};
        use Renderings::JsonOrFile;
        for (has, suffix, format, accept, expected) in [
            (JsonOrFile, None, None, None, Ok(Json)),
            (JsonOrFile, None, None, Some("*/*"), Ok(Json)),
            (JsonOrFile, None, None, Some("text/csv"), Ok(Csv)),
            (JsonOrFile, None, None, Some("text/html, text/csv;q=0.9, */*;q=0.1"), Ok(Csv)),
            (JsonOrFile, None, None, Some("text/html"), Err(406)),
            (JsonOrFile, None, Some("csv"), Some("application/json"), Ok(Csv)),
            (JsonOrFile, None, Some("json"), Some("text/csv"), Ok(Json)),
            (JsonOrFile, None, Some("xml"), None, Err(404)),
            (JsonOrFile, Some(Csv), None, Some("application/json"), Ok(Csv)),
            (JsonOrFile, None, Some("jsonl"), None, Ok(Rendering::JsonLines)),
            (JsonOrFile, None, Some("arrow"), None, Ok(Rendering::Arrow)),
            (
                JsonOrFile,
                None,
                None,
                Some("application/vnd.apache.parquet"),
                Ok(Rendering::Parquet),
            ),
            (Renderings::Json, None, Some("parquet"), None, Err(404)),
            (Renderings::Json, None, None, Some("application/x-ndjson"), Err(406)),
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
