//! Common parts of pages: texts of JSON, times, numbers, notes, pagers, URLs.

use bytesize::ByteSize;
use chrono::DateTime;
use chrono_tz::Tz;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::chart::figure::grouped;

/// Longest names in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Longest value in a cell, in characters.
const CELL_MAX_CHARS: usize = 300;

/// Reason why a list with a property has no SQL.
pub const NO_SQL_OF_PROPERTY: &str = "No path in JSON is called as this property is, or SQL does not compare this value as lists do.";

/// Most columns of a table that a form may name.
const COLUMNS_MAX: usize = 10;

/// A value as text: a string itself, anything else as JSON.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A value as text of at most 300 characters.
pub fn short(value: &Value) -> String {
    cell(&plain(value))
}

/// A text of at most 300 characters.
pub fn cell(text: &str) -> String {
    clipped(text, CELL_MAX_CHARS)
}

/// The beginning of a text, with an ellipsis if it is longer.
pub fn clipped(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// Percent-encodes a path segment.
pub fn part(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A text as an SQL literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A query string of these parameters, without empty ones.
pub fn query(parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    query.finish()
}

/// The address of a page of a project.
pub fn page(project: i64, path: &str) -> String {
    format!("/project/{project}/{path}")
}

/// The address of a person.
pub fn person(project: i64, distinct_id: &str) -> String {
    format!("/project/{project}/person/{}", part(distinct_id))
}

/// A moment (RFC 3339) in a time zone; any other text unchanged.
pub fn time(moment: &str, zone: Tz) -> Markup {
    match DateTime::parse_from_rfc3339(moment) {
        Ok(_) => {
            html! { time datetime=(moment) title=(format!("{moment} ({zone})")) { (local(moment, zone)) } }
        }
        Err(_) => html! { (clipped(moment, CELL_MAX_CHARS)) },
    }
}

/// The same as a text.
pub fn local(moment: &str, zone: Tz) -> String {
    match DateTime::parse_from_rfc3339(moment) {
        Ok(time) => time.with_timezone(&zone).format("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => clipped(moment, CELL_MAX_CHARS),
    }
}

/// An integer with commas between thousands, as in charts.
pub fn number(number: i64) -> String {
    let shown = grouped(&number.unsigned_abs().to_string());
    if number < 0 { format!("\u{2212}{shown}") } else { shown }
}

/// A size.
pub fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// Error message in place of a result.
pub fn failed(detail: &str) -> Markup {
    html! { div class="problem" role="alert" { p { strong { "The request failed. " } (detail) } } }
}

/// A status message.
pub fn note(text: &str) -> Markup {
    html! { div class="note" role="status" { p { (text) } } }
}

/// A text with a copy button, such as a command. `id` is that of the element.
pub fn code(id: &str, text: &str) -> Markup {
    html! {
        div class="copied" {
            pre tabindex="0" { code id=(id) { (text) } }
            button class="small" type="button" data-copy=(id) { "Copy" }
        }
    }
}

/// File formats: the name in addresses and the displayed one.
pub const FILES: [(&str, &str); 5] = [
    ("csv", "CSV"),
    ("json", "JSON"),
    ("jsonl", "JSON lines"),
    ("parquet", "Parquet"),
    ("arrow", "Arrow"),
];

/// Download links of the page's data in each format; `link` makes the address of one.
pub fn files(link: impl Fn(&str) -> String) -> Markup {
    html! {
        span class="files" {
            "As a file: "
            @for (format, title) in FILES {
                a href=(link(format)) data-file=(format) { (title) } " "
            }
        }
    }
}

/// Ways to run the same query elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere<'t> {
    /// SQL for the SQL page, if there is any.
    pub sql: Option<&'t str>,
    /// SQL for DuckDB over the files, or why there is none.
    pub duckdb: Result<&'t str, &'static str>,
    /// A curl command for the API.
    pub curl: &'t str,
}

/// Ways to run the same query elsewhere: each text with a copy button.
pub fn source(project: i64, own: &Elsewhere<'_>) -> Markup {
    html! {
        details class="source" {
            summary { "Use this query elsewhere" }
            div {
                @if let Some(sql) = own.sql {
                    h3 { "As SQL " a href=(format!("{}?{}", page(project, "sql"), query(&[("q", sql)]))) { "Open" } }
                    (code("as-sql", sql))
                }
                h3 { "In DuckDB" }
                @match own.duckdb {
                    Ok(sql) => {
                        p { "It reads the files of this server, which have what came in a moment ago a little later." }
                        (code("as-duckdb", sql))
                    },
                    Err(reason) => p { (reason) },
                }
                h3 { "With a personal API key" }
                (code("as-curl", own.curl))
            }
        }
    }
}

/// Links to the previous and next page of a list; `link` makes the address of an offset.
pub fn pager(
    offset: usize,
    limit: usize,
    has_next: bool,
    link: impl Fn(usize) -> String,
) -> Markup {
    html! {
        @if offset > 0 || has_next {
            nav class="pager" aria-label="Pages of the list" {
                @if offset > 0 { a rel="prev" href=(link(offset.saturating_sub(limit))) { "← Before" } }
                @if has_next { a rel="next" href=(link(offset.saturating_add(limit))) { "Next →" } }
            }
        }
    }
}

/// Properties as a table of names and values.
pub fn properties(value: &Value) -> Markup {
    properties_of(value.as_object().unwrap_or(&Map::new()))
}

/// The same for an object that is present.
pub fn properties_of(object: &Map<String, Value>) -> Markup {
    if object.is_empty() {
        return html! { p class="quiet" { "No properties." } };
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Properties" {
            table {
                thead { tr { th { "Property" } th { "Value" } th { "Type" } } }
                tbody {
                    @for (name, value) in object {
                        tr {
                            th scope="row" { (clipped(name, CELL_MAX_CHARS)) }
                            td { (value_of(value)) }
                            td class="quiet short" { (type_of(value)) }
                        }
                    }
                }
            }
        }
    }
}

/// A property value. Web addresses are links that send no referrer.
fn value_of(value: &Value) -> Markup {
    let shown = short(value);
    match value.as_str().filter(|text| is_web_address(text)) {
        Some(address) => {
            html! { a href=(address) rel="noreferrer nofollow noopener" target="_blank" { (shown) } }
        }
        None => html! { (shown) },
    }
}

/// Whether a text is an address that a link may have: http or https, and only visible ASCII, so that nothing disguises
/// it.
pub fn is_web_address(text: &str) -> bool {
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    is_web && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// A search form that preserves the other parameters of the address.
pub fn search(
    project: i64,
    path: &str,
    (label, wanted): (&str, &str),
    kept: &[(&str, &str)],
) -> Markup {
    html! {
        form class="bar" method="get" action=(page(project, path)) role="search" {
            @for (name, value) in kept.iter().filter(|(_, value)| !value.is_empty()) {
                input type="hidden" name=(name) value=(value);
            }
            label { (label) input class="wide" type="search" name="search" value=(wanted) maxlength="400"; }
            button class="main" { "Search" }
        }
    }
}

/// The property names of columns in a form, separated by commas, at most `COLUMNS_MAX`.
pub fn columns(names: &str) -> Vec<&str> {
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).take(COLUMNS_MAX).collect()
}

/// The value of a flag, as a badge.
pub fn flag_value(value: &Value) -> Markup {
    match value {
        Value::Bool(true) => html! { span class="badge good" { "true" } },
        Value::Bool(false) | Value::Null => html! { span class="badge" { "false" } },
        other => html! { span class="badge good" { (short(other)) } },
    }
}

/// A name for display, which may be empty.
pub fn title(name: &str) -> String {
    if name.trim().is_empty() { "(no name)".to_owned() } else { clipped(name, NAME_MAX_CHARS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_readable() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-1_234_567, "\u{2212}1,234,567"),
            (i64::MIN, "\u{2212}9,223,372,036,854,775,808"),
        ] {
            assert_eq!(number(value), expected);
        }
        for (bytes, expected) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (u64::MAX, "16.0 EiB")]
        {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn only_addresses_of_the_web_are_links() {
        for (address, expected) in [
            ("https://x/", true),
            ("http://x?a=%22", true),
            ("javascript:alert(1)", false),
            ("JAVASCRIPT:alert(1)", false),
            (" https://x", false),
            ("https://x\u{202e}y", false),
            ("data:text/html,x", false),
        ] {
            assert_eq!(is_web_address(address), expected, "{address}");
        }
        let shown = properties(&serde_json::json!({"<b>": "https://x\"><script>"})).0;
        assert!(shown.contains("&lt;b&gt;") && !shown.contains("<script"), "{shown}");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clipped("äöü", 2), "äö…");
        assert_eq!(clipped("äö", 2), "äö");
    }
}
