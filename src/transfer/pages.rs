//! Lists that come in pages: [`Pages`], which follows `next` on the same server, within limits.

use std::collections::HashSet;

use serde_json::Value;
use url::Url;

use crate::fault::{Fault, What};
use crate::server::Server;

/// Most pages of one list.
const PAGES_MAX: usize = 200_000;

/// Most pages without a row, one after the other.
const EMPTY_PAGES_MAX: usize = 20;

/// Most objects of a list that is held in memory.
const LIST_MAX_ITEMS: usize = 100_000;

/// Most bytes of a list that is held in memory.
const LIST_MAX_BYTES: usize = 256 << 20;

/// The pages of one list.
#[derive(Debug)]
pub struct Pages<'s> {
    server: &'s Server,
    next: Option<String>,
    seen: HashSet<String>,
    empty: usize,
    bytes: usize,
}

impl<'s> Pages<'s> {
    /// The list at a path.
    pub fn new(server: &'s Server, path: &str) -> Self {
        let next = Some(path.to_owned());
        Self { server, next, seen: HashSet::new(), empty: 0, bytes: 0 }
    }

    /// The rows of the next page; `None` after the last one.
    ///
    /// # Errors
    ///
    /// The server does not answer with a page, or its pages do not end.
    pub async fn next(&mut self) -> Result<Option<Vec<Value>>, Fault> {
        let Some(mut path) = self.next.take() else { return Ok(None) };
        let at = self.server.at("GET", &path);
        if !self.seen.insert(path.clone()) {
            return Err(Fault::malformed(&at, "the pages lead in a circle"));
        }
        if self.seen.len() > PAGES_MAX {
            return Err(Fault::malformed(&at, format!("there are more than {PAGES_MAX} pages")));
        }
        let (mut page, bytes) = loop {
            match (self.server.get_sized(&path).await, halved(&path)) {
                (Ok(page), _) => break page,
                (Err(Fault { what: What::TooLarge { .. }, .. }), Some(smaller)) => path = smaller,
                (Err(fault), _) => return Err(fault),
            }
        };
        self.bytes = self.bytes.saturating_add(bytes);
        if let Value::Array(rows) = page {
            return Ok(Some(rows));
        }
        let Some(Value::Array(rows)) = page.get_mut("results").map(Value::take) else {
            return Err(Fault::malformed(&at, "no list of results in the answer"));
        };
        self.next = match page.get("next") {
            None | Some(Value::Null) => None,
            Some(Value::String(next)) => Some(self.within(next, &path, &at)?),
            Some(_) => return Err(Fault::malformed(&at, "`next` is not an address")),
        };
        self.empty = if rows.is_empty() { self.empty + 1 } else { 0 };
        if self.empty > EMPTY_PAGES_MAX {
            return Err(Fault::malformed(&at, "one empty page follows the other"));
        }
        Ok(Some(rows))
    }

    /// All rows.
    ///
    /// # Errors
    ///
    /// As of [`Pages::next`]; or there are more than memory is for.
    pub async fn all(mut self) -> Result<Vec<Value>, Fault> {
        let mut all = Vec::new();
        while let Some(rows) = self.next().await? {
            all.extend(rows);
            if all.len() > LIST_MAX_ITEMS || self.bytes > LIST_MAX_BYTES {
                let at = self.server.at("GET", self.next.as_deref().unwrap_or_default());
                let what = format!(
                    "the list has more than {LIST_MAX_ITEMS} objects or {LIST_MAX_BYTES} bytes"
                );
                return Err(Fault::malformed(&at, what));
            }
        }
        Ok(all)
    }

    /// The path of `next`, if it is on this server. The scheme may differ: a server behind a proxy does not know it.
    fn within(&self, next: &str, path: &str, at: &str) -> Result<String, Fault> {
        let base = self.server.base();
        let here = base.join(path).map_err(|_| Fault::malformed(at, "not a path"))?;
        let next = here.join(next).map_err(|_| Fault::malformed(at, "`next` is not an address"))?;
        let is_http = matches!(next.scheme(), "http" | "https");
        let is_same = next.host_str() == base.host_str() && port(&next) == port(base);
        if !is_http || !is_same {
            let host = next.host_str().unwrap_or("none");
            return Err(Fault::malformed(at, format!("`next` leads to another host: {host}")));
        }
        if next.path() != here.path() {
            return Err(Fault::malformed(at, format!("`next` leads to {}", next.path())));
        }
        Ok(next
            .query()
            .map_or_else(|| next.path().to_owned(), |query| format!("{}?{query}", next.path())))
    }
}

/// The same page with half as many rows; `None` if it has one, or does not say how many.
fn halved(path: &str) -> Option<String> {
    let (before, rest) = path.split_once("limit=")?;
    let end = rest.find('&').unwrap_or(rest.len());
    let (limit, after) = rest.split_at_checked(end)?;
    let limit: usize = limit.parse().ok().filter(|limit| *limit > 1)?;
    Some(format!("{before}limit={}{after}", limit / 2))
}

/// The port that was written; none for the usual one of the scheme.
fn port(url: &Url) -> Option<u16> {
    url.port()
}

#[cfg(test)]
mod tests;
