//! Semantic versions as apps report them, and ranges of them.
//!
//! More lenient than semver.org: a leading `v`, blanks around, fewer than three numbers and leading
//! zeros are accepted, because `3.10` and `v3.08` are what mobile apps send. Order is that of
//! semver.org section 11; build metadata is checked and then ignored, as section 10 says.

use std::cmp::Ordering;

/// A version: `major.minor.patch` with an optional pre-release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    core: [u64; 3],
    /// Empty for a release.
    pre: Box<[Identifier]>,
}

/// A part of a pre-release. The derived order is that of semver.org: numbers by value and below texts,
/// texts by their ASCII codes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(Box<str>),
}

/// The versions from one (included) to another (excluded).
///
/// A pre-release is in the range only if the lower end is a pre-release of the same version, so
/// that `^1.2.3` does not admit `1.9.0-beta`. That is the rule of npm and Cargo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    low: Version,
    /// `None`: no end.
    below: Option<[u64; 3]>,
}

impl Version {
    /// Parses a version.
    pub fn parse(text: &str) -> Option<Self> {
        parse(text).map(|(version, _)| version)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        // A release is above its pre-releases.
        let release = |version: &Self| version.pre.is_empty();
        self.core
            .cmp(&other.core)
            .then_with(|| release(self).cmp(&release(other)))
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

impl VersionRange {
    /// `~1.2.3`: from that version, below the next minor version.
    pub fn tilde(text: &str) -> Option<Self> {
        let low = Version::parse(text)?;
        let [major, minor, _] = low.core;
        Some(Self { low, below: Some([major, minor.saturating_add(1), 0]) })
    }

    /// `^1.2.3`: from that version, below the next change of the first non-zero number.
    pub fn caret(text: &str) -> Option<Self> {
        let low = Version::parse(text)?;
        Some(Self { below: Some(next(low.core, 3)), low })
    }

    /// `1.2.*`, `1.*`, `*`: any number from the first star on. Without a star, as
    /// [`VersionRange::caret`], where an omitted number may be any.
    pub fn wildcard(text: &str) -> Option<Self> {
        let text = trimmed(text);
        let Some(star) = text.find('*') else {
            let (low, given) = parse(text)?;
            return Some(Self { below: Some(next(low.core, given)), low });
        };
        let (fixed, free) = text.split_at_checked(star)?;
        let all_free = free.split('.').all(|part| part == "*");
        let parts = text.split('.').count();
        if !all_free || parts > 3 {
            return None;
        }
        let release = |core| Version { core, pre: Box::default() };
        if fixed.is_empty() {
            return Some(Self { low: release([0; 3]), below: None });
        }
        let (low, given) = parse(fixed.strip_suffix('.')?)?;
        let below = match (low.core, given) {
            ([major, _, _], 1) => [major.saturating_add(1), 0, 0],
            ([major, minor, _], _) => [major, minor.saturating_add(1), 0],
        };
        low.pre.is_empty().then_some(Self { low, below: Some(below) })
    }

    /// Whether the version is in the range.
    pub fn contains(&self, version: &Version) -> bool {
        if !version.pre.is_empty() {
            let same = self.low.core == version.core && !self.low.pre.is_empty();
            return same && *version >= self.low;
        }
        *version >= self.low && self.below.is_none_or(|below| version.core < below)
    }
}

/// The end of a caret range of which the first `given` numbers are given.
fn next(core: [u64; 3], given: usize) -> [u64; 3] {
    match core {
        [major, _, _] if major > 0 || given == 1 => [major.saturating_add(1), 0, 0],
        [_, minor, _] if minor > 0 || given == 2 => [0, minor.saturating_add(1), 0],
        [_, _, patch] => [0, 0, patch.saturating_add(1)],
    }
}

fn trimmed(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix(['v', 'V']).unwrap_or(text).trim()
}

/// The version, and how many of its three numbers are given.
fn parse(text: &str) -> Option<(Version, usize)> {
    let text = trimmed(text);
    let (text, build) = text.split_once('+').map_or((text, None), |(t, build)| (t, Some(build)));
    let (numbers, pre) = text.split_once('-').map_or((text, None), |(n, pre)| (n, Some(pre)));
    if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
        return None;
    }
    let mut core = [0; 3];
    let mut given = 0;
    for part in numbers.split('.') {
        *core.get_mut(given)? = numeric(part)?;
        given += 1;
    }
    let pre = match pre {
        Some(pre) => pre.split('.').map(identifier).collect::<Option<_>>()?,
        None => Box::default(),
    };
    Some((Version { core, pre }, given))
}

fn identifier(text: &str) -> Option<Identifier> {
    if !is_identifier(text) {
        return None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Identifier::Text(text.into()));
    }
    // Here semver.org is followed: `1.0.0-01` is not a version.
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if has_leading_zero { None } else { numeric(text).map(Identifier::Number) }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Digits only: `parse` alone would accept a plus sign.
fn numeric(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
