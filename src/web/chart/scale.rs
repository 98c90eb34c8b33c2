//! Linear scale from values to pixels: [`Scale`].

use crate::chart::ticks::ticks;

/// Approximate number of axis lines.
const TICKS: u8 = 4;

/// The vertical axis of a chart: maps a value to pixels below the top.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    ticks: Vec<f64>,
    low: f64,
    high: f64,
    height_px: f64,
}

impl Scale {
    /// The scale that covers all values, and 0.
    pub(super) fn of(values: impl Iterator<Item = f64>, height_px: u16) -> Self {
        let bounds = (0.0_f64, 0.0_f64);
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold(bounds, |(low, high), value| (low.min(value), high.max(value)));
        // The round number above the largest values may exceed the range of `f64`.
        let ticks = ticks(low, high, TICKS).into_iter().map(|tick| tick.clamp(f64::MIN, f64::MAX));
        let ticks: Vec<f64> = ticks.collect();
        let low = ticks.first().copied().unwrap_or(0.0);
        let high = ticks.last().copied().unwrap_or(1.0);
        Self { ticks, low, high, height_px: f64::from(height_px) }
    }

    /// The position of a value in pixels below the top, clamped to the height.
    pub(super) fn y(&self, value: f64) -> f64 {
        // Each number is divided first: the range between two large ones may exceed that of `f64`.
        let half = self.high / 2.0 - self.low / 2.0;
        let part = (self.high / 2.0 - value / 2.0) / half;
        (part * self.height_px).clamp(0.0, self.height_px)
    }

    /// Its axis lines, from the lowest.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// The height in pixels.
    pub(super) fn height_px(&self) -> f64 {
        self.height_px
    }
}

/// A length or a percent as an attribute value: with few digits, and without an exponent.
pub(super) fn digits(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The same in percent of a whole; 0 if the whole is 0.
pub(super) fn percent(part: f64, whole: f64) -> String {
    let percent = part / whole * 100.0;
    format!("{}%", digits(if percent.is_finite() { percent.clamp(0.0, 100.0) } else { 0.0 }))
}
