//! The guide for operators and for authors of clients: pages of Markdown in `src/guide/`, which rustdoc renders here and
//! `weir help TOPIC` prints. `settings.md` and `functions.md` are generated; see the page [`contributing`].

/// A page of the guide.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Its name, such as `settings`.
    pub topic: &'static str,
    /// What it is about, in a few words.
    pub summary: &'static str,
    /// Markdown.
    pub text: &'static str,
}

/// Where links between pages lead in rustdoc. In the files, such a link leads to the file (`[tables]: tables.md`); of two
/// definitions the first one counts, so these stand in front of the page.
macro_rules! links {
    () => {
        "[backup]: self::backup\n[bi]: self::bi\n[bucket]: self::bucket\n[compatibility]: self::compatibility\n\
         [contributing]: self::contributing\n[flags]: self::flags\n[functions]: self::functions\n\
         [guarantees]: self::guarantees\n[insights]: self::insights\n[install]: self::install\n\
         [limits]: self::limits\n\
         [operations]: self::operations\n[page]: self::page\n[persons]: self::persons\n\
         [postgres]: self::postgres\n[queries]: self::queries\n[sdks]: self::sdks\n\
         [settings]: self::settings\n[standby]: self::standby\n[tables]: self::tables\n"
    };
}

/// Declares the pages: each as a module for rustdoc, and all of them in [`PAGES`].
macro_rules! pages {
    ($($topic:ident $file:literal $summary:literal,)*) => {
        /// All pages, in the order in which one would read them.
        pub const PAGES: &[Page] = &[
            $(Page { topic: stringify!($topic), summary: $summary, text: include_str!($file) },)*
        ];
        $(
            #[doc = links!()]
            #[doc = include_str!($file)]
            pub mod $topic {}
        )*
    };
}

pages! {
    install "guide/install.md" "packages: archive, wheel, deb, npm, container image",
    sdks "guide/sdks.md" "send events: SDKs, websites, curl, synthetic events",
    persons "guide/persons.md" "find, change, delete and split persons; projects and keys",
    flags "guide/flags.md" "feature flags, OpenFeature, local evaluation",
    queries "guide/queries.md" "SQL: tables, properties, formats, what a query may take",
    functions "guide/functions.md" "functions of ClickHouse in SQL, with examples",
    insights "guide/insights.md" "trends, funnels, retention, paths, dashboards, public links",
    page "guide/page.md" "the web interface",
    bi "guide/bi.md" "BI tools and notebooks over the PostgreSQL port",
    tables "guide/tables.md" "the files for other engines, and their columns",
    settings "guide/settings.md" "every setting with its default, range and meaning",
    limits "guide/limits.md" "limits that are not settings",
    operations "guide/operations.md" "install, proxy, logs, metrics, the data directory, growth",
    postgres "guide/postgres.md" "metadata in PostgreSQL",
    bucket "guide/bucket.md" "tables in S3 or a compatible store, and what that costs",
    standby "guide/standby.md" "two servers without a disk of their own",
    backup "guide/backup.md" "backup and restore",
    guarantees "guide/guarantees.md" "durability, damage, deletion",
    compatibility "guide/compatibility.md" "public paths, differences from PostHog, tested clients",
    contributing "guide/contributing.md" "build, test, where to begin",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::PAGES;

    /// The links of a text: what stands between `](` and `)`, and behind `]: `.
    fn links(text: &str) -> impl Iterator<Item = &str> {
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let defined = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
        inline.chain(defined.map(|(_, target)| target))
    }

    /// The anchor of a heading, as GitHub and rustdoc make it.
    fn anchor(heading: &str) -> String {
        let kept =
            heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
    }

    /// Goal: no link of the guide or of the README leads nowhere, in the files or in rustdoc.
    #[test]
    fn links_lead_to_pages() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/");
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        for link in links(&readme) {
            let path = format!("{}/{link}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&path).is_file(), "README.md: {link}");
        }
        for page in PAGES {
            let topic = page.topic;
            for link in links(page.text) {
                if let Some(wanted) = link.strip_prefix('#') {
                    let headings = page.text.lines().filter(|line| line.starts_with('#'));
                    let found = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
                    assert!(found.into_iter().any(|found| found == wanted), "{topic}: {link}");
                    continue;
                }
                assert!(
                    std::path::Path::new(&format!("{directory}{link}")).is_file(),
                    "{topic}: {link}"
                );
            }
            let of_rustdoc = format!("[{topic}]: self::{topic}\n");
            assert!(links!().contains(&of_rustdoc), "{topic}");
            // The README's table of contents has the same words.
            let row = format!("| [{topic}](src/guide/{topic}.md) | {} |\n", page.summary);
            assert!(readme.contains(&row), "README.md: {row}");
        }
    }

    /// Goal: a link in brackets is one. Method: every page that another one names in brackets is defined at its end.
    #[test]
    fn references_are_defined() {
        let topics: BTreeSet<&str> = PAGES.iter().map(|page| page.topic).collect();
        for page in PAGES {
            for part in page.text.split('[').skip(1) {
                let Some((name, rest)) = part.split_once(']') else { continue };
                if topics.contains(name) && !rest.starts_with([':', '(', '[']) {
                    let defined = format!("\n[{name}]: {name}.md\n");
                    assert!(page.text.contains(&defined), "{}: [{name}]", page.topic);
                }
            }
        }
    }

    /// Goal: every file in the directory is a page.
    #[test]
    fn files_are_pages() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide");
        let names = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let found: BTreeSet<String> = names.filter(|name| name.ends_with(".md")).collect();
        let pages: BTreeSet<String> =
            PAGES.iter().map(|page| format!("{}.md", page.topic)).collect();
        assert_eq!(found, pages);
    }

    /// Goal: the columns of the page are those of the published schemas, in their order.
    #[test]
    fn tables_have_the_columns_of_the_schemas() {
        let page = include_str!("guide/tables.md");
        for (table, schema) in [
            ("events", include_str!("../schemas/arrow/events.v1.json")),
            ("persons", include_str!("../schemas/arrow/persons.v1.json")),
        ] {
            let (_, section) = page.split_once(&format!("\n## Columns of `{table}`\n")).unwrap();
            let section = section.split("\n## ").next().unwrap();
            let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
            let schema: Value = serde_json::from_str(schema).unwrap();
            let expected: Vec<String> = schema["columns"]
                .as_array()
                .unwrap()
                .iter()
                .map(|column| {
                    let (name, kind) = (&column["name"], &column["type"]);
                    let nullable = if column["nullable"] == true { ", nullable" } else { "" };
                    format!(
                        "| `{}` | {}{nullable} |",
                        name.as_str().unwrap(),
                        kind.as_str().unwrap()
                    )
                })
                .collect();
            assert_eq!(rows.len(), expected.len(), "{table}");
            for (row, expected) in rows.iter().zip(&expected) {
                assert!(row.starts_with(expected), "{row} is to begin with {expected}");
                let (_, meaning) = row.trim_end_matches(" |").rsplit_once("| ").unwrap();
                assert!(!meaning.is_empty(), "{row}");
            }
        }
    }
}
