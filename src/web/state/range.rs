//! Of what time the events are: [`Range`].

use crate::web::state::parameters::Parameters;
use crate::web::state::parameters::Printer;
use crate::web::state::parameters::Wrong;

/// Most characters of a date.
const DATE_MAX_CHARS: usize = 40;

/// Ranges that a form offers: `from`, and what it is called.
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

/// A range of dates, as it is sent: dates, or spans such as `-7d`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first; seven days ago without it.
    pub from: Option<String>,
    /// The last; now without it.
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

    /// What it is called.
    pub fn text(&self) -> String {
        let from = self.from.as_deref().unwrap_or("-7d");
        let preset = PRESETS.iter().find(|(preset, _)| *preset == from);
        match (&self.to, preset) {
            (None, Some((_, name))) => (*name).to_owned(),
            (None, None) => format!("since {from}"),
            (Some(to), _) => format!("{from} to {to}"),
        }
    }
}
