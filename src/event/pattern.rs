//! Regular expressions of users, within limits ([`Pattern`]). All code that compiles a pattern that was sent or stored
//! uses this module, or, with another regex engine, computes its [`Size`] first: path cleanings and functions of SQL.
//!
//! The cost of a pattern is known before it is compiled: [`Size`] counts the states of its automata from its syntax, so
//! that a few bytes such as `\w{1000}` are refused at once and without memory. A pattern is compiled at its first
//! match, which is on the threads of queries or of the pool; parsing a filter again builds no automaton. References to
//! groups are checked without compiling, too. Backtracking, which look-arounds and references need, is bounded for each
//! text, and the texts on which a pattern was given up are counted, so that a query can end.

use std::collections::HashSet;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a field that is filled once, and nothing global")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use fancy_regex::internal::{AnalyzeContext, analyze};
use fancy_regex::{Absent, Expr, Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest pattern.
pub const PATTERN_MAX_BYTES: usize = 10_000;

/// Most states of one pattern. Compiling a state takes about a microsecond, and 300 bytes until it is done.
pub const PATTERN_MAX_STATES: usize = 100_000;

/// States of all patterns of a request, a flag, a cohort or an action together.
pub const PATTERNS_MAX_STATES: usize = 200_000;

/// States of all patterns of the flags of a project together, and of its cohorts.
pub const PROJECT_MAX_STATES: usize = 1_000_000;

/// States that are counted for a pattern that is not valid here, but may be valid in another engine.
pub const UNKNOWN_STATES: usize = 10_000;

/// Backtracking steps on one text, so that no pattern of a project can block a thread. The figure is PostHog's (about 1
/// ms at worst).
const BACKTRACKS_MAX: usize = 10_000;

/// Longest text that is searched with backtracking: each step back may read all of it.
const BACKTRACKED_MAX_BYTES: usize = 64 << 10;

/// Steps of one search, of about a nanosecond each: a second. A longer text is not searched.
const STEPS_MAX: usize = 1_000_000_000;

/// Steps for each byte of the text and each state that can be active at it, if automata are too large to be cached.
const STEPS_PER_COPY: usize = 8;

/// Memory of the compiled parts of a pattern, each of which has fewer than [`PATTERN_MAX_STATES`]: a limit for what the
/// count of states may miss.
const COMPILED_MAX_BYTES: usize = 16 << 20;

/// Memory for the lazily built automata of a search, for each part of a pattern and each thread.
const SEARCH_MAX_BYTES: usize = 256 << 10;

/// Instructions of a pattern with backtracking.
const INSTRUCTIONS_MAX: usize = 20_000;

/// A pattern with backtracking has several automata.
const BACKTRACKED_FACTOR: usize = 2;

/// States of a pattern beyond those of its expression.
const PATTERN_STATES: usize = 30;

/// States of a look-around, which is a pattern of its own.
const PART_STATES: usize = 34;

/// States of any character: its lengths in UTF-8.
const ANY_STATES: usize = 13;

/// States of a character that is matched in any case, or that a class names.
const CHARACTER_STATES: usize = 4;

/// States of a class of ASCII.
const ASCII_STATES: usize = 5;

/// States of classes of Unicode: letters of all languages, digits of all, white space.
const LETTERS_STATES: usize = 700;
const DIGITS_STATES: usize = 60;
const SPACES_STATES: usize = 14;

/// Why a pattern is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum PatternError {
    /// It is no regular expression.
    #[error("This is not a valid regular expression.")]
    Invalid,
    /// It is too long.
    #[error("A regular expression has at most {PATTERN_MAX_BYTES} bytes.")]
    TooLong,
    /// It would take too much memory and time.
    #[error(
        "The regular expression is too large: it would have {0} states of at most {PATTERN_MAX_STATES}. Use smaller \
         counts of repetitions, or classes such as [a-z0-9] in place of \\w."
    )]
    TooLarge(usize),
    /// All of them together would.
    #[error(
        "The regular expressions are too large together: they would have {0} states of at most \
         {PATTERNS_MAX_STATES}."
    )]
    TooMany(usize),
    /// All patterns of the project would.
    #[error(
        "The regular expressions of the project are too large together: they would have {0} states of at most \
         {PROJECT_MAX_STATES}."
    )]
    OfProject(usize),
}

