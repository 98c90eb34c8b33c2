//! Number formatting: [`text`], [`short`] and [`duration`]; and one large number with its previous value: [`large`].

use maud::{Markup, html};

use crate::chart::series::Unit;

/// Numbers from here on are shown with an exponent.
const EXPONENT_FROM: f64 = 1e15;

/// Suffixes of thousands.
const THOUSANDS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];

/// Units of durations, in seconds.
const DURATIONS: [(f64, &str); 4] = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")];

/// A number in full, with thousands separators and at most two decimals; small ones with three significant digits.
pub fn text(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => plain(value),
        Unit::Percent => format!("{}\u{202f}%", plain(value)),
        Unit::Seconds => duration(value),
    }
}

/// A number in a few characters, for axis labels.
pub fn short(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{}\u{202f}%", plain(value)),
        Unit::Seconds => duration(value),
        Unit::Count => {
            let own = THOUSANDS.iter().find(|(size, _)| value.abs() >= *size);
            match own {
                Some((size, name)) if value.abs() < EXPONENT_FROM => {
                    format!("{}\u{202f}{name}", plain(value / size))
                }
                _ => plain(value),
            }
        }
    }
}

/// A duration in its two largest units.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds.abs() >= EXPONENT_FROM {
        return plain(seconds);
    }
    let sign = if seconds < 0.0 { "\u{2212}" } else { "" };
    let seconds = seconds.abs();
    let large = DURATIONS.iter().position(|(size, _)| seconds >= *size);
    let Some(at) = large.filter(|at| *at + 1 < DURATIONS.len()) else {
        return format!("{sign}{}\u{202f}s", plain(seconds));
    };
    let Some([(size, name), (next, next_name)]) = DURATIONS.get(at..at + 2) else {
        return plain(seconds);
    };
    // Rounded in the smaller unit first, so that its count never reaches one of the larger unit.
    let small = (seconds / next).round();
    let (count, rest) = ((small * next / size).floor(), small % (size / next));
    let rest = if rest > 0.0 { format!(" {rest}\u{202f}{next_name}") } else { String::new() };
    format!("{sign}{count}\u{202f}{name}{rest}")
}

/// A duration; below one second in milliseconds alone.
pub fn span(seconds: f64) -> String {
    match seconds.abs() {
        short if short < 1.0 => format!("{}\u{202f}ms", plain(seconds * 1000.0)),
        _ => duration(seconds),
    }
}

/// Digits with commas between thousands.
pub fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (digit, left) in digits.chars().zip((0..digits.len()).rev()) {
        text.push(digit);
        if left > 0 && left.is_multiple_of(3) {
            text.push(',');
        }
    }
    text
}

/// A number with thousands separators and at most two decimals; small ones with three significant digits.
pub fn plain(value: f64) -> String {
    if !value.is_finite() {
        return "\u{2013}".to_owned();
    }
    let size = value.abs();
    if size >= EXPONENT_FROM {
        return format!("{value:.3e}");
    }
    let decimals = match size {
        _ if value.fract() == 0.0 => 0,
        size if size >= 0.1 => 2,
        size if size >= 0.001 => 4,
        _ => return format!("{value:.2e}"),
    };
    let digits = format!("{size:.decimals$}");
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let mut text = String::with_capacity(whole.len() + whole.len() / 3 + 8);
    if value < 0.0 && digits.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        text.push('\u{2212}');
    }
    text.push_str(&grouped(whole));
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Relative change in percent of the previous value; `None` where that was 0.
pub fn change(now: f64, before: f64) -> Option<f64> {
    let change = (now - before) / before.abs() * 100.0;
    change.is_finite().then_some(change)
}

/// One number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// What the number measures.
    pub name: String,
    /// The number.
    pub value: f64,
    /// The value of the previous period.
    pub before: Option<f64>,
    /// The unit.
    pub unit: Unit,
    /// URL of the details behind the number.
    pub link: Option<String>,
}

/// One large number, with its change.
pub fn large(figure: &Figure) -> Markup {
    let shown = text(figure.value, figure.unit);
    html! {
        div class="large" {
            p class="large-value" {
                @if let Some(link) = &figure.link { a href=(link) { (shown) } } @else { (shown) }
            }
            p class="large-name" { (figure.name) }
            @if let Some(before) = figure.before {
                p class="large-change" {
                    @match change(figure.value, before) {
                        Some(change) if change > 0.0 => { span class="up" { "▲ " (text(change, Unit::Percent)) } " from " },
                        Some(change) if change < 0.0 => { span class="down" { "▼ " (text(-change, Unit::Percent)) } " from " },
                        _ if figure.value == before => { span { "unchanged" } " from " },
                        // There is no percentage of 0.
                        _ => {},
                    }
                    (text(before, figure.unit)) " before"
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{change, duration, short, span, text};
    use crate::chart::series::Unit;

    #[test]
    fn numbers_are_legible() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (7.0, "7"),
            (1234.0, "1,234"),
            (-1_234_567.891, "−1,234,567.89"),
            // A value that is rounded up to 1000 has a separator, too.
            (999.999, "1,000"),
            (0.5, "0.5"),
            (0.0123, "0.0123"),
            (0.000_012, "1.20e-5"),
            (2e18, "2.000e18"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(text(value, Unit::Count), expected);
        }
        assert_eq!(text(33.333, Unit::Percent), "33.33\u{202f}%");
        for (value, expected) in
            [(0.0, "0"), (950.0, "950"), (1500.0, "1.5\u{202f}k"), (-2e6, "−2\u{202f}M")]
        {
            assert_eq!(short(value, Unit::Count), expected);
        }
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, expected) in [
            (0.0, "0 s"),
            (1.5, "1.5 s"),
            (60.0, "1 min"),
            (3599.6, "60 min"),
            (3600.0, "1 h"),
            (3661.0, "1 h 1 min"),
            (90_000.0, "1 d 1 h"),
            (-61.0, "−1 min 1 s"),
        ] {
            assert_eq!(duration(seconds).replace('\u{202f}', " "), expected);
        }
    }

    #[test]
    fn short_spans_are_in_milliseconds() {
        for (seconds, expected) in
            [(0.0, "0 ms"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (61.0, "1 min 1 s")]
        {
            assert_eq!(span(seconds).replace('\u{202f}', " "), expected);
        }
    }

    #[test]
    fn changes_are_of_what_was_before() {
        assert_eq!(change(150.0, 100.0), Some(50.0));
        assert_eq!(change(-50.0, -100.0), Some(50.0));
        assert_eq!((change(1.0, 0.0), change(0.0, 0.0)), (None, None));
    }
}
