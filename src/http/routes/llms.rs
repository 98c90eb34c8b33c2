//! `/llms.txt` and `/llms-full.txt`: what this server is, for models that read before they ask. Public, since they have
//! no stored data.

use std::fmt::Write;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::conditional;
use crate::conditional::Tag;
use crate::page::base_url;
use crate::request::Request;
use crate::response::Response;
use weir_app::App;
use weir_event::dictionary::TABLES;

/// The texts change only with the version of the program.
const CACHE: &str = "public, max-age=300";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A page of the guide: its name, what it is about, and its text in Markdown.
pub type Topic = (&'static str, &'static str, &'static str);

/// The guide, as the program has it.
#[derive(Clone, Debug, Default)]
pub struct Guide {
    topics: Vec<Topic>,
    whole: Bytes,
}

impl Guide {
    /// These pages, in their order.
    pub fn new(topics: Vec<Topic>) -> Self {
        let mut whole =
            String::from("# Weir\n\nThe guide of an event-analytics server, all of its pages.\n");
        for (name, _, text) in &topics {
            // Writing to a `String` does not fail.
            let _ = write!(whole, "\n\n<!-- {name} -->\n\n{text}");
        }
        Self { topics, whole: Bytes::from(whole) }
    }

    /// `/llms-full.txt`.
    pub(crate) fn whole(&self, request: &Request) -> Response {
        let body = || Response::bytes(StatusCode::OK, TEXT, self.whole.clone());
        conditional::respond(&request.headers, &Tag::of(&self.whole), CACHE, body)
    }

    /// `/llms.txt`.
    pub(crate) fn short(&self, app: &App, request: &Request) -> Response {
        let text = self.text(&base_url(request, app.node.config.http.public_url.as_deref()));
        let body = || Response::bytes(StatusCode::OK, TEXT, text.clone());
        conditional::respond(&request.headers, &Tag::of(text.as_bytes()), CACHE, body)
    }

    fn text(&self, server: &str) -> String {
        let tables = TABLES.map(|table| table.name).join(", ");
        let mut text = format!(
            "# Weir\n\n\
             > Event-analytics server: events in over the protocol of PostHog's SDKs, product analytics, feature flags and \
             SQL out. All but this needs a personal API key (`phx_...`) as `Authorization: Bearer`.\n\n\
             ## For programs\n\n\
             - [Tools for assistants]({server}/mcp): Model Context Protocol, streamable HTTP by POST, the key as Bearer; \
             `?project=ID` chooses a project\n\
             - [Description of the API]({server}/api/schema/): OpenAPI 3.1\n\
             - SQL: `POST {server}/api/projects/ID/query/` with `{{\"query\": \"SELECT ...\", \"format\": \"csv\"}}`, or \
             `GET {server}/api/projects/ID/query/?query=SELECT...&format=csv`. Tables: {tables}\n\
             - Columns of the tables with types, meanings and examples: `GET {server}/api/projects/ID/schema/`\n\
             - Parquet files of the tables, and views of them for DuckDB, for administrators: \
             `GET {server}/api/projects/ID/files/`\n\
             - [The guide as one text]({server}/llms-full.txt)\n\n\
             ## Topics of the guide\n\n"
        );
        for (name, about, _) in &self.topics {
            let _ = writeln!(text, "- {name}: {about}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Guide;

    #[test]
    fn the_texts_name_what_there_is() {
        let guide =
            Guide::new(vec![("queries", "SQL", "# Queries\n"), ("flags", "flags", "# Flags\n")]);
        let text = guide.text("https://a.example");
        for part in [
            "# Weir\n\n> ",
            "(https://a.example/mcp)",
            "(https://a.example/api/schema/)",
            "{\"query\": \"SELECT ...\"",
            "Tables: events, sessions, ",
            "/projects/ID/schema/`\n",
            "- queries: SQL\n- flags: flags\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let whole = String::from_utf8(guide.whole.to_vec()).unwrap();
        assert!(
            whole.contains("<!-- queries -->\n\n# Queries\n\n\n<!-- flags -->\n\n# Flags"),
            "{whole}"
        );
    }
}
