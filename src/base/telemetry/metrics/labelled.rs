//! One page of the metrics of a process and of its shards, which have the same families: [`joined`].

use std::collections::HashMap;
use std::fmt::Write;

/// The page `own`, with the samples of each of `others` in the same families, with its label. A page lacks the families that
/// have no samples.
pub(super) fn joined<'a>(
    own: &'a str,
    label: &str,
    others: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut families: Vec<Family<'a>> = Families(own).collect();
    let mut places: HashMap<&str, usize> =
        families.iter().enumerate().map(|(place, family)| (family.head(), place)).collect();
    let mut labelled: Vec<String> = vec![String::new(); families.len()];
    for (value, page) in others {
        for family in Families(page) {
            let place = *places.entry(family.head()).or_insert_with(|| {
                families.push(Family { whole: family.comments() });
                labelled.push(String::new());
                families.len() - 1
            });
            let Some(lines) = labelled.get_mut(place) else { continue };
            for sample in family.samples() {
                // Writing to a `String` does not fail.
                let _ = match (sample.split_once('{'), sample.split_once(' ')) {
                    (Some((name, rest)), _) => {
                        writeln!(lines, "{name}{{{label}=\"{value}\",{rest}")
                    }
                    (None, Some((name, rest))) => {
                        writeln!(lines, "{name}{{{label}=\"{value}\"}} {rest}")
                    }
                    (None, None) => Ok(()),
                };
            }
        }
    }
    let mut page = String::with_capacity(own.len());
    for (family, lines) in families.iter().zip(&labelled) {
        page.push_str(family.whole);
        page.push_str(lines);
    }
    page.push_str("# EOF\n");
    page
}

/// The families of a page.
struct Families<'a>(&'a str);

/// The lines about one metric.
struct Family<'a> {
    whole: &'a str,
}

impl<'a> Family<'a> {
    /// Its first line, which has its name.
    fn head(&self) -> &'a str {
        self.whole.lines().next().unwrap_or_default()
    }

    /// The lines before its samples.
    fn comments(&self) -> &'a str {
        let comments = self.whole.split_inclusive('\n').take_while(|line| line.starts_with('#'));
        self.whole.split_at(comments.map(str::len).sum()).0
    }

    fn samples(&self) -> impl Iterator<Item = &'a str> {
        self.whole.lines().filter(|line| !line.starts_with('#'))
    }
}

impl<'a> Iterator for Families<'a> {
    type Item = Family<'a>;

    fn next(&mut self) -> Option<Family<'a>> {
        const HEAD: &str = "# HELP ";
        if !self.0.starts_with(HEAD) {
            return None;
        }
        let more = |text: &'a str| {
            let next = text.find(&format!("\n{HEAD}")).map(|at| at + 1);
            next.or_else(|| text.find("# EOF"))
        };
        let end = more(self.0).unwrap_or(self.0.len());
        let (whole, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(Family { whole })
    }
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn samples_of_shards_have_their_label() {
        let page = |a: u8, b: u8| {
            format!(
                "# HELP a An a.\n# TYPE a counter\na_total {a}\n# HELP b A b.\n# TYPE b gauge\n# UNIT b bytes\n\
                 b{{x=\"y z\"}} {b}\n# EOF\n"
            )
        };
        let (first, second) = (page(3, 4), page(5, 6));
        let others = [("0000", &*first), ("0007", &*second)];
        assert_eq!(
            joined(&page(1, 2), "shard", others.into_iter()),
            "# HELP a An a.\n# TYPE a counter\na_total 1\na_total{shard=\"0000\"} 3\na_total{shard=\"0007\"} 5\n\
             # HELP b A b.\n# TYPE b gauge\n# UNIT b bytes\nb{x=\"y z\"} 2\nb{shard=\"0000\",x=\"y z\"} 4\n\
             b{shard=\"0007\",x=\"y z\"} 6\n# EOF\n"
        );
        assert_eq!(joined(&page(1, 2), "shard", std::iter::empty()), page(1, 2));
    }
}
