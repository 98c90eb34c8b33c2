//! Scalar functions of the plans of sessions: [`SessionFunction`].

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use serde::{Deserialize, Serialize};

use crate::events::event_sessions::time_type;

/// A function of the plans of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum SessionFunction {
    /// `stamped(timestamp, text)`: prefixes the text with its time as 16 hex digits, so that the minimum is the text of the
    /// first event, and among those at the same time the smallest text. Null if the text is null.
    Stamped,
    /// `url_path(url)`: null if the URL lacks it.
    Path,
    /// `url_host(url)`: null if the URL lacks it.
    Host,
}

impl SessionFunction {
    /// The function.
    pub(crate) fn function(self) -> ScalarUDF {
        let types = match self {
            Self::Stamped => vec![time_type(), DataType::Utf8View],
            Self::Path | Self::Host => vec![DataType::Utf8View],
        };
        let signature = Signature::exact(types, Volatility::Immutable);
        ScalarUDF::new_from_impl(Function { own: self, signature })
    }

    /// Which of them a function is.
    pub(crate) fn of(function: &ScalarUDF) -> Option<Self> {
        function.inner().downcast_ref::<Function>().map(|function| function.own)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    own: SessionFunction,
    signature: Signature,
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.own {
            SessionFunction::Stamped => "stamped",
            SessionFunction::Path => "url_path",
            SessionFunction::Host => "url_host",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let values = match self.own {
            SessionFunction::Stamped => stamped(&arrays),
            SessionFunction::Path => parts(&arrays, path),
            SessionFunction::Host => parts(&arrays, host),
        };
        Ok(ColumnarValue::Array(Arc::new(values)))
    }
}

fn stamped(columns: &[ArrayRef]) -> StringViewArray {
    let [times, texts] = columns else { return StringViewArray::new_null(0) };
    let times = times.as_primitive_opt::<TimestampMicrosecondType>();
    let Some((times, texts)) = times.zip(texts.as_string_view_opt()) else {
        return StringViewArray::new_null(0);
    };
    let mut stamped = StringViewBuilder::with_capacity(texts.len());
    let mut joined = String::new();
    for (time, text) in times.iter().zip(texts) {
        let Some((time, text)) = time.zip(text) else {
            stamped.append_null();
            continue;
        };
        joined.clear();
        let _ = write!(joined, "{:016x}{text}", in_order(time));
        stamped.append_value(&joined);
    }
    stamped.finish()
}

/// A time as an unsigned number of the same order, with times before 1970 first: flips the sign bit.
fn in_order(time: i64) -> u64 {
    time.cast_unsigned() ^ (1 << 63)
}

/// Parts of URLs; null if a URL lacks it.
fn parts(columns: &[ArrayRef], part: fn(&str) -> &str) -> StringViewArray {
    let urls = columns.first().and_then(|column| column.as_string_view_opt());
    let part =
        |url: Option<&'_ str>| url.map(part).filter(|part| !part.is_empty()).map(str::to_owned);
    urls.into_iter().flatten().map(part).collect()
}

/// The path of a URL, from the first `/` after the host up to the query string or fragment; empty if there is none.
fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default()
}

/// The host of a URL, without user and port; empty if there is none.
fn host(url: &str) -> &str {
    let Some((_, rest)) = url.split_once("://") else { return "" };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match host.rsplit_once(':') {
        // A colon within the brackets of an IPv6 address is not followed by a port.
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::{host, in_order, path};

    #[test]
    fn parts_of_addresses() {
        for (url, expected) in [
            ("https://a.example/b/c?d=/e#f", ("a.example", "/b/c")),
            ("https://a.example", ("a.example", "")),
            ("https://a.example?x=/y", ("a.example", "")),
            ("https://user:secret@a.example:80/", ("a.example", "/")),
            ("http://[::1]:8000/x", ("[::1]", "/x")),
            ("http://[::1]/x", ("[::1]", "/x")),
            ("/just/a/path?q", ("", "/just/a/path")),
            ("", ("", "")),
        ] {
            assert_eq!((host(url), path(url)), expected, "{url}");
        }
    }

    #[test]
    fn stamps_sort_like_times() {
        let times = [i64::MIN, -5, -1, 0, 1, 5, 1 << 52, i64::MAX];
        assert!(times.map(in_order).is_sorted());
    }
}