/// How large the automata of a pattern are, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of states, on which the time and memory of compiling depend.
    pub states: usize,
    /// States that can be active at one place of a text.
    pub copies: usize,
    /// Whether it needs backtracking.
    is_backtracked: bool,
}

impl Size {
    /// The size of a pattern, from its syntax alone.
    ///
    /// # Errors
    ///
    /// It is not valid, or beyond the limits of one pattern.
    pub fn of(pattern: &str) -> Result<Self, PatternError> {
        Self::read(pattern, false)
    }

    /// The same; if `checked`, references to groups must be valid.
    fn read(pattern: &str, checked: bool) -> Result<Self, PatternError> {
        if pattern.len() > PATTERN_MAX_BYTES {
            return Err(PatternError::TooLong);
        }
        let tree = Expr::parse_tree(pattern).map_err(|_| PatternError::Invalid)?;
        let mut counted = Counted::default();
        let mut waiting = vec![(&tree.expr, 1_usize)];
        while let Some((expression, times)) = waiting.pop() {
            counted.add(expression, times)?;
            counted.parts(expression, times, &mut waiting);
        }
        let size = counted.size()?;
        // Analysis that precedes compiling, without any automaton.
        let is_valid = || analyze(&tree, AnalyzeContext::default()).is_ok();
        if checked && size.is_backtracked && !is_valid() {
            return Err(PatternError::Invalid);
        }
        Ok(size)
    }

    /// Steps for a byte of a text, at worst.
    pub fn steps_per_byte(self) -> usize {
        self.copies.saturating_mul(STEPS_PER_COPY).max(1)
    }
}

/// Checks patterns with these numbers of states, which are compiled for one purpose.
///
/// # Errors
///
/// [`PatternError::TooMany`].
pub fn check_together(states: impl IntoIterator<Item = usize>) -> Result<(), PatternError> {
    match states.into_iter().fold(0, usize::saturating_add) {
        states if states > PATTERNS_MAX_STATES => Err(PatternError::TooMany(states)),
        _ => Ok(()),
    }
}

/// Checks the patterns of all flags of a project, or of its cohorts: `others`, and those of the one that is to be
/// stored.
///
/// # Errors
///
/// [`PatternError::OfProject`]. A flag or cohort without patterns is never refused.
pub fn check_of_project(others: usize, own: usize) -> Result<(), PatternError> {
    match others.saturating_add(own) {
        states if own > 0 && states > PROJECT_MAX_STATES => Err(PatternError::OfProject(states)),
        _ => Ok(()),
    }
}

/// Counts of a pattern.
#[derive(Default)]
struct Counted<'e> {
    states: usize,
    copies: usize,
    /// Number of subroutine calls, each of which repeats a group.
    calls: u32,
    is_backtracked: bool,
    /// Classes that were found to be valid.
    classes: HashSet<&'e str>,
}

