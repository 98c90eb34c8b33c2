//! Tests of what settings, variables and profiles make of a bucket, and of how failures are told.

use clap::Parser;
use object_store::ObjectStoreExt;
use object_store::aws::AmazonS3ConfigKey;

use super::*;
use crate::faulty_store::{Broken, Fault, FaultyStore};
use weir_base::clock::UnixMicros;

#[derive(Parser)]
struct Settings {
    #[command(flatten)]
    bucket: BucketConfig,
}

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "B")];

/// The builder's value of a key, with these flags, variables and `~/.aws/config`.
fn value(
    flags: &[&str],
    variables: &[(&str, &str)],
    profile: Option<&str>,
    key: &AmazonS3ConfigKey,
) -> Option<String> {
    let flags = std::iter::once("weir").chain(flags.iter().copied());
    let settings = Settings::try_parse_from(flags).expect("flags").bucket;
    let home = tempfile::tempdir().expect("a directory");
    if let Some(profile) = profile {
        std::fs::create_dir(home.path().join(".aws")).expect("a directory");
        std::fs::write(home.path().join(".aws/config"), profile).expect("a file");
    }
    let variables = AwsVariables::new(variables, Some(home.path().to_path_buf()));
    let url = BucketUrl::parse("s3://events/weir").expect("a bucket");
    let clock = Clock::test(UnixMicros(0));
    let builder = builder(&url, &settings, &variables, &clock).expect("settings that fit");
    let value = builder.get_config_value(key);
    builder.build().expect("a client");
    value
}

#[test]
fn settings_win_over_variables_and_these_over_profiles() {
    let region = AmazonS3ConfigKey::Region;
    let endpoint = AmazonS3ConfigKey::S3Endpoint;
    let profile = "[default]\nregion = p\nendpoint_url = http://p:1\naws_access_key_id = P\n\
        aws_secret_access_key = Q\n";
    let http = [("AWS_ENDPOINT_URL", "http://e:1"), ("AWS_REGION", "e")];
    let s3 = [("AWS_ENDPOINT_URL", "http://e:1"), ("AWS_ENDPOINT_URL_S3", "http://s:1")];
    let flags = ["--storage-region", "f", "--storage-endpoint", "http://f:1"];
    let host = ["--storage-endpoint", "https://f", "--storage-addressing", "host"];
    for (flags, variables, profile, key, expected) in [
        (&[][..], &[][..], None, &region, None),
        (&[], &[], Some(profile), &region, Some("p")),
        (&[], &http, Some(profile), &region, Some("e")),
        (&[], &[("AWS_DEFAULT_REGION", "d")], None, &region, Some("d")),
        (&flags, &http, Some(profile), &region, Some("f")),
        (&[], &[], None, &endpoint, None),
        (&[], &[], Some(profile), &endpoint, Some("http://p:1")),
        (&[], &http, Some(profile), &endpoint, Some("http://e:1")),
        (&[], &s3, None, &endpoint, Some("http://s:1")),
        (&flags, &s3, None, &endpoint, Some("http://f:1")),
        (&host, &[], None, &endpoint, Some("https://events.f")),
    ] {
        let found = value(flags, variables, profile, key);
        assert_eq!(found.as_deref(), expected, "{flags:?}, {variables:?}, {key:?}");
    }
}

