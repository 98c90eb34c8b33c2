//! The name that somebody may have meant by one that is not known: [`nearest`].

/// Longest name that is compared, in characters: the work grows with its square.
const NAME_MAX_CHARS: usize = 100;

/// Most known names that an error lists where none is near.
const LISTED_MAX: usize = 30;

/// What an error says after the name that is not known: the nearest known one, or which there are. What stands
/// behind the dot of a known name may be meant alone: the field of an object within.
pub fn hint(name: &str, known: &[String]) -> String {
    match nearest(name, known) {
        Some(nearest) => format!(" Did you mean \"{nearest}\"?"),
        None => {
            let own: Vec<&str> =
                known.iter().map(String::as_str).filter(|own| !own.contains('.')).collect();
            match own.len() {
                0 => String::new(),
                1..=LISTED_MAX => format!(" Known are {}.", own.join(", ")),
                _ => {
                    let own: Vec<&str> = own.into_iter().take(LISTED_MAX).collect();
                    format!(" Known are {}, and others.", own.join(", "))
                }
            }
        }
    }
}

/// The nearest of the known names, if one is near: in which at most a third of the letters has to change. Upper case and
/// underscores are no differences.
pub fn nearest<'k>(name: &str, known: &'k [String]) -> Option<&'k str> {
    let wanted = plain(name);
    if wanted.len() > NAME_MAX_CHARS {
        return None;
    }
    let most = wanted.len().div_ceil(3);
    let distance = |own: &'k String| match own.rsplit_once('.') {
        Some((_, last)) if plain(last) == wanted => (0, own.as_str()),
        _ => (edits(&wanted, &plain(own)), own.as_str()),
    };
    // The first of several that are equally near.
    let best = known.iter().map(distance).min_by_key(|(edits, _)| *edits);
    best.filter(|(edits, _)| *edits <= most).map(|(_, own)| own)
}

/// The letters of a name.
fn plain(name: &str) -> Vec<char> {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}

/// How many letters have to be put in, left out, replaced, or swapped with the next one.
fn edits(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let at =
                |line: &[usize], column: usize| line.get(column).copied().unwrap_or(usize::MAX);
            let replaced = at(&above, column).saturating_add(usize::from(letter != other));
            let left_out = at(&above, column + 1).saturating_add(1);
            let put_in = at(&line, column).saturating_add(1);
            let is_swap = row > 0
                && column > 0
                && from.get(row - 1) == Some(other)
                && to.get(column - 1) == Some(letter);
            let swapped = match is_swap {
                true => at(&before, column - 1).saturating_add(1),
                false => usize::MAX,
            };
            line.push(replaced.min(left_out).min(put_in).min(swapped));
        }
        before = std::mem::replace(&mut above, line);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::edits;
    use super::hint;
    use super::nearest;

    fn chars(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("kitten", "sitting", 3),
            ("saturday", "sunday", 3),
            ("ab", "ba", 1),
            ("intervla", "interval", 1),
        ] {
            assert_eq!(edits(&chars(from), &chars(to)), expected, "{from} {to}");
            assert_eq!(edits(&chars(to), &chars(from)), expected, "{to} {from}");
        }
    }

    #[test]
    fn the_nearest_name_is_said_or_all_are() {
        let known =
            ["properties", "dateRange", "interval", "dateRange.date_from"].map(str::to_owned);
        for (name, expected) in [
            ("propertys", Some("properties")),
            ("property", Some("properties")),
            ("date_range", Some("dateRange")),
            ("daterange", Some("dateRange")),
            ("date_from", Some("dateRange.date_from")),
            ("intreval", Some("interval")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(101), &known), None);
        assert_eq!(hint("propertys", &known), " Did you mean \"properties\"?");
        assert_eq!(hint("colour", &known), " Known are properties, dateRange, interval.");
        assert_eq!(hint("colour", &[]), "");
    }
}
