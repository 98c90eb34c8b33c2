//! Semantic versions as apps report them, and ranges of them.
//!
//! More lenient than semver.org: a leading `v`, blanks around, fewer than three numbers and leading
//! zeros are accepted, because `3.10` and `v3.08` are what mobile apps send. Otherwise the rules are
//! those of the crate `semver`, which PostHog uses too: a pre-release is in a range only if an end of
//! the range is a pre-release of the same version, so that `^1.2.3` does not admit `1.9.0-beta`.

use semver::{BuildMetadata, Comparator, Op, Version, VersionReq};

/// Parses a version. Its build metadata is checked and then dropped: it has no place in the order
/// (semver.org section 10).
pub fn parse(text: &str) -> Option<Version> {
    // Most versions are canonical already.
    let parsed = Version::parse(text).or_else(|_| Version::parse(&canonical(text, 3)));
    parsed.ok().map(|version| Version { build: BuildMetadata::EMPTY, ..version })
}

/// `~1.2.3`: from that version, below the next minor version.
pub fn tilde(text: &str) -> Option<VersionReq> {
    from_version(Op::Tilde, text)
}

/// `^1.2.3`: from that version, below the next change of the first non-zero number.
pub fn caret(text: &str) -> Option<VersionReq> {
    from_version(Op::Caret, text)
}

/// `1.2.*`, `1.*`, `*`: any number from the first star on. Without a star, as [`caret`], where an
/// omitted number may be any. As in PostHog, also any other requirement that Cargo reads, such as
/// `>=1.2, <1.5`.
pub fn wildcard(text: &str) -> Option<VersionReq> {
    VersionReq::parse(&canonical(text, 0)).ok()
}

fn from_version(op: Op, text: &str) -> Option<VersionReq> {
    let Version { major, minor, patch, pre, .. } = parse(text)?;
    let comparator = Comparator { op, major, minor: Some(minor), patch: Some(patch), pre };
    Some(VersionReq { comparators: vec![comparator] })
}

/// `text` without blanks, `v` and leading zeros, with at least `numbers` numbers.
fn canonical(text: &str, numbers: usize) -> String {
    let text = text.trim();
    let text = text.strip_prefix(['v', 'V']).unwrap_or(text).trim();
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    let mut canonical = String::with_capacity(text.len() + 2 * numbers);
    for (index, part) in core.split('.').enumerate() {
        if index > 0 {
            canonical.push('.');
        }
        canonical.push_str(without_zeros(part));
    }
    for _ in core.split('.').count()..numbers {
        canonical.push_str(".0");
    }
    canonical + rest
}

/// A number without leading zeros; any other text as it is.
fn without_zeros(part: &str) -> &str {
    match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0",
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits,
        _ => part,
    }
}
