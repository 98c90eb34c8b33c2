//! Spans of a table of persons: ranges of persons, in the order of project and number, that together are all
//! persons there can be. The persons of a span are in one file, whose name says the span and of when it is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::persons::person_table::schema::TableOf;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::person_set::PersonKey;
use weir_identity::view::Moment;
use weir_storage::delta::DataFile;
use weir_storage::derived::Lacking;

/// Where the first span begins and the last one ends.
pub(super) const ALL: Range<PersonKey> = (ProjectId(0), 0)..(ProjectId(i64::MAX), i64::MAX);

/// What the name of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    /// All persons of this range are in the file.
    pub(super) range: Range<PersonKey>,
    /// The sequence of the identity store that they are of.
    pub(super) as_of: u64,
}

impl FileName {
    /// A name that no other file has.
    pub(super) fn unique(&self, kind: TableOf) -> String {
        let Range { start, end } = &self.range;
        let place = |place: &PersonKey| format!("{}.{}", place.0, place.1);
        let id = Uuid::now_v7().simple();
        let (table, start, end) = (kind.name(), place(start), place(end));
        format!("{table}-{start}-{end}-{}-{id}.parquet", self.as_of)
    }

    /// Reads a name; `None` if it is no such name, as of a file that an older version wrote.
    pub(super) fn parse(kind: TableOf, path: &str) -> Option<Self> {
        let place = |text: &str| {
            let (project, number) = text.split_once('.')?;
            Some((ProjectId(project.parse().ok()?), number.parse().ok()?))
        };
        let own = path.strip_prefix(kind.name())?.strip_prefix('-')?;
        let mut parts = own.strip_suffix(".parquet")?.split('-');
        let range = place(parts.next()?)?..place(parts.next()?)?;
        let as_of = parts.next()?.parse().ok()?;
        let is_whole = parts.next().is_some() && parts.next().is_none();
        let is_range = ALL.start <= range.start && range.start < range.end && range.end <= ALL.end;
        (is_whole && is_range).then_some(Self { range, as_of })
    }
}

/// What is known of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Its persons are those of the file, or nobody without one, but for those who have changed since.
    Known,
    /// It is not known who has changed since its file was written.
    Unverified,
    /// Who is in its files, if it has any, says nothing: they are to be replaced.
    Unusable,
}

/// A range of persons.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) range: Range<PersonKey>,
    /// The files that hold its persons, which go when it is written anew. More than one only if it is unusable.
    pub(super) files: Vec<Arc<DataFile>>,
    /// The sequence of the identity store that the files are of.
    pub(super) as_of: u64,
    pub(super) trust: Trust,
    /// The state of the store from which on it is known who has changed; no view of before is to be compared.
    pub(super) moment: Moment,
    /// Since when, as far as is known, somebody has been otherwise than the files say.
    pub(super) stale_since: Option<UnixMicros>,
}

impl Span {
    /// Rows of the files.
    pub(super) fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Whether one of its files is lacking columns.
    pub(super) fn lacks(&self, lacking: &mut Lacking<'_>) -> bool {
        self.files.iter().any(|file| lacking.has(&file.derived))
    }

    /// For how long it has been stale. If the clock was set back that is not known: longer than any.
    pub(super) fn age(&self, now: UnixMicros) -> Option<Duration> {
        let since = self.stale_since?;
        Some(if now < since { Duration::MAX } else { now.since(since) })
    }
}

