//! A bucket as an object store: [`open`] makes it of settings and of the variables and files of AWS's tools;
//! every request is measured, and failures name the bucket. No tables here.
//!
//! # Requests that fail
//!
//! Reads, lists and unconditional puts are repeated by the client until `storage-retry-timeout`. A conditional
//! put is not repeated after its answer was lost: it may have succeeded, and the second attempt would find the
//! object that the first has made. The committer of the table settles it (`delta/commit`).

mod profile;
mod upload;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, CopyOptions, Error, GetOptions, GetResult,
    GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, RetryConfig,
};

use crate::remote::profile::{Profile, ProfileCredentials};
use crate::remote::upload::Upload;
use weir_base::clock::Clock;
use weir_base::config::bucket::{Addressing, AwsVariables, BucketConfig, BucketUrl, Encryption};
use weir_base::telemetry::metrics::{Metrics, OperationLabels};

/// Variables of AWS's tools that the client understands. Not among them are those that would change how
/// conditional puts and encryption work, for which there are settings.
const VARIABLES: [&str; 17] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
    "AWS_IMDSV1_FALLBACK",
    "AWS_REQUEST_PAYER",
];

/// Pause before the first repetition of a request, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Most repetitions of one request, whatever the time-out is.
const RETRIES_MAX: usize = 100;

/// Longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a bucket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Its settings, or the files of AWS's tools.
    #[error("{0}")]
    Settings(String),
    /// The client refuses the settings.
    #[error(transparent)]
    Client(#[from] Error),
}

/// The end of the text of [`Unreachable`].
pub const UNREACHABLE: &str = "does not answer as it should";

/// The object store failed: no answer, or one that says neither yes nor no.
#[derive(Debug, thiserror::Error)]
#[error("the object store of {bucket} {UNREACHABLE}")]
pub struct Unreachable {
    /// The bucket, as a URL.
    pub bucket: Arc<str>,
    /// What happened.
    #[source]
    pub source: Error,
}

/// Opens the bucket of `url`. Does no I/O but reading the files of AWS's tools.
///
/// # Errors
///
/// The settings do not fit each other, or a file cannot be read.
pub fn open(
    url: &BucketUrl,
    settings: &BucketConfig,
    variables: &AwsVariables,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> std::result::Result<Arc<dyn ObjectStore>, RemoteError> {
    let inner = Arc::new(builder(url, settings, variables, clock)?.build()?);
    Ok(measured(inner, url.to_string(), clock, metrics))
}

/// `inner` with its requests counted and timed, and its failures named.
pub fn measured(
    inner: Arc<dyn ObjectStore>,
    bucket: String,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Arc<dyn ObjectStore> {
    let (clock, metrics) = (clock.clone(), Arc::clone(metrics));
    Arc::new(BucketStore {
        inner,
        measure: Arc::new(Measure { bucket: bucket.into(), clock, metrics }),
    })
}

fn builder(
    url: &BucketUrl,
    settings: &BucketConfig,
    variables: &AwsVariables,
    clock: &Clock,
) -> std::result::Result<AmazonS3Builder, RemoteError> {
    let profile = Profile::find(variables).map_err(RemoteError::Settings)?;
    let mut builder = AmazonS3Builder::new().with_bucket_name(&url.bucket);
    for name in VARIABLES {
        if let Some(value) = variables.get(name) {
            let key: AmazonS3ConfigKey = name.to_ascii_lowercase().parse()?;
            builder = builder.with_config(key, value);
        }
    }
    let profile = profile.as_ref();
    let own_or_profile = |own: &Option<String>, names: [&str; 2], key: &str| {
        let named = || names.iter().find_map(|name| variables.get(name));
        let of_profile = || profile.and_then(|profile| profile.value(key));
        own.as_deref().or_else(named).or_else(of_profile).map(str::to_owned)
    };
    let region = ["AWS_REGION", "AWS_DEFAULT_REGION"];
    if let Some(region) = own_or_profile(&settings.storage_region, region, "region") {
        builder = builder.with_region(region);
    }
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
    let endpoint = own_or_profile(&settings.storage_endpoint, endpoint, "endpoint_url");
    let mut is_plain = false;
    if let Some(endpoint) = endpoint {
        is_plain = endpoint.starts_with("http://");
        let endpoint = match settings.storage_addressing {
            Addressing::Path => endpoint,
            Addressing::Host => with_bucket(&endpoint, &url.bucket)?,
        };
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    builder = builder
        .with_virtual_hosted_style_request(settings.storage_addressing == Addressing::Host)
        .with_retry(retries(settings.storage_retry_timeout))
        .with_client_options(client(settings, variables, is_plain)?);
    let is_web_identity = variables.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some();
    // Without any of these the client asks the container or the machine for its role.
    let has_keys = variables.get("AWS_ACCESS_KEY_ID").is_some() || is_web_identity;
    if let Some(profile) = profile.filter(|profile| !has_keys && profile.is_for_keys()) {
        let credentials = ProfileCredentials::new(profile, clock).map_err(RemoteError::Settings)?;
        builder = builder.with_credentials(Arc::new(credentials));
    }
    Ok(match settings.storage_encryption {
        Encryption::Default => builder,
        Encryption::Aes256 => builder.with_config("aws_server_side_encryption".parse()?, "AES256"),
        Encryption::Kms => {
            let builder = builder.with_config("aws_server_side_encryption".parse()?, "aws:kms");
            match &settings.storage_kms_key {
                Some(key) => builder.with_config("aws_sse_kms_key_id".parse()?, key),
                None => builder,
            }
        }
    })
}

fn retries(retry_timeout: Duration) -> RetryConfig {
    let (init_backoff, max_backoff) = PAUSES;
    let backoff = BackoffConfig { init_backoff, max_backoff, base: 2.0 };
    RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout }
}

fn client(
    settings: &BucketConfig,
    variables: &AwsVariables,
    is_plain: bool,
) -> std::result::Result<ClientOptions, RemoteError> {
    let mut options = ClientOptions::new()
        .with_timeout(settings.storage_request_timeout)
        .with_connect_timeout(CONNECT_TIMEOUT.min(settings.storage_request_timeout))
        .with_allow_http(is_plain);
    if let Some(path) = variables.get("AWS_CA_BUNDLE") {
        let unreadable = |error| RemoteError::Settings(format!("AWS_CA_BUNDLE: {path}: {error}"));
        let bundle = std::fs::read(path).map_err(unreadable)?;
        for certificate in Certificate::from_pem_bundle(&bundle)? {
            options = options.with_root_certificate(certificate);
        }
    }
    Ok(options)
}

/// The endpoint with the bucket in front of its host name.
fn with_bucket(endpoint: &str, bucket: &str) -> std::result::Result<String, RemoteError> {
    let (scheme, host) = endpoint
        .split_once("://")
        .ok_or_else(|| RemoteError::Settings(format!("{endpoint} is no URL")))?;
    Ok(format!("{scheme}://{bucket}.{host}"))
}

/// What is counted, and under which name a failure is told.
#[derive(Debug)]
struct Measure {
    bucket: Arc<str>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Measure {
    async fn run<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = self.clock.monotonic();
        let result = request.await;
        let took = self.clock.monotonic().saturating_sub(began).as_secs_f64();
        let labels = OperationLabels { operation };
        self.metrics.bucket_seconds.get_or_create(&labels).observe(took);
        result.map_err(|error| self.named(operation, error))
    }

    /// Counts failures and names the bucket in them; answers such as "not found" stay what they are.
    fn named(&self, operation: &'static str, error: Error) -> Error {
        if is_answer(&error) {
            return error;
        }
        self.metrics.bucket_failures.get_or_create(&OperationLabels { operation }).inc();
        let source = Box::new(Unreachable { bucket: Arc::clone(&self.bucket), source: error });
        Error::Generic { store: "bucket", source }
    }
}

/// Whether an error is the store's answer, and no failure.
fn is_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::Precondition { .. }
            | Error::NotModified { .. }
            | Error::InvalidPath { .. }
    )
}