impl<'e> Counted<'e> {
    /// Adds an expression without its parts, which is repeated so many times.
    fn add(&mut self, expression: &'e Expr, times: usize) -> Result<(), PatternError> {
        let (states, copies) = match expression {
            Expr::Any { .. } | Expr::GeneralNewline { .. } => (ANY_STATES, 1),
            Expr::Literal { val, casei } => {
                let states = val.len().saturating_mul(if *casei { CHARACTER_STATES } else { 1 });
                // In a sequence only one character is active at a time.
                (states, if times > 1 { val.len() } else { 0 })
            }
            Expr::LiteralBytes { bytes } => (bytes.len(), bytes.len()),
            Expr::Delegate { inner, .. } => {
                if self.classes.insert(inner) && !is_class(inner) {
                    return Err(PatternError::Invalid);
                }
                (class_states(inner), 1)
            }
            Expr::LookAround(..) | Expr::AtomicGroup(_) | Expr::Absent(_) => (PART_STATES, 1),
            Expr::Repeat { lo, hi, .. } if lo > hi => return Err(PatternError::Invalid),
            Expr::SubroutineCall(_) => {
                self.calls = self.calls.saturating_add(1);
                (PART_STATES, 1)
            }
            _ => (1, 0),
        };
        self.states = self.states.saturating_add(states.saturating_mul(times));
        self.copies = self.copies.saturating_add(copies.saturating_mul(times));
        let is_plain = matches!(
            expression,
            Expr::Empty
                | Expr::Any { .. }
                | Expr::Assertion(_)
                | Expr::Literal { .. }
                | Expr::LiteralBytes { .. }
                | Expr::Concat(_)
                | Expr::Alt(_)
                | Expr::Group(_)
                | Expr::Repeat { .. }
                | Expr::Delegate { .. }
        );
        self.is_backtracked |= !is_plain;
        Ok(())
    }

    /// The parts of an expression, and how many times each is repeated.
    fn parts(&self, expression: &'e Expr, times: usize, waiting: &mut Vec<(&'e Expr, usize)>) {
        match expression {
            Expr::Concat(parts) | Expr::Alt(parts) => {
                waiting.extend(parts.iter().map(|part| (part, times)));
            }
            Expr::Group(part) => waiting.push((part, times)),
            Expr::LookAround(part, _)
            | Expr::AtomicGroup(part)
            | Expr::Absent(Absent::Repeater(part) | Absent::Stopper(part))
            | Expr::DefineGroup { definitions: part } => waiting.push((part, times)),
            Expr::Absent(Absent::Expression { absent, exp }) => {
                waiting.extend([(&**absent, times), (&**exp, times)]);
            }
            Expr::Repeat { child, lo, hi, .. } => {
                // An unbounded repetition counts as once more than its minimum.
                let count = if *hi == usize::MAX { lo.saturating_add(1) } else { *hi };
                waiting.push((child, times.saturating_mul(count.max(1))));
            }
            Expr::Conditional { condition, true_branch, false_branch } => {
                waiting.extend([condition, true_branch, false_branch].map(|part| (&**part, times)));
            }
            _ => {}
        }
    }

    fn size(self) -> Result<Size, PatternError> {
        // A called group may contain calls itself.
        let called = 1_usize.checked_shl(self.calls).unwrap_or(usize::MAX);
        let states = self.states.saturating_add(PATTERN_STATES).saturating_mul(called);
        let factor = if self.is_backtracked { BACKTRACKED_FACTOR } else { 1 };
        let states = states.saturating_mul(factor);
        if states > PATTERN_MAX_STATES {
            return Err(PatternError::TooLarge(states));
        }
        let copies = self.copies.saturating_mul(called);
        Ok(Size { states, copies, is_backtracked: self.is_backtracked })
    }
}

/// Whether a class is valid. With a size limit of 0 only its syntax is checked.
fn is_class(class: &str) -> bool {
    let built = regex::RegexBuilder::new(class).size_limit(0).build();
    !matches!(built, Err(regex::Error::Syntax(_)))
}

/// States of a class of characters, from its text.
fn class_states(class: &str) -> usize {
    if class.is_ascii() && !class.contains(['\\', '^', ':']) {
        return ASCII_STATES;
    }
    let mut states = ANY_STATES;
    let mut characters = class.chars();
    while let Some(character) = characters.next() {
        let own = match character {
            '\\' => match characters.next() {
                Some('w' | 'W' | 'p' | 'P') => LETTERS_STATES,
                Some('d' | 'D') => DIGITS_STATES,
                Some('s' | 'S') => SPACES_STATES,
                _ => CHARACTER_STATES,
            },
            _ => CHARACTER_STATES,
        };
        states = states.saturating_add(own);
    }
    states
}

