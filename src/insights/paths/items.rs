//! Names the steps of paths: [`Rules`] convert a text to an item, [`Items`] numbers the items.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use foldhash::quality::FixedState;
use regex::{Captures, Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use weir_api::node::NodeError;
use weir_api::nodes::paths::{PathCleaningFilter, PathsFilter};
use weir_event::pattern::{PatternError, Size, UNKNOWN_STATES, check_together};
use weir_query::events::histories::Row;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Longest item; longer ones are truncated.
const ITEM_MAX_BYTES: usize = 8192;

/// Most cleaning filters, and most grouping patterns.
const RULES_MAX: usize = 100;

/// Most excluded items.
const EXCLUDED_MAX: usize = 1000;

/// Longest pattern, and longest replacement.
const PATTERN_MAX_BYTES: usize = 400;

/// Memory limit of one compiled pattern, and of all grouping patterns together.
const PATTERN_MEMORY_MAX_BYTES: usize = 1 << 20;

/// The bit of a row whose text is a URL.
pub(super) const PAGE: u32 = 1;

/// Rules that convert texts to items.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// Patterns and their replacements.
    cleanings: Vec<(Regex, String)>,
    groups: RegexSet,
    /// The items of the groups, in the order of `groups`.
    names: Vec<String>,
    excluded: HashSet<String>,
}

impl Rules {
    /// Parses the item rules of a `pathsFilter`.
    ///
    /// # Errors
    ///
    /// There are too many entries, or a pattern is invalid or too large.
    pub(super) fn of(options: PathsFilter) -> Result<Self, NodeError> {
        let of_groups = |detail: String| NodeError::new(field("pathGroupings"), detail);
        let names = bounded(options.path_groupings, "pathGroupings", RULES_MAX)?;
        if names.iter().any(|name| name.len() > PATTERN_MAX_BYTES) {
            return Err(of_groups(format!(
                "Expected at most {PATTERN_MAX_BYTES} bytes a pattern."
            )));
        }
        let patterns = names.iter().map(|name| regex::escape(name).replace(r"\*", "(?s:.*)"));
        let groups = RegexSetBuilder::new(patterns).size_limit(PATTERN_MEMORY_MAX_BYTES).build();
        let large = |_| of_groups("The patterns are too large together.".to_owned());
        let excluded = bounded(options.exclude_events, "excludeEvents", EXCLUDED_MAX)?;
        let excluded = excluded.into_iter().flat_map(|item| {
            let short = without_slash(&item).to_owned();
            [item, short]
        });
        Ok(Self {
            cleanings: cleanings(options.local_path_cleaning_filters)?,
            groups: groups.map_err(large)?,
            names,
            excluded: excluded.collect(),
        })
    }

    /// The item of a text, which is a URL if `is_page`; `None` if it is excluded.
    fn item<'t>(&'t self, text: &'t str, is_page: bool) -> Option<Cow<'t, str>> {
        let text = if is_page { without_slash(text) } else { text };
        let mut item = Cow::Borrowed(start(text));
        for (pattern, alias) in &self.cleanings {
            if let Some(clean) = replaced(pattern, alias, &item) {
                item = Cow::Owned(clean);
            }
        }
        let group = self.groups.matches(&item).iter().next();
        if let Some(name) = group.and_then(|group| self.names.get(group)) {
            item = Cow::Borrowed(name);
        }
        (!self.excluded.contains(&*item)).then_some(item)
    }
}

/// The path of a field of `pathsFilter`.
pub(super) fn field(name: &str) -> String {
    format!("pathsFilter.{name}")
}

/// Checks that a list has at most `most` texts.
fn bounded(list: Vec<String>, name: &str, most: usize) -> Result<Vec<String>, NodeError> {
    if list.len() > most {
        return Err(NodeError::new(field(name), format!("Expected at most {most} texts.")));
    }
    Ok(list)
}

