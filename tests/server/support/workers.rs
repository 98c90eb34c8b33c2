//! Workers of servers under test.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::{Client, binary, patiently};

/// The secret of all nodes.
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A worker, which ends with the value.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Child,
    directory: TempDir,
    /// The URL of its port for parts of queries.
    pub(crate) url: String,
    health: Client,
}

impl Worker {
    /// Starts one on the bucket of these settings.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_on("127.0.0.1:0", settings)
    }

    /// The same on this address.
    pub(crate) fn start_on(address: &str, settings: &[(&str, &str)]) -> Self {
        let directory = TempDir::new().expect("a directory");
        let out = directory.path().join("stdout");
        let log = File::create(directory.path().join("stderr")).expect("a file");
        let process = Command::new(binary())
            .arg("worker")
            .env_clear()
            .env("WEIR_LISTEN", "127.0.0.1:0")
            .env("WEIR_DATA_DIR", directory.path().join("data"))
            .env("WEIR_CLUSTER_LISTEN", address)
            .env("WEIR_CLUSTER_SECRET", SECRET)
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(&out).expect("a file"))
            .stderr(log)
            .spawn()
            .expect("a worker");
        let told = patiently(|| told(&out));
        let (url, health) = told.unwrap_or_else(|| {
            let log = std::fs::read_to_string(directory.path().join("stderr"));
            panic!("no worker: {log:?}")
        });
        Self { process, directory, url, health: Client::of(health.parse().expect("an address")) }
    }

    /// The address of its port.
    pub(crate) fn address(&self) -> String {
        self.url.trim_start_matches("http://").to_owned()
    }

    /// The number that a metric has.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.health.send("GET", "/metrics", &[], b"").expect("metrics").body;
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Lets it hang, or go on.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// CPU time that it has used, in milliseconds.
    pub(crate) fn processor_millis(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        let stat = stat.expect("a process");
        // After the name, which may have spaces: user and system time are fields 14 and 15, in hundredths of a second.
        let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).map(|own| own.parse::<u64>().expect("ticks")).sum();
        ticks * 10
    }

    /// Its log says nothing of a panic.
    pub(crate) fn is_well(&self) {
        let log = std::fs::read_to_string(self.directory.path().join("stderr"));
        let log = log.expect("its log");
        assert!(!log.contains("panicked"), "{log}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The URL of the port, and the address of the probes.
fn told(out: &Path) -> Option<(String, String)> {
    let text = std::fs::read_to_string(out).ok()?;
    let line = text.lines().next()?;
    let (_, rest) = line.split_once(" on ")?;
    let (url, rest) = rest.split_once(',')?;
    let (_, health) = rest.rsplit_once("http://")?;
    Some((url.to_owned(), health.to_owned()))
}

/// Settings of a server with these workers, which execute parts of all of its queries.
pub(crate) fn with_workers(urls: &str) -> [(&str, &str); 4] {
    [
        ("WEIR_CLUSTER_LISTEN", "127.0.0.1:0"),
        ("WEIR_CLUSTER_SECRET", SECRET),
        ("WEIR_CLUSTER_WORKERS", urls),
        ("WEIR_CLUSTER_QUERY_MIN_BYTES", "0B"),
    ]
}

/// The URLs of workers as a setting.
pub(crate) fn urls(workers: &[Worker]) -> String {
    workers.iter().map(|worker| worker.url.as_str()).collect::<Vec<_>>().join(",")
}

/// Longest until a server knows which workers answer.
pub(crate) const NOTICED: Duration = Duration::from_secs(30);
