//! Settings of the metadata store.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::config::bounds::{number, time};

/// Where projects, users, keys, flags and definitions are.
#[derive(Clone, Debug, clap::Args)]
pub struct MetadataConfig {
    /// PostgreSQL database of projects, users, keys, flags and definitions, as in
    /// `postgres://user:password@host:5432/weir?sslmode=verify-full`; several servers may share one
    /// [default: the file metadata.db in the data directory]
    #[arg(long, env = "WEIR_METADATA_URL", hide_env_values = true, global = true)]
    pub metadata_url: Option<MetadataUrl>,
    /// Connections to PostgreSQL, one of which writes; with `storage-log` `bucket` there is one more [range: 2 to 1000]
    #[arg(long, env = "WEIR_METADATA_CONNECTIONS_MAX", default_value_t = 8, value_parser = number(2_u32, 1000), global = true)]
    pub metadata_connections_max: u32,
    /// Longest wait for a connection to PostgreSQL, and for a statement, after which requests that need it
    /// are answered 503 [range: 100ms to 10m]
    #[arg(long, env = "WEIR_METADATA_TIMEOUT", default_value = "5s", value_parser = time("100ms", "10m"), global = true)]
    pub metadata_timeout: Duration,
}

/// The address of a PostgreSQL database. Prints without its password and parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct MetadataUrl(String);

impl MetadataUrl {
    /// All of it. May contain a password.
    pub fn value(&self) -> &str {
        &self.0
    }
}

impl FromStr for MetadataUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.starts_with("postgres://") || text.starts_with("postgresql://") {
            true => Ok(Self(text.to_owned())),
            false => Err("has to begin with postgres://"),
        }
    }
}

impl fmt::Display for MetadataUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.find('?').unwrap_or(self.0.len());
        let (address, _) = self.0.split_at_checked(end).unwrap_or((&self.0, ""));
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        write!(f, "{scheme}://{place}")
    }
}

impl fmt::Debug for MetadataUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::MetadataUrl;

    #[test]
    fn an_address_prints_without_its_password() {
        for (url, expected) in [
            ("postgres://u:s3cr@t@h:1/d?sslmode=require&password=s3cret", "postgres://h:1/d"),
            ("postgresql://h/d", "postgresql://h/d"),
            ("postgres:///d?host=/run&password=s3cret", "postgres:///d"),
        ] {
            let url: MetadataUrl = url.parse().unwrap();
            assert_eq!(url.to_string(), expected);
            assert_eq!(format!("{url:?}"), expected);
        }
        for other in ["", "mysql://h/d", "h/d", "postgres"] {
            assert!(other.parse::<MetadataUrl>().is_err(), "{other}");
        }
    }
}