/// Compiles `localPathCleaningFilters`. A filter without a pattern has no effect.
fn cleanings(sent: Vec<PathCleaningFilter>) -> Result<Vec<(Regex, String)>, NodeError> {
    const NAME: &str = "localPathCleaningFilters";
    if sent.len() > RULES_MAX {
        return Err(NodeError::new(field(NAME), format!("Expected at most {RULES_MAX} filters.")));
    }
    let (mut cleanings, mut states) = (Vec::new(), 0_usize);
    for (filter, at) in sent.into_iter().zip(0_usize..) {
        let refused = |name: &str, detail: String| {
            NodeError::new(format!("pathsFilter.{NAME}.{at}.{name}"), detail)
        };
        let of_regex = |error: PatternError| refused("regex", error.to_string());
        let alias = filter.alias.unwrap_or_default();
        let Some(pattern) = filter.regex else { continue };
        for (name, text) in [("regex", &pattern), ("alias", &alias)] {
            if text.len() > PATTERN_MAX_BYTES {
                return Err(refused(name, format!("Expected at most {PATTERN_MAX_BYTES} bytes.")));
            }
        }
        states = states.saturating_add(match Size::of(&pattern) {
            Ok(size) => size.states,
            // Valid only in the syntax of the other regular expression engine.
            Err(PatternError::Invalid) => UNKNOWN_STATES,
            Err(error) => return Err(of_regex(error)),
        });
        check_together([states]).map_err(of_regex)?;
        let built = RegexBuilder::new(&pattern).size_limit(PATTERN_MEMORY_MAX_BYTES).build();
        let built = built.map_err(|error| {
            let detail = match error {
                regex::Error::CompiledTooBig(_) => "The pattern is too large.",
                _ => "Expected a regular expression.",
            };
            refused("regex", detail.to_owned())
        });
        cleanings.push((built?, alias));
    }
    Ok(cleanings)
}

/// A URL without one trailing slash; a single slash stays.
pub(super) fn without_slash(text: &str) -> &str {
    text.strip_suffix('/').filter(|text| !text.is_empty()).unwrap_or(text)
}

/// A text truncated to the longest item.
fn start(text: &str) -> &str {
    text.get(..text.floor_char_boundary(ITEM_MAX_BYTES)).unwrap_or(text)
}

/// A text with all matches replaced, truncated; `None` without a match.
fn replaced(pattern: &Regex, alias: &str, text: &str) -> Option<String> {
    let (mut clean, mut end) = (String::new(), 0);
    for found in pattern.captures_iter(text) {
        let whole = found.get_match();
        clean.push_str(text.get(end..whole.start())?);
        expand(alias, &found, &mut clean);
        end = whole.end();
        if clean.len() >= ITEM_MAX_BYTES {
            break;
        }
    }
    if end == 0 && clean.is_empty() {
        return None;
    }
    clean.push_str(text.get(end..)?);
    clean.truncate(start(&clean).len());
    Some(clean)
}

/// Appends the replacement of a match: the alias, with `\0` for the match and `\1` to `\9` for its groups.
fn expand(alias: &str, found: &Captures<'_>, clean: &mut String) {
    let mut rest = alias.chars();
    while let Some(next) = rest.next() {
        if next != '\\' {
            clean.push(next);
            continue;
        }
        match rest.next() {
            Some(digit) if digit.is_ascii_digit() => {
                let group = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                let group = group.and_then(|group| found.get(group));
                clean.push_str(group.map_or("", |group| group.as_str()));
            }
            Some('\\') | None => clean.push('\\'),
            Some(other) => clean.extend(['\\', other]),
        }
    }
}

/// Interned items, in query memory. Numbers are valid within one scan only.
#[derive(Debug)]
pub(super) struct Items {
    rules: Arc<Rules>,
    numbers: HashMap<Arc<str>, u32>,
    /// Each item, with a hash that is the same in every scan.
    all: Vec<(Arc<str>, u64)>,
    /// Memory of the items, in bytes.
    bytes: usize,
    /// Cached result for each text of the pass, by its number: as a plain text, and as a URL.
    found: Vec<[CachedItem; 2]>,
    reservation: MemoryReservation,
}

