//! Regular expression functions over all matches. As in ClickHouse, a dot matches line breaks, too, and each search
//! begins at the end of the last match as if that were the start of the text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Builder, ListBuilder, StringViewBuilder};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};
use regex::{Regex, RegexBuilder};

use crate::functions::own::{Own, Takes, list_of, of_text, text, texts, whole};
use crate::guard::Running;

const TWO: &[Takes] = &[Takes::Text, Takes::Text];

/// Maximum memory of a compiled pattern, the states of which were counted before (`guard/bounds.rs`).
const COMPILED_MAX_BYTES: usize = 64 << 20;

/// All functions of this file.
pub(super) const ALL: &[Own] = &[
    Own::searching("countMatches", TWO, whole, count),
    Own::searching("extractAll", TWO, |_| Ok(list_of(DataType::Utf8View)), extracted),
    Own::searching("extractGroups", TWO, |_| Ok(list_of(DataType::Utf8View)), groups),
    Own::searching("extractAllGroups", TWO, nested, by_match),
    Own::searching("extractAllGroupsVertical", TWO, nested, by_match),
    Own::searching("extractAllGroupsHorizontal", TWO, nested, by_group),
    Own::searching("regexpExtract", TWO, text, group).or(&[Takes::Whole]),
    Own::searching("split_by_pattern", TWO, |_| Ok(list_of(DataType::Utf8View)), split),
    Own::new("regexpQuoteMeta", &[Takes::Text], text, quoted),
];

fn nested(_: &[DataType]) -> Result<DataType> {
    Ok(list_of(list_of(DataType::Utf8View)))
}

fn compiled(pattern: &str) -> Result<Regex> {
    let built = RegexBuilder::new(pattern)
        .dot_matches_new_line(true)
        .size_limit(COMPILED_MAX_BYTES)
        .build();
    built.map_err(|error| DataFusionError::Execution(format!("the pattern is none: {error}")))
}

