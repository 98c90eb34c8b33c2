//! Charts as SVG and HTML: pure functions of numbers, with classes for colours and no style of their own. What is
//! drawn is wide as its place: horizontal positions are percents, vertical ones pixels, so that texts keep their size.
//! Every chart has its numbers as a table below it ([`table`]), which is the form for those who do not see the chart.

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