/// The cached result for a text.
#[derive(Clone, Copy, Debug)]
enum CachedItem {
    Nothing,
    LeftOut,
    Item(u32),
}

/// Memory of an item besides its text: two pointers with a number and a hash, in twice as many slots, and reference
/// counters.
const ITEM_BYTES: usize = 128;

impl Items {
    pub(super) fn new(rules: Arc<Rules>, reservation: MemoryReservation) -> Self {
        let (numbers, all, found) = (HashMap::new(), Vec::new(), Vec::new());
        Self { rules, numbers, all, bytes: 0, found, reservation }
    }

    /// Begins a pass over rows with these texts.
    ///
    /// # Errors
    ///
    /// The memory limit is reached.
    pub(super) fn begin(&mut self, texts: &Interner) -> Result<(), QueryError> {
        self.found = Vec::new();
        self.reserve(texts.len())?;
        self.found.resize(texts.len(), [CachedItem::Nothing; 2]);
        Ok(())
    }

    /// The item of a row; `None` if it is excluded.
    ///
    /// # Errors
    ///
    /// The memory limit is reached.
    pub(super) fn of(&mut self, row: &Row, texts: &Interner) -> Result<Option<u32>, QueryError> {
        let is_page = row.mask & PAGE != 0;
        let place = usize::try_from(row.text).unwrap_or(usize::MAX);
        let known = self.found.get(place).and_then(|both| both.get(usize::from(is_page)));
        match known {
            Some(CachedItem::Item(item)) => return Ok(Some(*item)),
            Some(CachedItem::LeftOut) => return Ok(None),
            _ => {}
        }
        // A row may have no text, such as a page view without a URL.
        let text = texts.get(row.text).unwrap_or_default();
        let rules = Arc::clone(&self.rules);
        let item = rules.item(text, is_page).map(|item| self.number(&item)).transpose()?;
        let cell = self.found.get_mut(place).and_then(|both| both.get_mut(usize::from(is_page)));
        if let Some(cell) = cell {
            *cell = item.map_or(CachedItem::LeftOut, CachedItem::Item);
        }
        Ok(item)
    }

    /// The number of an item, which is added if it is new.
    ///
    /// # Errors
    ///
    /// The memory limit is reached.
    pub(super) fn number(&mut self, item: &str) -> Result<u32, QueryError> {
        if let Some(number) = self.numbers.get(item) {
            return Ok(*number);
        }
        self.bytes = self.bytes.saturating_add(item.len()).saturating_add(ITEM_BYTES);
        self.reserve(self.found.len())?;
        let full = |_| QueryError::Memory("there are too many different steps".to_owned());
        let number = u32::try_from(self.all.len()).map_err(full)?;
        let item: Arc<str> = Arc::from(item);
        self.all.push((Arc::clone(&item), FixedState::default().hash_one(&*item)));
        self.numbers.insert(item, number);
        Ok(number)
    }

    /// The item with a number; an empty text if there is none.
    pub(super) fn get(&self, number: u32) -> &str {
        self.entry(number).map_or("", |(item, _)| item)
    }

    /// The hash of an item, the same in every scan.
    pub(super) fn hash(&self, number: u32) -> u64 {
        self.entry(number).map_or(0, |(_, hash)| *hash)
    }

    fn entry(&self, number: u32) -> Option<&(Arc<str>, u64)> {
        self.all.get(usize::try_from(number).ok()?)
    }

    fn reserve(&mut self, texts: usize) -> Result<(), DataFusionError> {
        let found = texts.saturating_mul(size_of::<[CachedItem; 2]>());
        self.reservation.try_resize(self.bytes.saturating_add(found))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ITEM_MAX_BYTES, Rules};
    use weir_api::node::Content;
    use weir_api::nodes::paths::PathsFilter;

