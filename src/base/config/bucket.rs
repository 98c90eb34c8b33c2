//! Settings of a bucket for the tables, and the variables of AWS's tools with credentials for it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use url::Url;

use crate::config::bounds::{address, bytes, time};

/// Scheme of the URLs of buckets.
const SCHEME: &str = "s3";

/// Where the tables are if not in the data directory, and how to reach them.
#[derive(Clone, Debug, clap::Args)]
pub struct BucketConfig {
    /// Bucket of the tables as `s3://bucket/prefix`, in Amazon S3 or a compatible store; the persons and the
    /// metadata stay in `data-dir`, and so does the log unless `storage-log` is `bucket`. After the first start
    /// only `weir move` changes it
    /// [default: none; the tables are in `data-dir`]
    #[arg(long, env = "WEIR_STORAGE_URL", value_parser = bucket_url)]
    pub storage_url: Option<BucketUrl>,
    /// Where the write-ahead log is: `disk`, in `data-dir`; `bucket`, with images of the persons, so that a server
    /// on another machine can continue with them. `bucket` needs `storage-url` and `metadata-url`, and a second
    /// server with the same settings stands by
    #[arg(long, env = "WEIR_STORAGE_LOG", default_value = "disk")]
    pub storage_log: LogPlace,
    /// Shortest time between two puts to a log in the bucket. Too small puts many objects, each of which the store
    /// may charge for, too large delays acknowledgements [range: 0s to 5s]
    #[arg(long, env = "WEIR_STORAGE_LOG_LINGER", default_value = "100ms", value_parser = time("0s", "5s"))]
    pub storage_log_linger: Duration,
    /// URL of the object store [default: `AWS_ENDPOINT_URL`, or that of Amazon]
    #[arg(long, env = "WEIR_STORAGE_ENDPOINT", value_parser = address)]
    pub storage_endpoint: Option<String>,
    /// Region of the bucket [default: `AWS_REGION`, or `us-east-1`]
    #[arg(long, env = "WEIR_STORAGE_REGION")]
    pub storage_region: Option<String>,
    /// Part of an object's URL that names the bucket: its path, or its host name
    #[arg(long, env = "WEIR_STORAGE_ADDRESSING", default_value = "path")]
    pub storage_addressing: Addressing,
    /// Encryption by the object store: `default` as the bucket is configured, `aes256` with keys of the store,
    /// `kms` with a key of AWS's key management
    #[arg(long, env = "WEIR_STORAGE_ENCRYPTION", default_value = "default")]
    pub storage_encryption: Encryption,
    /// Id of the key for `storage-encryption kms` [default: AWS's own for S3]
    #[arg(long, env = "WEIR_STORAGE_KMS_KEY")]
    pub storage_kms_key: Option<String>,
    /// Longest time for one request to the object store. Too small fails on slow networks, too large delays
    /// the retry [range: 1s to 1h]
    #[arg(long, env = "WEIR_STORAGE_REQUEST_TIMEOUT", default_value = "30s", value_parser = time("1s", "1h"))]
    pub storage_request_timeout: Duration,
    /// Longest time for retries of a failed request, with increasing pauses. After it a query is answered
    /// 503, and a flush starts again [range: 0s to 4m]
    #[arg(long, env = "WEIR_STORAGE_RETRY_TIMEOUT", default_value = "20s", value_parser = time("0s", "4m"))]
    pub storage_retry_timeout: Duration,
    /// Disk space in `data-dir` for the cache of recently written and read parts of the files of events; 0 for
    /// none. The cache shrinks when the disk fills up. Too small reads from the bucket more often
    /// [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_STORAGE_CACHE_MAX_BYTES", default_value = "16GiB", value_parser = bytes("0B", "1PiB"))]
    pub storage_cache_max_bytes: ByteSize,
    /// Longest time between two images of the persons in the bucket, if the log is in it and a person has changed;
    /// the log is kept back to the last but one image. Too small sends more data, too large makes the log and a
    /// takeover longer
    /// [range: 1s to 1d]
    #[arg(long, env = "WEIR_IDENTITY_IMAGE_INTERVAL", default_value = "10m", value_parser = time("1s", "1d"))]
    pub identity_image_interval: Duration,
}

/// Where the write-ahead log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogPlace {
    /// In the data directory.
    Disk,
    /// In the bucket of the tables.
    Bucket,
}

/// Where the URL of an object has the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Addressing {
    /// `https://host/bucket/key`, as all stores understand.
    Path,
    /// `https://bucket.host/key`.
    Host,
}

