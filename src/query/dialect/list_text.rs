//! Lists as PostgreSQL writes them in texts, such as `{1,"a b",NULL}`: [`items`].

/// Why a text has no items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoList {
    /// It is not written like a list.
    Malformed,
    /// It is a list of lists.
    Nested,
}

/// The items of a list; `None` is NULL.
///
/// # Errors
///
/// The text is none, or one of lists.
pub fn items(value: &str) -> Result<Vec<Option<String>>, NoList> {
    let inner = value.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or(NoList::Malformed)?;
    let mut found = Vec::new();
    if inner.trim().is_empty() {
        return Ok(found);
    }
    let mut letters = inner.chars();
    loop {
        let (mut item, mut is_quoted, mut is_open) = (String::new(), false, false);
        let ended = loop {
            match letters.next() {
                None if is_open => return Err(NoList::Malformed),
                None => break true,
                Some('\\') => item.push(letters.next().ok_or(NoList::Malformed)?),
                // White space in front of quotes is none of the value.
                Some('"') if !is_quoted && item.trim().is_empty() => {
                    item.clear();
                    (is_open, is_quoted) = (true, true);
                }
                Some('"') if is_open => is_open = false,
                Some(own) if is_quoted && !is_open && own.is_whitespace() => {}
                Some(',') if !is_open => break false,
                Some('{' | '}') if !is_open => return Err(NoList::Nested),
                Some(own) if is_open || !is_quoted => item.push(own),
                Some(_) => return Err(NoList::Malformed),
            }
        };
        let plain = item.trim();
        found.push(match is_quoted {
            true => Some(item),
            false if plain.eq_ignore_ascii_case("null") => None,
            false if plain.is_empty() => return Err(NoList::Malformed),
            false => Some(plain.to_owned()),
        });
        if ended {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NoList::{Malformed, Nested};
    use super::items;

    #[test]
    fn items_are_quoted_or_not() {
        let texts = |own: &[Option<&str>]| {
            Ok(own.iter().map(|own| own.map(str::to_owned)).collect::<Vec<_>>())
        };
        for (value, expected) in [
            ("{}", texts(&[])),
            ("{ }", texts(&[])),
            (" {r,v} ", texts(&[Some("r"), Some("v")])),
            ("{a,\"b,c\",NULL}", texts(&[Some("a"), Some("b,c"), None])),
            (
                "{a, \"b \\\"c\",null,\"NULL\",\"\"}",
                texts(&[Some("a"), Some("b \"c"), None, Some("NULL"), Some("")]),
            ),
            ("{{a}}", Err(Nested)),
            ("a", Err(Malformed)),
            ("{a", Err(Malformed)),
            ("{a,}", Err(Malformed)),
            ("{\"a}", Err(Malformed)),
            ("{\"a\"b}", Err(Malformed)),
        ] {
            assert_eq!(items(value), expected, "{value}");
        }
    }
}
