//! Charts as SVG and HTML: pure functions of numbers, with CSS classes for colours and no inline style. A chart fills
//! the width of its container: horizontal positions are percents, vertical ones pixels, so that texts keep their size.
//! Every chart has its numbers as a table below it ([`table`]), for those who cannot see the chart.

pub mod bars;
pub mod figure;
pub mod funnel;
pub mod heat;
pub mod line;
pub mod pie;
mod plot;
pub mod sankey;
mod scale;
pub mod series;
pub mod spark;
pub mod table;
mod ticks;

#[cfg(test)]
mod tests;