/// Calls a function for each row with the text and its compiled pattern, or with `None` if one of them is null. Finding
/// all matches in a text may take time quadratic in its length, if each search reads to its end, so the function must
/// check `running` at each match.
fn each<'t>(
    sent: &'t [ArrayRef],
    running: &Running,
    mut with: impl FnMut(usize, Option<(&'t str, &Regex)>) -> Result<()>,
) -> Result<()> {
    let (all, patterns) = (texts(sent, 0)?, texts(sent, 1)?);
    let mut last: Option<(&str, Regex)> = None;
    for (row, (text, pattern)) in all.iter().zip(patterns.iter()).enumerate() {
        running.check()?;
        let Some((text, pattern)) = text.zip(pattern) else {
            with(row, None)?;
            continue;
        };
        if last.as_ref().is_none_or(|(own, _)| *own != pattern) {
            last = Some((pattern, compiled(pattern)?));
        }
        with(row, last.as_ref().map(|(_, pattern)| (text, pattern)))?;
    }
    Ok(())
}

/// The text after a byte offset; empty if the offset is not at a character boundary.
fn behind(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or("")
}

/// The first group of each match, or the whole match if the pattern has no group, up to the first empty match.
fn extracted(sent: &[ArrayRef], running: &Running) -> Result<ArrayRef> {
    let mut given = ListBuilder::new(StringViewBuilder::new());
    each(sent, running, |_, own| {
        let Some((mut rest, pattern)) = own else {
            given.append(false);
            return Ok(());
        };
        let wanted = usize::from(pattern.captures_len() > 1);
        while let Some(found) = pattern.captures(rest) {
            running.check()?;
            let Some(whole) = found.get(0).filter(|whole| !whole.is_empty()) else { break };
            given.values().append_value(found.get(wanted).map_or("", |group| group.as_str()));
            rest = behind(rest, whole.end());
        }
        given.append(true);
        Ok(())
    })?;
    Ok(Arc::new(given.finish()))
}

/// The number of groups of a pattern, which must have some.
fn count_of_groups(pattern: &Regex) -> Result<usize> {
    match pattern.captures_len().saturating_sub(1) {
        0 => Err(DataFusionError::Execution(format!("the pattern {pattern} has no groups"))),
        count => Ok(count),
    }
}

/// The groups of the first match.
fn groups(sent: &[ArrayRef], running: &Running) -> Result<ArrayRef> {
    let mut given = ListBuilder::new(StringViewBuilder::new());
    each(sent, running, |_, own| {
        if let Some((text, pattern)) = own {
            count_of_groups(pattern)?;
            for group in pattern.captures(text).iter().flat_map(|found| found.iter().skip(1)) {
                given.values().append_value(group.map_or("", |group| group.as_str()));
            }
        }
        given.append(own.is_some());
        Ok(())
    })?;
    Ok(Arc::new(given.finish()))
}

/// The number of matches; empty ones do not count.
fn count(sent: &[ArrayRef], running: &Running) -> Result<ArrayRef> {
    let mut given = Int64Builder::with_capacity(sent.first().map_or(0, |all| all.len()));
    each(sent, running, |_, own| {
        let Some((mut rest, pattern)) = own else {
            given.append_null();
            return Ok(());
        };
        let mut count = 0;
        while let Some(found) = pattern.find(rest) {
            running.check()?;
            let next = behind(rest, found.end()).chars().next().map(char::len_utf8);
            let end = match (found.is_empty(), next) {
                (false, _) => found.end(),
                (true, Some(next)) => found.end().saturating_add(next),
                (true, None) => break,
            };
            count += i64::from(!found.is_empty());
            rest = behind(rest, end);
        }
        given.append_value(count);
        Ok(())
    })?;
    Ok(Arc::new(given.finish()))
}

fn by_match(sent: &[ArrayRef], running: &Running) -> Result<ArrayRef> {
    all_groups(sent, running, true)
}

fn by_group(sent: &[ArrayRef], running: &Running) -> Result<ArrayRef> {
    all_groups(sent, running, false)
}

/// The groups of all matches: a list for each match, or for each group.
fn all_groups(sent: &[ArrayRef], running: &Running, is_by_match: bool) -> Result<ArrayRef> {
    let mut given = ListBuilder::new(ListBuilder::new(StringViewBuilder::new()));
    each(sent, running, |_, own| {
        let Some((mut rest, pattern)) = own else {
            given.append(false);
            return Ok(());
        };
        let count = count_of_groups(pattern)?;
        let mut by_group = vec![Vec::new(); if is_by_match { 0 } else { count }];
        while !rest.is_empty()
            && let Some(found) = pattern.captures(rest)
        {
            running.check()?;
            let groups = (1..=count).map(|at| found.get(at).map_or("", |group| group.as_str()));
            if is_by_match {
                for group in groups {
                    given.values().values().append_value(group);
                }
                given.values().append(true);
            } else {
                for (all, group) in by_group.iter_mut().zip(groups) {
                    all.push(group);
                }
            }
            let (end, is_empty) =
                found.get(0).map_or((0, true), |whole| (whole.end(), whole.is_empty()));
            // After an empty match the search continues at the next character.
            let next = behind(rest, end).chars().next().map_or(0, char::len_utf8);
            rest = behind(rest, if is_empty { end.saturating_add(next) } else { end });
            if is_empty && next == 0 {
                break;
            }
        }
        for all in by_group {
            for group in all {
                given.values().values().append_value(group);
            }
            given.values().append(true);
        }
        given.append(true);
        Ok(())
    })?;
    Ok(Arc::new(given.finish()))
}

/// One group of the first match, by default the first one; 0 is the whole match.
fn group(sent: &[ArrayRef], running: &Running) -> Result<ArrayRef> {
    let numbers = sent.get(2).map(|numbers| numbers.as_primitive::<Int64Type>());
    let mut given = StringViewBuilder::with_capacity(sent.first().map_or(0, |all| all.len()));
    each(sent, running, |row, own| {
        let number = match numbers {
            None => Some(1),
            Some(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
        };
        let Some(((text, pattern), number)) = own.zip(number) else {
            given.append_null();
            return Ok(());
        };
        let number = usize::try_from(number).ok().filter(|at| *at < pattern.captures_len());
        let Some(number) = number else {
            let why = format!("the pattern {pattern} has no group of this number");
            return Err(DataFusionError::Execution(why));
        };
        let found = pattern.captures(text).and_then(|found| found.get(number));
        given.append_value(found.map_or("", |group| group.as_str()));
        Ok(())
    })?;
    Ok(Arc::new(given.finish()))
}

/// The texts between matches; single characters if the pattern is empty.
fn split(sent: &[ArrayRef], running: &Running) -> Result<ArrayRef> {
    let mut given = ListBuilder::new(StringViewBuilder::new());
    each(sent, running, |_, own| {
        let Some((mut rest, pattern)) = own else {
            given.append(false);
            return Ok(());
        };
        if pattern.as_str().is_empty() {
            let mut bytes = [0; 4];
            for character in rest.chars() {
                given.values().append_value(character.encode_utf8(&mut bytes));
            }
            given.append(true);
            return Ok(());
        }
        while let Some(found) = pattern.find(rest).filter(|found| !found.is_empty()) {
            running.check()?;
            given.values().append_value(rest.get(..found.start()).unwrap_or(""));
            rest = behind(rest, found.end());
        }
        given.values().append_value(rest);
        given.append(true);
        Ok(())
    })?;
    Ok(Arc::new(given.finish()))
}

/// Characters with a special meaning in a pattern.
const SIGNS: &str = "\\|()^$.[]?*+{:-";

/// Escapes a text as a pattern that matches it literally.
fn quoted(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let of = |text: &str| {
        let mut quoted = String::with_capacity(text.len());
        for character in text.chars() {
            match character {
                '\0' => quoted.push_str("\\0"),
                own if SIGNS.contains(own) => quoted.extend(['\\', own]),
                own => quoted.push(own),
            }
        }
        Some(quoted)
    };
    Ok(of_text(texts(sent, 0)?, of))
}
