//! URL functions. As in ClickHouse they follow no standard but search for the delimiters of parts, and a missing part
//! is an empty text.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListBuilder, StringViewBuilder};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::functions::own::{Own, Takes, list_of, of_text, text, texts};

const ONE: &[Takes] = &[Takes::Text];
const TWO: &[Takes] = &[Takes::Text, Takes::Text];

/// All functions of this file.
pub(super) const ALL: &[Own] = &[
    Own::new("protocol", ONE, text, |sent| part(sent, protocol)),
    Own::new("domain", ONE, text, |sent| part(sent, domain)),
    Own::new("domainWithoutWWW", ONE, text, |sent| part(sent, without_www)),
    Own::new("topLevelDomain", ONE, text, |sent| part(sent, top_level)),
    Own::new("path", ONE, text, |sent| part(sent, path)),
    Own::new("pathFull", ONE, text, |sent| part(sent, path_full)),
    Own::new("queryString", ONE, text, |sent| part(sent, query)),
    Own::new("fragment", ONE, text, |sent| part(sent, fragment)),
    Own::new("cutQueryString", ONE, text, |sent| cut(sent, &without_query)),
    Own::new("cutFragment", ONE, text, |sent| {
        cut(sent, &|url| url.split('#').next().unwrap_or("").into())
    }),
    Own::new("cutQueryStringAndFragment", ONE, text, |sent| cut(sent, &without_both)),
    Own::new("cutWWW", ONE, text, |sent| cut(sent, &cut_www)),
    Own::new("decodeURLComponent", ONE, text, |sent| cut(sent, &decoded)),
    Own::new("decodeURLFormComponent", ONE, text, |sent| {
        cut(sent, &|url| decoded(&url.replace('+', " ")).into_owned().into())
    }),
    Own::new("encodeURLFormComponent", ONE, text, |sent| {
        cut(sent, &|own| encoded(own).replace("%20", "+").into())
    }),
    Own::new("netloc", ONE, text, |sent| part(sent, netloc)),
    Own::new("port", ONE, |_| Ok(DataType::Int64), port),
    Own::new("queryStringAndFragment", ONE, text, |sent| part(sent, query_and_fragment)),
    Own::new("encodeURLComponent", ONE, text, |sent| cut(sent, &encoded)),
    Own::new("extractURLParameter", TWO, text, parameter),
    Own::new(
        "extractURLParameters",
        ONE,
        |_| Ok(list_of(DataType::Utf8View)),
        |sent| all(sent, false),
    ),
    Own::new(
        "extractURLParameterNames",
        ONE,
        |_| Ok(list_of(DataType::Utf8View)),
        |sent| all(sent, true),
    ),
    Own::new("cutURLParameter", TWO, text, without_parameter),
];

/// A part of each URL.
fn part(sent: &[ArrayRef], of: fn(&str) -> &str) -> Result<ArrayRef> {
    Ok(of_text(texts(sent, 0)?, |url| Some(of(url))))
}

/// Transforms each URL.
fn cut(sent: &[ArrayRef], of: &dyn Fn(&str) -> Cow<'_, str>) -> Result<ArrayRef> {
    Ok(of_text(texts(sent, 0)?, |url| Some(of(url).into_owned())))
}

fn protocol(url: &str) -> &str {
    let is_one = |name: &&str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    url.split_once("://").map(|(name, _)| name).filter(is_one).unwrap_or("")
}

/// The rest after the protocol; `//` alone is enough.
fn behind_protocol(url: &str) -> Option<&str> {
    let name = protocol(url);
    match name.is_empty() {
        true => url.strip_prefix("//"),
        false => url.get(name.len() + 3..),
    }
}

/// The end of the host.
fn host_end(rest: &str) -> usize {
    rest.find(['/', '?', '#']).unwrap_or(rest.len())
}

fn domain(url: &str) -> &str {
    let rest = behind_protocol(url).unwrap_or(url);
    let host = rest.get(..host_end(rest)).unwrap_or("");
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    // Without a protocol, it is a host only if it looks like one.
    let is_known = behind_protocol(url).is_some() || host.contains('.');
    let is_one =
        |host: &str| !host.contains([' ', '\t', '<', '>', '%', '{', '}', '|', '\\', '^', '~']);
    if is_known && is_one(host) { host } else { "" }
}

/// The user, the host and the port.
fn netloc(url: &str) -> &str {
    let rest = behind_protocol(url).unwrap_or(url);
    rest.get(..host_end(rest)).unwrap_or("")
}

/// The number of the port; 0 if there is none.
fn port(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let of = |url: &str| {
        let host = netloc(url).rsplit('@').next().unwrap_or("");
        let behind = host.rsplit(']').next().unwrap_or("");
        behind.split_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).map_or(0, i64::from)
    };
    let ports = texts(sent, 0)?.iter().map(|url| url.map(of));
    Ok(Arc::new(ports.collect::<Int64Array>()))
}

