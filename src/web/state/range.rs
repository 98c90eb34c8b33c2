//! Date range of an insight: [`Range`].

use crate::state::parameters::{Parameters, Printer, Wrong};

/// Most characters of a date.
const DATE_MAX_CHARS: usize = 40;

/// Presets of a form: `from`, and the display name.
pub const PRESETS: [(&str, &str); 11] = [
    ("dStart", "today"),
    ("-24h", "last 24 hours"),
    ("-7d", "last 7 days"),
    ("-14d", "last 14 days"),
    ("-30d", "last 30 days"),
    ("-90d", "last 90 days"),
    ("-180d", "last 180 days"),
    ("-12m", "last 12 months"),
    ("mStart", "this month"),
    ("yStart", "this year"),
    ("all", "all time"),
];

/// A date range as it is sent: dates, or relative spans such as `-7d`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Start; seven days ago if `None`.
    pub from: Option<String>,
    /// End; now if `None`.
    pub to: Option<String>,
}

impl Range {
    /// Takes it from parameters.
    ///
    /// # Errors
    ///
    /// A date is too long, or given twice.
    pub fn parse(parameters: &mut Parameters) -> Result<Self, Wrong> {
        let mut date = |name: &str| {
            let date = parameters.take(name)?;
            match date.as_ref().is_some_and(|date| date.chars().count() > DATE_MAX_CHARS) {
                true => Err(Wrong::new(name, "Expected a date, or a span such as -7d.")),
                false => Ok(date),
            }
        };
        Ok(Self { from: date("from")?, to: date("to")? })
    }

    /// Adds it to an address.
    pub fn print(&self, printer: &mut Printer) {
        printer.add("from", self.from.as_ref());
        printer.add("to", self.to.as_ref());
    }

    /// Display name.
    pub fn text(&self) -> String {
        let from = self.from.as_deref().unwrap_or("-7d");
        let preset = PRESETS.iter().find(|(preset, _)| *preset == from);
        match (&self.to, preset) {
            (None, Some((_, name))) => (*name).to_owned(),
            (None, None) => span(from).unwrap_or_else(|| format!("since {from}")),
            (Some(to), _) => format!("{from} to {to}"),
        }
    }
}

/// Display name of a relative span such as `-27d`; `None` for a date.
fn span(from: &str) -> Option<String> {
    let (count, unit) = from.strip_prefix('-')?.split_at_checked(from.len().checked_sub(2)?)?;
    let count: u32 = count.parse().ok()?;
    let units = [
        ("h", "hour"),
        ("d", "day"),
        ("w", "week"),
        ("m", "month"),
        ("q", "quarter"),
        ("y", "year"),
    ];
    let (_, name) = units.into_iter().find(|(own, _)| *own == unit)?;
    Some(if count == 1 { format!("last {name}") } else { format!("last {count} {name}s") })
}

#[cfg(test)]
mod tests {
    use super::Range;

    #[test]
    fn spans_are_called_as_people_do() {
        for (from, to, expected) in [
            ("-7d", None, "last 7 days"),
            ("-27d", None, "last 27 days"),
            ("-1w", None, "last week"),
            ("-3q", None, "last 3 quarters"),
            ("-5", None, "since -5"),
            ("-", None, "since -"),
            ("-1dStart", None, "since -1dStart"),
            ("-1ä", None, "since -1ä"),
            ("2026-01-01", None, "since 2026-01-01"),
            ("-27d", Some("-1d"), "-27d to -1d"),
        ] {
            let range = Range { from: Some(from.to_owned()), to: to.map(str::to_owned) };
            assert_eq!(range.text(), expected);
        }
    }
}
