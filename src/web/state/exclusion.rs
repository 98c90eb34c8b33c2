//! An event that must not happen between two steps of a funnel: [`Exclusion`], in an address under a number, such as
//! `not1`, `not1.from` and `not1.f1.key`.

use crate::state::filters;
use crate::state::filters::Filter;
use crate::state::parameters::{Parameters, Printer, Wrong};
use crate::state::series::Event;

/// Most exclusions of a funnel.
pub const EXCLUSIONS_MAX: usize = 12;

/// Steps are counted from 1, as users see them.
const FROM_ONE: &str = "Steps are counted from 1.";

/// An exclusion: a person who does the event between two steps does not advance in the funnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The event.
    pub event: Event,
    /// The step after which it applies, from 1; the first one if `None`.
    pub from: Option<u16>,
    /// The step before which it applies; the last one if `None`.
    pub to: Option<u16>,
    /// Conditions on its events.
    pub filters: Vec<Filter>,
}

impl Exclusion {
    /// Takes all exclusions of a funnel: those with an event.
    ///
    /// # Errors
    ///
    /// A part of one is malformed.
    pub fn parse_all(parameters: &mut Parameters) -> Result<Vec<Self>, Wrong> {
        let mut exclusions = Vec::new();
        for number in 1..=EXCLUSIONS_MAX {
            exclusions.extend(Self::parse(parameters, &format!("not{number}"))?);
        }
        Ok(exclusions)
    }

    fn parse(parameters: &mut Parameters, own: &str) -> Result<Option<Self>, Wrong> {
        let event = parameters.take(own)?;
        let mut step = |field: &str| {
            let name = format!("{own}.{field}");
            match parameters.number::<u16>(&name)? {
                Some(0) => Err(Wrong::new(&name, FROM_ONE)),
                step => Ok(step),
            }
        };
        let (from, to) = (step("from")?, step("to")?);
        let filters = filters::parse(parameters, &format!("{own}."))?;
        let Some(event) = event else { return Ok(None) };
        let event = Event::parse(&event).map_err(|detail| Wrong::new(own, detail))?;
        Ok(Some(Self { event, from, to, filters }))
    }

    /// Adds it to an address, with its number among the exclusions, from 1.
    pub fn print(&self, printer: &mut Printer, number: usize) {
        let own = format!("not{number}");
        printer.add(&own, Some(self.event.text()).filter(|text| !text.is_empty()));
        printer.add(&format!("{own}.from"), self.from);
        printer.add(&format!("{own}.to"), self.to);
        filters::print(&self.filters, printer, &format!("{own}."));
    }
}
