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
        "[assistants]: self::assistants\n[backup]: self::backup\n[bi]: self::bi\n[bucket]: self::bucket\n\
         [cluster]: self::cluster\n[compatibility]: self::compatibility\n\
         [contributing]: self::contributing\n[engines]: self::engines\n\
         [flags]: self::flags\n[functions]: self::functions\n\
         [guarantees]: self::guarantees\n[imports]: self::imports\n[insights]: self::insights\n[install]: self::install\n\
         [limits]: self::limits\n\
         [operations]: self::operations\n[page]: self::page\n[persons]: self::persons\n\
         [postgres]: self::postgres\n[posthog]: self::posthog\n[queries]: self::queries\n[sdks]: self::sdks\n\
         [settings]: self::settings\n[standby]: self::standby\n[tables]: self::tables\n\
         [workers]: self::workers\n"
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
    imports "guide/imports.md" "import from PostHog, Mixpanel, Amplitude and others; export",
    posthog "guide/posthog.md" "copy a project of a running PostHog or Weir, references and all",
    persons "guide/persons.md" "find, change, delete and split persons; projects and keys",
    flags "guide/flags.md" "feature flags, OpenFeature, local evaluation",
    queries "guide/queries.md" "SQL: tables, properties, formats, what a query may take",
    functions "guide/functions.md" "functions of ClickHouse in SQL, with examples",
    insights "guide/insights.md" "trends, funnels, retention, paths, dashboards, public links",
    page "guide/page.md" "the web interface",
    tables "guide/tables.md" "columns of all tables, and the files for other engines",
    engines "guide/engines.md" "Spark, ClickHouse, Trino, Sail, Daft over the same tables",
    assistants "guide/assistants.md" "Claude, Cursor, VS Code and others: tools over the data",
    bi "guide/bi.md" "BI tools and notebooks over the PostgreSQL port",
    settings "guide/settings.md" "every setting with its default, range and meaning",
    limits "guide/limits.md" "limits that are not settings",
    operations "guide/operations.md" "install, proxy, logs, metrics, the data directory, growth",
    postgres "guide/postgres.md" "metadata in PostgreSQL",
    bucket "guide/bucket.md" "tables in S3 or a compatible store, and what that costs",
    standby "guide/standby.md" "servers without a disk of their own: reads on all, one writes",
    cluster "guide/cluster.md" "projects divided among servers that all write",
    workers "guide/workers.md" "large queries over several machines",
    backup "guide/backup.md" "backup and restore",
    guarantees "guide/guarantees.md" "durability, damage, deletion",
    compatibility "guide/compatibility.md" "public paths, differences from PostHog, tested clients",
    contributing "guide/contributing.md" "build, test, where to begin",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::PAGES;
    use crate::cli::schema::markdown;
    use weir_event::dictionary::TABLES;

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

    /// Goal: the page has every column of every table. `WEIR_WRITE_GUIDE=1` writes its sections.
    #[test]
    fn tables_are_those_of_the_dictionary() {
        const BEGIN: &str = "\n## Columns of `events`\n";
        const END: &str = "\n[bucket]: bucket.md\n";
        let page = include_str!("guide/tables.md");
        let sections = TABLES.iter().map(|table| markdown(table, &table.columns()));
        let sections = sections.collect::<Vec<_>>().join("\n");
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        let expected = format!("{before}\n{sections}{END}{after}");
        if std::env::var_os("WEIR_WRITE_GUIDE").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/tables.md");
            std::fs::write(path, &expected).unwrap();
            return;
        }
        let differs = page.lines().zip(expected.lines()).find(|(page, made)| page != made);
        let hint = "WEIR_WRITE_GUIDE=1 scripts/dev.sh unit weir guide";
        assert!(page == expected, "tables.md is old: {differs:#?}\n{hint} writes it anew");
    }
}
