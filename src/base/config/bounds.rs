//! Value parsers with a range, for the declarations of settings. The help text repeats the range as
//! `[range: LEAST to GREATEST]`; a test in `config.rs` compares them.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use url::Url;

/// Sizes from `least` to `greatest`, such as `64KiB`.
pub(super) fn bytes(
    least: &'static str,
    greatest: &'static str,
) -> impl Fn(&str) -> Result<ByteSize, String> + Clone + Send + Sync + 'static {
    move |text| {
        let size = |text: &str| text.parse::<ByteSize>();
        let value = size(text).map_err(|_| "it is no size such as 1048576 or 1MiB".to_owned())?;
        let range = size(least)?..=size(greatest)?;
        if range.contains(&value) { Ok(value) } else { Err(outside(least, greatest)) }
    }
}

/// Times from `least` to `greatest`, such as `500ms`.
pub(super) fn time(
    least: &'static str,
    greatest: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let time = |text: &str| humantime::parse_duration(text).map_err(|error| error.to_string());
        let value = time(text).map_err(|_| "it is no time such as 500ms, 10s or 5m".to_owned())?;
        let range = time(least)?..=time(greatest)?;
        if range.contains(&value) { Ok(value) } else { Err(outside(least, greatest)) }
    }
}

/// Whole numbers from `least` to `greatest`.
pub(super) fn number<T>(
    least: T,
    greatest: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let bounds = || format!("it must be a whole number from {least} to {greatest}");
        let value = text.parse().map_err(|_| bounds())?;
        if least <= value && value <= greatest { Ok(value) } else { Err(bounds()) }
    }
}

/// An address to listen on, with its port.
pub(super) fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        // A port alone is taken over into the suggestion, instead of the default one.
        let port = text.trim_start_matches(':').parse().unwrap_or(8000_u16);
        format!(
            "it is no socket address such as 127.0.0.1:{port} (this machine alone) or \
             0.0.0.0:{port} (other machines, too)"
        )
    })
}

/// The base URL of a server as clients write it: scheme and host, with a path if a proxy adds one.
pub(super) fn address(text: &str) -> Result<String, String> {
    let wrong = || "it must be a URL such as https://events.example.com".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() || !is_plain {
        return Err(wrong());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn outside(least: &str, greatest: &str) -> String {
    format!("it must be from {least} to {greatest}")
}

#[cfg(test)]
mod tests {
    use super::{address, socket};

    /// Goal: the error for a port alone shows the correct form with this port.
    #[test]
    fn addresses_with_ports_are_told_by_example() {
        for text in ["127.0.0.1:8000", "[::1]:0"] {
            assert_eq!(socket(text).map(|found| found.to_string()), Ok(text.to_owned()));
        }
        for (text, example) in [
            ("8000", "127.0.0.1:8000"),
            (":9000", "127.0.0.1:9000"),
            ("localhost:8000", "127.0.0.1:8000"),
            ("0.0.0.0", "0.0.0.0:8000"),
            ("127.0.0.1:99999", "127.0.0.1:8000"),
            ("", "127.0.0.1:8000"),
        ] {
            let refused = socket(text).unwrap_err();
            assert!(refused.contains(example), "{text}: {refused}");
        }
    }

    #[test]
    fn addresses_are_urls_of_servers() {
        for (text, expected) in [
            ("https://events.example.com", Some("https://events.example.com")),
            ("https://events.example.com/", Some("https://events.example.com")),
            ("http://127.0.0.1:8000", Some("http://127.0.0.1:8000")),
            ("http://[::1]:8000/weir/", Some("http://[::1]:8000/weir")),
            ("events.example.com", None),
            ("localhost:8000", None),
            ("ftp://events.example.com", None),
            ("https://", None),
            ("https://events.example.com/?a=b", None),
            ("https://events.example.com/#a", None),
            ("https://user@events.example.com", None),
            ("", None),
        ] {
            assert_eq!(address(text).ok().as_deref(), expected, "{text}");
        }
    }
}
