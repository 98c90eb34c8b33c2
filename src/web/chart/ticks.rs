//! Axis ticks: [`ticks`] are round numbers in equal steps.

/// Steps are these, times a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// The smallest range that is divided into steps.
const RANGE_MIN: f64 = 1e-300;

/// About `count` round numbers in equal steps from at most `low` to at least `high`. Two at least; those of 0 to 1 if
/// the range is empty.
pub(super) fn ticks(low: f64, high: f64, count: u8) -> Vec<f64> {
    let (low, high) = match (low.is_finite() && high.is_finite(), low <= high) {
        (true, true) => (low, high),
        (true, false) => (high, low),
        (false, _) => (0.0, 1.0),
    };
    // A range that is too small for the precision of numbers of its size is extended to 0; one that still is too small
    // becomes 0 to 1.
    let is_wide = |low: f64, high: f64| {
        let least = (low.abs().max(high.abs()) * 1e-12).max(RANGE_MIN);
        high - low > least
    };
    let (low, high) = if is_wide(low, high) { (low, high) } else { (low.min(0.0), high.max(0.0)) };
    let (low, high) = if is_wide(low, high) { (low, high) } else { (0.0, 1.0) };
    let wanted = high / f64::from(count.max(1)) - low / f64::from(count.max(1));
    let power = 10_f64.powf(wanted.log10().floor());
    let step = STEPS.iter().map(|step| step * power).find(|step| *step >= wanted);
    let step = step.unwrap_or(power * 10.0);
    let first = (low / step).floor();
    let last = (high / step).ceil();
    let mut ticks = Vec::with_capacity(usize::from(count) + 2);
    let mut at = first;
    while at <= last && ticks.len() <= usize::from(count) * 2 + 2 {
        // `+ 0.0` turns a negative zero into 0.
        ticks.push(rounded(at * step, step) + 0.0);
        at += 1.0;
    }
    ticks
}

/// Removes the rounding error of the multiplication: 0.3 instead of 0.30000000000000004.
fn rounded(value: f64, step: f64) -> f64 {
    let decimals = -step.log10().floor();
    if !(0.0..=15.0).contains(&decimals) {
        return value;
    }
    let scale = 10_f64.powf(decimals);
    (value * scale).round() / scale
}
