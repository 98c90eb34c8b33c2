//! Classifies errors of readers of data files: distinguishes damaged files from bugs and from mistakes in a query.

use std::error::Error;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use object_store::Error as StoreError;
use parquet::errors::ParquetError;

use weir_storage::checksums::Damaged;
use weir_storage::remote::{UNREACHABLE, unreachable};

/// Which file is damaged and how, if `error` comes from reading files. Checksums are verified below the Parquet reader,
/// so damage of a file written by Weir names the file. Errors that the reader finds in files of other engines do not.
pub(crate) fn in_files(error: &DataFusionError) -> Option<String> {
    let mut is_of_parquet = matches!(error.find_root(), DataFusionError::ParquetError(_));
    let first: &(dyn Error + 'static) = error;
    for cause in std::iter::successors(Some(first), |cause| (*cause).source()) {
        if let Some(damaged) = cause.downcast_ref::<Damaged>() {
            return Some(damaged.to_string());
        }
        if let Some(StoreError::NotFound { path, .. }) = cause.downcast_ref::<StoreError>() {
            return Some(format!("{path} is missing; restore it from a backup"));
        }
        is_of_parquet |= cause.is::<ParquetError>()
            || matches!(cause.downcast_ref(), Some(ArrowError::ParquetError(_)));
    }
    // DataFusion has turned some of the causes into text.
    is_of_parquet.then(|| match error.strip_backtrace() {
        text if text.contains("is damaged") => text,
        text => format!("{text}; `weir inspect --verify` names the file"),
    })
}

/// Whether the object store failed, which gives no evidence about the files themselves.
pub(crate) fn is_unreachable(error: &DataFusionError) -> bool {
    let first: &(dyn Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |cause| (*cause).source());
    // The Parquet readers turn some causes into text; only their errors are searched, as a query's own error text may
    // contain the same words.
    unreachable(error).is_some()
        || causes.any(|cause| {
            let is_of_parquet = cause.is::<ParquetError>()
                || matches!(cause.downcast_ref(), Some(ArrowError::ParquetError(_)));
            is_of_parquet && cause.to_string().contains(UNREACHABLE)
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kernel::error::QueryError;
    use weir_base::error::Kind;

    /// An error of the readers, whether it is about a file, and the file that must be named.
    #[test]
    fn damage_is_no_fault_of_the_query() {
        let damaged = || {
            let (path, problem) = ("tables/events/a.parquet".to_owned(), "cut".to_owned());
            let source = Box::new(Damaged { path, problem });
            StoreError::Generic { store: "table", source }
        };
        let missing =
            || StoreError::NotFound { path: "/data/b.parquet".to_owned(), source: "gone".into() };
        let parquet = |error: StoreError| ParquetError::External(Box::new(error));
        let cases: Vec<(DataFusionError, Option<&str>)> = vec![
            (DataFusionError::ObjectStore(Box::new(damaged())), Some("tables/events/a.parquet")),
            (DataFusionError::ParquetError(Box::new(parquet(damaged()))), Some("a.parquet")),
            (DataFusionError::ObjectStore(Box::new(missing())), Some("/data/b.parquet")),
            (DataFusionError::ParquetError(Box::new(parquet(missing()))), Some("b.parquet")),
            (DataFusionError::External(Box::new(parquet(damaged()))), Some("a.parquet")),
            (
                DataFusionError::Shared(Arc::new(DataFusionError::ObjectStore(
                    Box::new(damaged()),
                ))),
                Some("a.parquet"),
            ),
            (
                DataFusionError::ArrowError(Box::new(parquet(damaged()).into()), None)
                    .context("while reading"),
                Some("tables/events/a.parquet"),
            ),
            (
                DataFusionError::ParquetError(Box::new(ParquetError::EOF("cut".to_owned()))),
                Some("cut"),
            ),
            (
                DataFusionError::ArrowError(
                    Box::new(ArrowError::ParquetError("Page CRC checksum mismatch".to_owned())),
                    None,
                ),
                Some("Page CRC checksum mismatch"),
            ),
            (DataFusionError::Execution("bad regular expression".to_owned()), None),
            (DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None), None),
            (
                DataFusionError::ArrowError(
                    Box::new(ArrowError::CastError("not a number".to_owned())),
                    None,
                ),
                None,
            ),
        ];
        for (error, named) in cases {
            let case = format!("{error:?}");
            let answer = QueryError::from(error).of_query();
            let expected = if named.is_some() { Kind::Internal } else { Kind::Invalid };
            assert_eq!(answer.kind(), expected, "{case}");
            let text = answer.to_string();
            assert!(named.is_none_or(|named| text.contains(named)), "{text}");
        }
    }
}