/// The spans of the live files of a table, after those that were known `before`. What is known of a span stays if
/// its file is the same. `as_of` is a sequence that no file is later than whose name does not say its own.
pub(super) fn spans(
    kind: TableOf,
    files: &[Arc<DataFile>],
    before: Vec<Span>,
    as_of: u64,
) -> Vec<Span> {
    let unusable = |range, files| {
        let (trust, moment, stale_since) = (Trust::Unusable, Moment::default(), None);
        Span { range, files, as_of, trust, moment, stale_since }
    };
    let named: Option<Vec<_>> =
        files.iter().map(|file| Some((FileName::parse(kind, &file.path)?, file))).collect();
    let mut named = named.unwrap_or_default();
    named.sort_unstable_by_key(|(name, _)| name.range.start);
    let overlap = |pair: &[(FileName, _)]| match pair {
        [one, next] => next.0.range.start < one.0.range.end,
        _ => false,
    };
    if named.len() < files.len() || named.windows(2).any(overlap) {
        return vec![unusable(ALL, files.to_vec())];
    }
    let mut known: BTreeMap<String, Span> = BTreeMap::new();
    for span in before {
        if let [file] = span.files.as_slice() {
            known.insert(file.path.clone(), span);
        }
    }
    let (mut spans, mut at) = (Vec::new(), ALL.start);
    for (FileName { range, as_of }, file) in named {
        if at < range.start {
            spans.push(Span { as_of: 0, ..unusable(at..range.start, Vec::new()) });
        }
        at = range.end;
        let files = vec![Arc::clone(file)];
        let unverified =
            || Span { as_of, trust: Trust::Unverified, ..unusable(range.clone(), files) };
        spans.push(known.remove(&file.path).unwrap_or_else(unverified));
    }
    if at < ALL.end {
        spans.push(Span { as_of: 0, ..unusable(at..ALL.end, Vec::new()) });
    }
    spans
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ALL, FileName, Span, Trust, spans};
    use crate::persons::person_table::schema::TableOf;
    use weir_event::id::ProjectId;
    use weir_storage::delta::DataFile;
    use weir_storage::delta::stats::FileStats;
    use weir_storage::derived::DerivedTag;
    use weir_storage::exact::ExactColumns;

    fn file(path: &str) -> Arc<DataFile> {
        Arc::new(DataFile {
            path: path.to_owned(),
            size_bytes: 1,
            rows: 1,
            partition: None,
            stats: FileStats::default(),
            exact: ExactColumns::default(),
            derived: DerivedTag::default(),
        })
    }

    fn name(from: (i64, i64), to: (i64, i64), as_of: u64) -> FileName {
        let place = |(project, number)| (ProjectId(project), number);
        FileName { range: place(from)..place(to), as_of }
    }

    #[test]
    fn a_name_says_what_was_put_in() {
        let names = [name((0, 0), (1, 70), 9), FileName { range: ALL, as_of: u64::MAX }];
        for (kind, of_another) in
            [(TableOf::Persons, TableOf::DistinctIds), (TableOf::DistinctIds, TableOf::Persons)]
        {
            for name in &names {
                let (one, other) = (name.unique(kind), name.unique(kind));
                assert_ne!(one, other);
                assert_eq!(FileName::parse(kind, &one).as_ref(), Some(name));
                assert_eq!(FileName::parse(kind, &other).as_ref(), Some(name));
                assert_eq!(FileName::parse(of_another, &one), None);
            }
        }
        for path in [
            "persons-0192a1b2-c3d4-7000-8000-000000000001.parquet",
            "persons-1.5-1.5-9-00000000000000000000000000000000.parquet",
            "persons-1.5-1.6-9.parquet",
            "persons-1.5-1.6-9-0-0.parquet",
            "persons-1.5-1.6--0.parquet",
            "persons-1.-5-1.6-9-0.parquet",
            "persons-1.5-1.6-9-0.parquet.tmp",
            "part-1.5-1.6-9-0.parquet",
        ] {
            assert_eq!(FileName::parse(TableOf::Persons, path), None, "{path}");
        }
    }

    /// Goal: whatever files there are, the spans are all persons, each once, and no file is lost or trusted.
    #[test]
    fn spans_are_all_persons_once() {
        let (a, b) = (name((0, 0), (1, 70), 5), name((2, 3), (4, 0), 7));
        let (end, over) = (name((4, 0), (i64::MAX, i64::MAX), 8), name((1, 69), (1, 71), 9));
        let whole =
            |of: &[&FileName]| of.iter().map(|name| file(&name.unique(TableOf::Persons))).collect();
        let legacy = vec![file("persons-0192a1b2-c3d4-7000-8000-000000000001.parquet")];
        let cases: [(Vec<Arc<DataFile>>, usize, usize); 6] = [
            (Vec::new(), 1, 0),
            (whole(&[&a]), 2, 1),
            (whole(&[&end, &b, &a]), 4, 3),
            (whole(&[&b]), 3, 1),
            (whole(&[&a, &over]), 1, 0),
            ([whole(&[&a]), legacy].concat(), 1, 0),
        ];
        for (files, count, unverified) in cases {
            let spans = spans(TableOf::Persons, &files, Vec::new(), 9);
            assert_eq!(spans.len(), count, "{files:?}");
            assert_eq!(spans[0].range.start, ALL.start);
            assert_eq!(spans[count - 1].range.end, ALL.end);
            assert!(spans.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
            let held: usize = spans.iter().map(|span| span.files.len()).sum();
            assert_eq!(held, files.len());
            let trusted = spans.iter().filter(|span| span.trust == Trust::Unverified);
            assert_eq!(trusted.count(), unverified, "{files:?}");
            assert!(spans.iter().all(|span| span.trust != Trust::Known));
        }
    }

    #[test]
    fn what_is_known_of_a_file_stays() {
        let files = [name((0, 0), (1, 70), 5), name((1, 70), (2, 0), 6)]
            .map(|name| file(&name.unique(TableOf::Persons)));
        let before: Vec<Span> = spans(TableOf::Persons, &files, Vec::new(), 0)
            .into_iter()
            .map(|span| Span { trust: Trust::Known, ..span })
            .collect();
        let after = spans(TableOf::Persons, &files[..1], before, 0);
        let trusts: Vec<Trust> = after.iter().map(|span| span.trust).collect();
        assert_eq!(
            trusts,
            [Trust::Known, Trust::Unusable],
            "and nothing of a range without its file"
        );
    }
}