    fn rules(filter: &Value) -> Result<Rules, String> {
        let sent = PathsFilter::read(filter, "pathsFilter");
        sent.and_then(Rules::of).map_err(|error| error.field)
    }

    #[test]
    fn texts_are_cleaned_then_grouped_then_left_out() {
        let cleaning = json!({"localPathCleaningFilters": [
            {"regex": r"/(\d+)", "alias": "/<id>"}, {"regex": r"\?(\w)=(\w)", "alias": r";\2=\1\\\n"}, {"alias": "x"},
        ]});
        let grouping =
            json!({"pathGroupings": ["/a*c", "/a", "."], "excludeEvents": ["/a", "b/", "/x.y"]});
        let both = json!({"localPathCleaningFilters": [{"regex": "^/.*", "alias": "/a"}],
                          "pathGroupings": ["/A", "/a*"], "excludeEvents": ["/a"]});
        for (filter, text, is_page, expected) in [
            (&json!({}), "/", true, Some("/")),
            (&json!({}), "/a/", true, Some("/a")),
            (&json!({}), "/a//", true, Some("/a/")),
            (&json!({}), "a/", false, Some("a/")),
            (&json!({}), "", true, Some("")),
            (&cleaning, "/1/b/22/", true, Some("/<id>/b/<id>")),
            (&cleaning, "/a?b=c", true, Some(r"/a;c=b\\n")),
            (&grouping, "xx/abc", true, Some("/a*c")),
            (&grouping, "xx/a", false, None),
            (&grouping, "b", false, None),
            (&grouping, "/x.y", false, Some(".")),
            (&grouping, "/xy", false, Some("/xy")),
            (&both, "/zzz", true, Some("/a*")),
        ] {
            let rules = rules(filter).unwrap();
            assert_eq!(rules.item(text, is_page).as_deref(), expected, "{filter} {text}");
        }
        let long = "ä".repeat(ITEM_MAX_BYTES);
        let bomb = json!({"localPathCleaningFilters": vec![json!({"regex": "", "alias": "ö".repeat(150)}); 9]});
        for filter in [json!({}), bomb] {
            let item = rules(&filter).unwrap().item(&long, true).unwrap().into_owned();
            assert_eq!(item.len(), ITEM_MAX_BYTES, "{filter}");
        }
    }

    #[test]
    fn what_is_malformed_or_too_large_is_refused_by_its_name() {
        for (filter, field) in [
            (json!({"pathGroupings": "x"}), "pathGroupings"),
            (json!({"pathGroupings": [1]}), "pathGroupings"),
            (json!({"pathGroupings": vec!["x"; 101]}), "pathGroupings"),
            (json!({"pathGroupings": ["x".repeat(401)]}), "pathGroupings"),
            (json!({"excludeEvents": {}}), "excludeEvents"),
            (json!({"excludeEvents": vec!["x"; 1001]}), "excludeEvents"),
            (json!({"localPathCleaningFilters": ["x"]}), "localPathCleaningFilters.0"),
            (
                json!({"localPathCleaningFilters": [{"regex": "("}]}),
                "localPathCleaningFilters.0.regex",
            ),
            (
                json!({"localPathCleaningFilters": [{}, {"regex": "((a{1000}){1000}){1000}"}]}),
                "localPathCleaningFilters.1.regex",
            ),
            (
                json!({"localPathCleaningFilters": vec![json!({"regex": ".{1000}"}); 20]}),
                "localPathCleaningFilters.15.regex",
            ),
            (
                json!({"localPathCleaningFilters": [{"regex": "a", "alias": "x".repeat(401)}]}),
                "localPathCleaningFilters.0.alias",
            ),
        ] {
            assert_eq!(rules(&filter).unwrap_err(), format!("pathsFilter.{field}"), "{filter}");
        }
    }
}
