//! Tags of definitions and flags: how labels are normalised.

/// Normalises labels as PostHog does: trimmed, lower case, each once, none empty.
pub(super) fn normal_tags(tags: Vec<String>) -> Vec<String> {
    let mut normal: Vec<String> = Vec::with_capacity(tags.len());
    for tag in tags {
        let tag = tag.trim().to_lowercase();
        if !tag.is_empty() && !normal.contains(&tag) {
            normal.push(tag);
        }
    }
    normal
}