/// The rest after the path, without its `?` but with the `#` of the fragment.
fn query_and_fragment(url: &str) -> &str {
    match url.find(['?', '#']) {
        Some(at) if url.get(at..).is_some_and(|rest| rest.starts_with('?')) => {
            url.get(at + 1..).unwrap_or("")
        }
        Some(at) => url.get(at..).unwrap_or(""),
        None => "",
    }
}

fn without_www(url: &str) -> &str {
    let host = domain(url);
    host.strip_prefix("www.").unwrap_or(host)
}

fn top_level(url: &str) -> &str {
    let host = domain(url);
    let is_address =
        host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') || host.contains(':');
    match host.rsplit_once('.') {
        Some((_, last)) if !is_address => last,
        _ => "",
    }
}

/// The rest from the first `/` after the host.
fn path_full(url: &str) -> &str {
    let rest = match behind_protocol(url) {
        Some(rest) => rest,
        None if url.starts_with('/') => return url,
        None => url,
    };
    rest.get(host_end(rest)..).filter(|rest| rest.starts_with('/')).unwrap_or("")
}

fn path(url: &str) -> &str {
    path_full(url).split(['?', '#']).next().unwrap_or("")
}

fn query(url: &str) -> &str {
    let url = url.split('#').next().unwrap_or("");
    url.split_once('?').map_or("", |(_, query)| query)
}

fn fragment(url: &str) -> &str {
    url.split_once('#').map_or("", |(_, fragment)| fragment)
}

fn without_query(url: &str) -> Cow<'_, str> {
    let (before, after) = url.split_once('#').map_or((url, None), |(a, b)| (a, Some(b)));
    match (before.split_once('?'), after) {
        (None, _) => url.into(),
        (Some((kept, _)), None) => kept.into(),
        (Some((kept, _)), Some(after)) => format!("{kept}#{after}").into(),
    }
}

fn without_both(url: &str) -> Cow<'_, str> {
    url.split(['?', '#']).next().unwrap_or("").into()
}

fn cut_www(url: &str) -> Cow<'_, str> {
    match behind_protocol(url) {
        Some(rest) => match (rest.strip_prefix("www."), url.len().checked_sub(rest.len())) {
            (Some(kept), Some(at)) => format!("{}{kept}", url.get(..at).unwrap_or("")).into(),
            _ => url.into(),
        },
        None => url.into(),
    }
}

/// Percent-decodes the URL, as far as the bytes are valid text.
fn decoded(url: &str) -> Cow<'_, str> {
    percent_decode_str(url).decode_utf8_lossy()
}

/// All characters except RFC 3986's unreserved ones.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn encoded(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, ENCODED).into()
}

/// Parameters of the query string and of the fragment.
fn parameters(url: &str) -> impl Iterator<Item = &str> {
    let behind = url.split_once(['?', '#']).map_or("", |(_, behind)| behind);
    behind.split(['&', '#', '?']).filter(|parameter| parameter.contains('='))
}

/// The value of the parameter with a name.
fn parameter(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (urls, names) = (texts(sent, 0)?, texts(sent, 1)?);
    let mut given = StringViewBuilder::with_capacity(urls.len());
    for (url, name) in urls.iter().zip(names.iter()) {
        given.append_option(url.zip(name).map(|(url, name)| {
            let mut values = parameters(url).filter_map(|own| own.split_once('='));
            values.find(|(own, _)| *own == name).map_or("", |(_, value)| value)
        }));
    }
    Ok(Arc::new(given.finish()))
}

fn all(sent: &[ArrayRef], is_of_names: bool) -> Result<ArrayRef> {
    let mut given = ListBuilder::new(StringViewBuilder::new());
    for url in texts(sent, 0)? {
        let Some(url) = url else {
            given.append_null();
            continue;
        };
        for parameter in parameters(url) {
            let name = parameter.split('=').next().unwrap_or("");
            given.values().append_value(if is_of_names { name } else { parameter });
        }
        given.append(true);
    }
    Ok(Arc::new(given.finish()))
}

fn without_parameter(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (urls, names) = (texts(sent, 0)?, texts(sent, 1)?);
    let mut given = StringViewBuilder::with_capacity(urls.len());
    for (url, name) in urls.iter().zip(names.iter()) {
        given.append_option(url.zip(name).map(|(url, name)| {
            let Some((before, behind)) = url.split_once('?') else { return url.to_owned() };
            let (query, fragment) =
                behind.split_once('#').map_or((behind, None), |(a, b)| (a, Some(b)));
            let is_other = |own: &&str| own.split('=').next() != Some(name);
            let kept: Vec<&str> = query.split('&').filter(is_other).collect();
            let query =
                if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
            let fragment = fragment.map_or(String::new(), |fragment| format!("#{fragment}"));
            format!("{before}{query}{fragment}")
        }));
    }
    Ok(Arc::new(given.finish()))
}
