//! Tags of definitions and flags: how labels are normalised.

use std::collections::HashSet;

/// Normalises labels as PostHog does: trimmed, lower case, each once, none empty.
pub(super) fn normal_tags(tags: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::with_capacity(tags.len());
    let tags = tags.into_iter().map(|tag| tag.trim().to_lowercase());
    tags.filter(|tag| !tag.is_empty() && seen.insert(tag.clone())).collect()
}