/// Encryption of objects by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Encryption {
    /// As the bucket is configured.
    Default,
    /// With keys of the store.
    Aes256,
    /// With a key of AWS's key management.
    Kms,
}

/// A bucket, and the prefix of the keys in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUrl {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of all keys, without slashes at its ends; empty for none.
    pub prefix: String,
}

impl BucketUrl {
    /// Reads `s3://bucket/prefix`.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        bucket_url(text)
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.is_empty() {
            true => write!(f, "{SCHEME}://{}", self.bucket),
            false => write!(f, "{SCHEME}://{}/{}", self.bucket, self.prefix),
        }
    }
}

fn bucket_url(text: &str) -> Result<BucketUrl, String> {
    let odd = || "it must be a URL such as s3://bucket/prefix".to_owned();
    let url = Url::parse(text).map_err(|_| odd())?;
    let is_plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && url.port().is_none();
    let is_bucket = |host: &&str| url.scheme() == SCHEME && is_plain && !host.is_empty();
    let bucket = url.host_str().filter(is_bucket).ok_or_else(odd)?;
    // Other engines read the prefix as a part of a URL, some of them without decoding it.
    let is_literal =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=' | '/');
    let prefix = url.path().trim_matches('/');
    let is_key = prefix.is_empty()
        || prefix.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if !is_key || !prefix.chars().all(is_literal) {
        return Err("its prefix may have letters, digits, -, _, ., = and single slashes".to_owned());
    }
    Ok(BucketUrl { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

/// Variables of AWS's tools, such as `AWS_ACCESS_KEY_ID`, and where their files are.
#[derive(Clone, Default)]
pub struct AwsVariables {
    variables: BTreeMap<String, String>,
    home: Option<PathBuf>,
}

impl AwsVariables {
    /// Those of this process.
    pub fn of_process() -> Self {
        let named = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("AWS_"))?;
            Some((name, value.into_string().ok()?))
        });
        Self { variables: named.collect(), home: std::env::var_os("HOME").map(PathBuf::from) }
    }

    /// These variables, with the files of AWS's tools in `home`.
    pub fn new(variables: &[(&str, &str)], home: Option<PathBuf>) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { variables: variables.iter().map(owned).collect(), home }
    }

    /// The value of a variable, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The file that `variable` names, or else that of this name in the directory `.aws`.
    pub fn file(&self, variable: &str, name: &str) -> Option<PathBuf> {
        let named = self.get(variable).map(PathBuf::from);
        named.or_else(|| Some(self.home.as_ref()?.join(".aws").join(name)))
    }
}

/// Names only: values may be secret.
impl fmt::Debug for AwsVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{AwsVariables, BucketUrl};

    #[test]
    fn urls_name_a_bucket_and_a_prefix() {
        for (text, expected) in [
            ("s3://events", Some(("events", "", "s3://events"))),
            ("s3://events/", Some(("events", "", "s3://events"))),
            (
                "s3://my.events/a/b_c-d.e",
                Some(("my.events", "a/b_c-d.e", "s3://my.events/a/b_c-d.e")),
            ),
            ("s3://events/a=1/", Some(("events", "a=1", "s3://events/a=1"))),
            ("s3://events/a//b", None),
            ("s3://events/a/../b", Some(("events", "b", "s3://events/b"))),
            ("s3://events/a b", None),
            ("s3://events/a?b", None),
            ("s3://key:secret@events/a", None),
            ("s3:///a", None),
            ("s3://", None),
            ("gs://events", None),
            ("events/a", None),
            ("", None),
        ] {
            let parsed = BucketUrl::parse(text).ok();
            let found = parsed.as_ref().map(|url| (&*url.bucket, &*url.prefix, url.to_string()));
            let expected = expected.map(|(bucket, prefix, url)| (bucket, prefix, url.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn variables_are_found_and_not_shown() {
        let variables = [("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_REGION", "")];
        let variables = AwsVariables::new(&variables, Some("/home/ana".into()));
        assert_eq!(variables.get("AWS_SECRET_ACCESS_KEY"), Some("hush"));
        assert_eq!(variables.get("AWS_REGION"), None);
        let file = variables.file("AWS_CONFIG_FILE", "config").unwrap();
        assert_eq!(file.to_str(), Some("/home/ana/.aws/config"));
        let shown = format!("{variables:?}");
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && !shown.contains("hush"), "{shown}");
        let variables = AwsVariables::new(&[("AWS_CONFIG_FILE", "/etc/aws")], None);
        assert_eq!(variables.file("AWS_CONFIG_FILE", "config").unwrap().to_str(), Some("/etc/aws"));
        assert_eq!(variables.file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), None);
    }
}