#[test]
fn keys_come_from_where_they_are() {
    let id = AmazonS3ConfigKey::AccessKeyId;
    let token = AmazonS3ConfigKey::WebIdentityTokenFile;
    let role =
        [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/a")];
    assert_eq!(value(&[], &KEYS, None, &id).as_deref(), Some("A"));
    assert_eq!(value(&[], &role, None, &token).as_deref(), Some("/token"));
    // Without a key in a profile, the machine is asked for its role.
    assert_eq!(value(&[], &[], Some("[default]\nregion = p\n"), &id), None);
}

#[test]
fn encryption_is_as_set() {
    let key = |name: &str| name.parse::<AmazonS3ConfigKey>().expect("a key");
    let kind = key("aws_server_side_encryption");
    assert_eq!(value(&[], &KEYS, None, &kind), None);
    let found = value(&["--storage-encryption", "aes256"], &KEYS, None, &kind);
    assert_eq!(found.as_deref(), Some("AES256"));
    let kms = ["--storage-encryption", "kms", "--storage-kms-key", "k"];
    assert_eq!(value(&kms, &KEYS, None, &kind).as_deref(), Some("aws:kms"));
    assert_eq!(value(&kms, &KEYS, None, &key("aws_sse_kms_key_id")).as_deref(), Some("k"));
}

#[test]
fn what_does_not_fit_is_told() {
    let settings = Settings::try_parse_from(["weir"]).expect("flags").bucket;
    let url = BucketUrl::parse("s3://events").expect("a bucket");
    let clock = Clock::test(UnixMicros(0));
    for (variables, text) in [
        ([("AWS_PROFILE", "none")], "there is no profile none"),
        ([("AWS_CA_BUNDLE", "/nonexistent")], "AWS_CA_BUNDLE: /nonexistent"),
        ([("AWS_ACCESS_KEY_ID", "A")], "Missing SecretAccessKey"),
    ] {
        let variables = AwsVariables::new(&variables, None);
        let metrics = Arc::new(Metrics::new());
        let opened = open(&url, &settings, &variables, &clock, &metrics);
        let error = opened.map(|_| ()).expect_err("settings that do not fit").to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn failures_name_the_bucket_and_answers_stay() {
    let faulty = Arc::new(FaultyStore::default());
    let metrics = Arc::new(Metrics::new());
    let (bucket, clock) = ("s3://events".to_owned(), Clock::test(UnixMicros(0)));
    let store = measured(Arc::clone(&faulty) as Arc<dyn ObjectStore>, bucket, &clock, &metrics);
    let path = Path::from("a.json");
    let failures =
        |operation| metrics.bucket_failures.get_or_create(&OperationLabels { operation }).get();
    let create = || store.put_opts(&path, "x".into(), PutMode::Create.into());

    create().await.expect("a put");
    let taken = create().await.expect_err("it is there");
    assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
    let missing = store.get(&Path::from("b.json")).await.expect_err("it is not there");
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    assert_eq!((failures("put_new"), failures("get")), (0, 0));
    assert_eq!(metrics.bucket_puts_in_doubt.get(), 0);

    *faulty.fault.lock() = Some(Fault::AnswerLost);
    let other = Path::from("c.json");
    let put = store.put_opts(&other, "x".into(), PutMode::Create.into());
    let lost = put.await.expect_err("no answer");
    let failure = unreachable(&lost).expect("a failure of the store");
    assert_eq!(failure.to_string(), "the object store of s3://events does not answer as it should");
    assert_eq!((failures("put_new"), metrics.bucket_puts_in_doubt.get()), (1, 1));

    *faulty.broken.lock() = Some(Broken::Away);
    let away = store.get(&path).await.expect_err("it is away");
    assert!(unreachable(&away).is_some(), "{away}");
    let away = store.list(None).try_next().await.expect_err("it is away");
    assert!(unreachable(&away).is_some(), "{away}");
    assert_eq!((failures("get"), failures("list")), (1, 1));
    assert_eq!(metrics.bucket_puts_in_doubt.get(), 1, "a get is never in doubt");
}

/// Goal: no part of an upload but the last is too small for S3, or of another size than the others.
#[tokio::test]
async fn parts_have_one_size() {
    #[derive(Debug, Default)]
    struct Parts(Arc<parking_lot::Mutex<Vec<usize>>>);
    #[async_trait]
    impl MultipartUpload for Parts {
        fn put_part(&mut self, data: PutPayload) -> object_store::UploadPart {
            self.0.lock().push(data.content_length());
            Box::pin(async { Ok(()) })
        }
        async fn complete(&mut self) -> Result<PutResult> {
            Ok(PutResult { e_tag: None, version: None })
        }
        async fn abort(&mut self) -> Result<()> {
            Ok(())
        }
    }
    let clock = Clock::test(UnixMicros(0));
    let measure =
        Arc::new(Measure { bucket: "s3://a".into(), clock, metrics: Arc::new(Metrics::new()) });
    const MIB: usize = 1 << 20;
    for (sent, expected) in [
        (vec![4 * MIB, 4 * MIB, 4 * MIB], vec![8 * MIB, 4 * MIB]),
        (vec![20 * MIB, 1], vec![8 * MIB, 8 * MIB, 4 * MIB + 1]),
        (vec![8 * MIB], vec![8 * MIB]),
        (vec![1, 1], vec![2]),
    ] {
        let parts = Parts::default();
        let seen = Arc::clone(&parts.0);
        let mut upload = Upload::new(Box::new(parts), Arc::clone(&measure));
        for bytes in sent {
            upload.put_part(vec![7; bytes].into()).await.expect("a part");
        }
        upload.complete().await.expect("the end");
        assert_eq!(*seen.lock(), expected);
    }
}