/// The failure of an object store in the causes of `error`, if there is one.
pub fn unreachable<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Unreachable> {
    let mut causes = std::iter::successors(Some(error), |cause| (*cause).source());
    causes.find_map(|cause| cause.downcast_ref())
}

/// The store.
#[derive(Debug)]
struct BucketStore {
    inner: Arc<dyn ObjectStore>,
    measure: Arc<Measure>,
}

impl fmt::Display for BucketStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.measure.bucket)
    }
}

#[async_trait]
impl ObjectStore for BucketStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let is_conditional = options.mode == PutMode::Create;
        let operation = if is_conditional { "put_new" } else { "put" };
        let put = self.inner.put_opts(location, payload, options);
        let put = self.measure.run(operation, put).await;
        if is_conditional && put.as_ref().is_err_and(|error| !is_answer(error)) {
            self.measure.metrics.bucket_puts_in_doubt.inc();
        }
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.inner.put_multipart_opts(location, options);
        let upload = self.measure.run("put_multipart", begun).await?;
        Ok(Box::new(Upload::new(upload, Arc::clone(&self.measure))))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let operation = if options.head { "head" } else { "get" };
        let got = self.inner.get_opts(location, options);
        let mut got = self.measure.run(operation, got).await?;
        if let GetResultPayload::Stream(bytes) = got.payload {
            let measure = Arc::clone(&self.measure);
            let named = bytes.map_err(move |error| measure.named("get", error));
            got.payload = GetResultPayload::Stream(named.boxed());
        }
        Ok(got)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.measure.run("get", self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let measure = Arc::clone(&self.measure);
        let deleted = self.inner.delete_stream(locations);
        deleted.map_err(move |error| measure.named("delete", error)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let measure = Arc::clone(&self.measure);
        self.inner.list(prefix).map_err(move |error| measure.named("list", error)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.measure.run("list", self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.measure.run("copy", self.inner.copy_opts(from, to, options)).await
    }
}

#[cfg(test)]
mod tests;
