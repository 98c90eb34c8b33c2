//! Progress bars of commands, which are shown on a terminal, and nowhere else: [`bar`].

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with this template, and with a length if it is known.
pub(super) fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    // Templates are constants; were one wrong, the default style would do.
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