/// A pattern within limits.
#[derive(Debug)]
pub struct Pattern {
    text: Box<str>,
    size: Size,
    /// The compiled pattern; `None` if compiling fails after all.
    #[expect(clippy::disallowed_types, reason = "a field that is filled once, and nothing global")]
    compiled: OnceLock<Option<Regex>>,
    given_up: AtomicUsize,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// It is not valid, or beyond a limit.
    pub fn new(text: &str) -> Result<Arc<Self>, PatternError> {
        let size = Size::read(text, true)?;
        #[expect(clippy::disallowed_types, reason = "a field that is filled once")]
        let compiled = OnceLock::new();
        Ok(Arc::new(Self { text: text.into(), size, compiled, given_up: AtomicUsize::new(0) }))
    }

    /// How large it is.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Whether it matches somewhere in the text; `None` if that takes too many steps, or if the pattern cannot be
    /// compiled, which holds for a few look-behinds on any text.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        let regex = self.compiled()?;
        let is_short = text.len() <= self.text_max_bytes();
        let found = if is_short { regex.is_match(text).ok() } else { None };
        if found.is_none() {
            self.given_up.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Number of texts on which the search was given up.
    pub fn given_up(&self) -> usize {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Longest text that is searched.
    fn text_max_bytes(&self) -> usize {
        let searched = STEPS_MAX / self.size.steps_per_byte();
        if self.size.is_backtracked { searched.min(BACKTRACKED_MAX_BYTES) } else { searched }
    }

    fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| self.compile()).as_ref()
    }

    fn compile(&self) -> Option<Regex> {
        RegexBuilder::new(&self.text)
            .backtrack_limit(BACKTRACKS_MAX)
            .max_prog_size(INSTRUCTIONS_MAX)
            .delegate_size_limit(COMPILED_MAX_BYTES)
            .delegate_dfa_size_limit(SEARCH_MAX_BYTES)
            .build()
            .ok()
    }
}

/// A pattern written as its text, and read within the same limits: for `#[serde(with)]`.
pub(crate) mod as_text {
    use std::borrow::Cow;
    use std::sync::Arc;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Pattern;

    pub(crate) fn serialize<S: Serializer>(
        pattern: &Arc<Pattern>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&pattern.text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Pattern>, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Pattern::new(&text).map_err(D::Error::custom)
    }
}

/// The same of a pattern that need not be there.
pub(crate) mod as_text_if_any {
    use std::borrow::Cow;
    use std::sync::Arc;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Pattern;

