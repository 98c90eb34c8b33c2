//! Suggestion for an unknown name: the nearest known one ([`nearest`]).

use strsim::osa_distance;

/// Longest name that is compared, in characters: the work grows with its square.
const NAME_MAX_CHARS: usize = 100;

/// Most known names that an error lists if none is near.
const LISTED_MAX: usize = 30;

/// The part of an error message after an unknown name: the nearest known one, or a list of all. A known name also
/// matches by its part behind the dot: the field of an object within.
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

/// The nearest of the known names, if one is near: at most a third of the letters has to change. Upper case and
/// underscores are no differences.
pub fn nearest<'k>(name: &str, known: &'k [String]) -> Option<&'k str> {
    let wanted = plain(name);
    let letters = wanted.chars().count();
    if letters > NAME_MAX_CHARS {
        return None;
    }
    let most = letters.div_ceil(3);
    let distance = |own: &'k String| match own.rsplit_once('.') {
        Some((_, last)) if plain(last) == wanted => (0, own.as_str()),
        _ => (osa_distance(&wanted, &plain(own)), own.as_str()),
    };
    // The first of several that are equally near.
    let best = known.iter().map(distance).min_by_key(|(edits, _)| *edits);
    best.filter(|(edits, _)| *edits <= most).map(|(_, own)| own)
}

/// The letters of a name.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{hint, nearest};

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
