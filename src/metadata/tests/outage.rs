//! PostgreSQL stops, and comes back; is not there; or wants encryption.

use tokio::time::Instant;

use super::*;
use crate::tests::place::{Database, Server, patiently};
use weir_base::config::metadata::MetadataConfig;

/// Goal: while PostgreSQL is away, snapshots stay, everything else fails at once and as unavailable, and when it is
/// back so is the store, with what was written before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_outage_passes() {
    let database = Database::on(Server::own(), Duration::from_secs(2)).await;
    let bench = Bench::started_at(Backend::Database(database)).await;
    let Backend::Database(database) = &bench.place else { panic!("it is one") };
    let before = bench.create("a").await;
    for _ in 0..2 {
        database.server().stop();
        assert_eq!(
            kind(bench.metadata.create_flag(PROJECT, USER, new("b")).await),
            Kind::Unavailable
        );
        let begin = Instant::now();
        for _ in 0..100 {
            let failed = bench.metadata.create_flag(PROJECT, USER, new("b")).await;
            assert_eq!(kind(failed), Kind::Unavailable);
            assert_eq!(
                kind(bench.metadata.hash_keys(PROJECT, &["a".to_owned()]).await),
                Kind::Unavailable
            );
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "nobody waits: {:?}", begin.elapsed());
        assert_eq!(kind(bench.metadata.refresh().await), Kind::Unavailable);
        let snapshot = bench.metadata.snapshot();
        assert_eq!(snapshot.flags(PROJECT).len(), 1);
        database.server().start();
        patiently(async || bench.metadata.refresh().await.is_ok()).await;
        bench
            .update(before.id, FlagPatch { name: Some("x".to_owned()), ..FlagPatch::default() })
            .await;
    }
    bench.create("b").await;
    bench.check_snapshot().await;
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_refused_by_name() {
    let database = Database::new().await;
    let settings = database.settings();
    let url = settings.metadata_url.clone().expect("a URL");
    let open = async |url: &str| {
        let url = url.parse().expect("a URL");
        let limit = Duration::from_secs(2);
        let settings = MetadataConfig { metadata_timeout: limit, ..settings.clone() };
        let opened =
            Metadata::connect(&settings, &url, Clock::test(START), MetadataAccess::Write).await;
        opened.expect_err("refused")
    };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("an address");
    // Connects, and says nothing.
    let silent = open(&format!("postgres://u:secret@{address}/d")).await;
    drop(nobody);
    let refused = open(&format!("postgres://u:secret@{address}/d")).await;
    for error in [&silent, &refused] {
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().contains(&format!("postgres://{address}/d ")), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    let (server, _) = url.value().rsplit_once('/').expect("a database");
    assert!(matches!(open(&format!("{server}/nothing")).await, MetadataError::Connect { .. }));
    assert!(matches!(open("postgres://u@h:x/d").await, MetadataError::Connect { .. }));
    let encrypted = open(&format!("{}?sslmode=require", url.value())).await;
    assert!(matches!(encrypted, MetadataError::Connect { .. }), "it has no certificate");
    let latin = "CREATE DATABASE weir_latin ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0";
    place::administer(&database.server().url, latin).await.expect("a database");
    let unfit = open(&format!("{server}/weir_latin")).await;
    assert!(unfit.to_string().contains("has the encoding LATIN1"), "{unfit}");
    let drop = "DROP DATABASE weir_latin WITH (FORCE)";
    place::administer(&database.server().url, drop).await.expect("no database");
}

/// Goal: `sslmode` decides whether the connection is encrypted and whom it trusts. Method: a server whose certificate
/// nobody knows, for the name `localhost`.
#[tokio::test]
async fn connections_are_encrypted_as_the_url_says() {
    let (server, certificate) = Server::encrypted();
    let database = Database::on(server, Duration::from_secs(20)).await;
    let settings = database.settings();
    let url = settings.metadata_url.clone().expect("a URL");
    let root = format!("&sslrootcert={}", certificate.display());
    for (host, mode, root, is_encrypted) in [
        ("127.0.0.1", "disable", "", Some(false)),
        ("127.0.0.1", "prefer", "", Some(true)),
        ("127.0.0.1", "require", "", Some(true)),
        ("localhost", "verify-full", &*root, Some(true)),
        ("127.0.0.1", "verify-full", &*root, None),
        ("localhost", "verify-full", "", None),
    ] {
        let url = url.value().replace("127.0.0.1", host);
        let url = format!("{url}?sslmode={mode}{root}").parse().expect("a URL");
        let opened =
            Metadata::connect(&settings, &url, Clock::test(START), MetadataAccess::Write).await;
        let found = match opened {
            Ok(metadata) => {
                let mut reader = metadata.shared.db.reader().await.expect("a connection");
                let select = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
                let select = sql::query_scalar::<bool>(select);
                Some(select.fetch_one(&mut reader).await.expect("a row"))
            }
            Err(MetadataError::Connect { .. }) => None,
            Err(error) => panic!("{host} {mode}: {error}"),
        };
        assert_eq!(found, is_encrypted, "{host} {mode} {root}");
    }
}