    pub(crate) fn serialize<S: Serializer>(
        pattern: &Option<Arc<Pattern>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        pattern.as_ref().map(|pattern| &pattern.text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<Pattern>>, D::Error> {
        let text = Option::<Cow<'_, str>>::deserialize(deserializer)?;
        text.map(|text| Pattern::new(&text)).transpose().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{PATTERN_MAX_BYTES, PATTERN_MAX_STATES, Pattern, PatternError, Size};

    /// Patterns as people write them, and what they match.
    #[test]
    fn what_people_write_is_within_the_limits() {
        let domains: Vec<String> = (0..440).map(|n| format!(r"shop{n}\.example\.com")).collect();
        for (pattern, text, expected) in [
            (r"^[\w.+-]+@[\w-]+\.[\w.]+$", "ann@corp.com", true),
            (r"^[\w.%+-]{1,64}@[a-z0-9.-]{1,255}\.[a-z]{2,24}$", "ann@corp.com", true),
            (r"(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "not one", false),
            (r"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{8,64}$", "Passw0rd!", true),
            (r"^(?!.*(bot|crawler|spider)).*$", "a crawler", false),
            (r"(?<!un)paid", "unpaid", false),
            (r"(\w+) \1", "very very", true),
            (r"^.{0,1000}$", "a", true),
            (r"\p{L}{2,40}", "Größe", true),
            (
                r"^(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}$",
                "10.0.0.1",
                true,
            ),
            (&domains.join("|"), "shop17.example.com", true),
        ] {
            let pattern =
                Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(pattern.is_match(text), Some(expected), "{}", pattern.text);
        }
    }

    /// A few bytes that would take gigabytes, or minutes, are refused without being compiled.
    #[test]
    fn what_would_be_too_large_is_refused() {
        let ahead: String = (1..400).map(|n| format!(r"(?=\w{{{n}}})")).collect();
        let calls =
            format!("(a){}", (1..40).map(|n| format!(r"(\g<{n}>\g<{n}>)")).collect::<String>());
        for pattern in [
            r"\w{1000}",
            r"(?:\w{30}){30}",
            r"((a{100}){100}){100}",
            r"(?i)\pL{900}",
            r"[\p{L}\p{N}]{200}",
            r"\W{300}x",
            r"(?=\w{100})a",
            r"(?<=\w{1,300})a",
            r".{9000}",
            &ahead,
            &calls,
        ] {
            let refused = Size::of(pattern).unwrap_err();
            assert!(
                matches!(refused, PatternError::TooLarge(states) if states > PATTERN_MAX_STATES),
                "{pattern}: {refused:?}"
            );
        }
        let long = "a".repeat(PATTERN_MAX_BYTES + 1);
        assert_eq!(Size::of(&long), Err(PatternError::TooLong));
        assert!(Size::of(&long[1..]).is_ok());
        for pattern in
            ["(", "[z-a]", r"\p{Nothing}", "(?P<", "a{2,1}", r"(?<=(a)\1)\9", &"(".repeat(9000)]
        {
            assert_eq!(Pattern::new(pattern).err(), Some(PatternError::Invalid), "{pattern}");
        }
    }

    /// Parsing does not compile look-arounds: it happens for each pattern that is sent.
    #[test]
    fn patterns_are_compiled_when_they_are_asked() {
        for (pattern, text) in [(r"^(?=.*\d)\w+$", "a1"), (r"(\w+) \1", "a a"), ("a+", "a")] {
            let pattern = Pattern::new(pattern).unwrap();
            assert!(pattern.compiled.get().is_none(), "{}", pattern.text);
            assert_eq!(pattern.is_match(text), Some(true), "{}", pattern.text);
            assert!(pattern.compiled.get().is_some_and(Option::is_some), "{}", pattern.text);
        }
    }

    /// Recursion is bounded: deep nesting is refused by the parser, and recursive calls by the count of states.
    #[test]
    fn nesting_is_bounded() {
        let deep = format!("{}a{}", "(".repeat(3000), ")".repeat(3000));
        assert_eq!(Size::of(&deep), Err(PatternError::Invalid));
        for pattern in [r"(a\g<1>?b)", r"(?:(?:(?:a?)*)*)*"] {
            let _ = Pattern::new(pattern).map(|pattern| pattern.is_match("aabb"));
        }
    }

    /// Texts on which a pattern takes too many steps are given up, and counted.
    #[test]
    fn texts_that_take_too_long_are_given_up() {
        for (pattern, text) in [
            (r"^(a|a)*\1$", format!("{}b", "a".repeat(60))),
            (r"(?=a)a+b", "a".repeat(70_000)),
            (r"(?:a?){900}x", "a".repeat(1 << 20)),
        ] {
            let pattern = Pattern::new(pattern).unwrap();
            assert_eq!(pattern.is_match(&text), None, "{}", pattern.text);
            assert_eq!(pattern.given_up(), 1);
            assert!(pattern.is_match("x").is_some());
            assert_eq!(pattern.given_up(), 1);
        }
    }
}
