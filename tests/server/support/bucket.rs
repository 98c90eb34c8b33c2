//! A bucket for servers under test: moto, and in front of it a gate that lets requests fail as networks and
//! stores do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;

use crate::harness::{beside, within};
use crate::sdk::tools;

/// Name of the bucket.
pub(crate) const BUCKET: &str = "weir-tests";

/// Longest that moto takes to start.
const STARTING: Duration = Duration::from_secs(60);

/// A store of objects in memory, which ends with the value.
#[derive(Debug)]
pub(crate) struct Moto {
    process: Child,
    address: SocketAddr,
    tools: PathBuf,
}

impl Moto {
    /// Starts it with an empty bucket.
    pub(crate) fn start() -> Self {
        let tools = tools();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = port.expect("a free port");
        let process = Command::new(tools.join("moto/bin/python"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/object_store.py"))
            .arg(address.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("moto starts");
        let moto = Self { process, address, tools };
        let created = within(STARTING, || {
            let request = format!(
                "PUT /{BUCKET} HTTP/1.1\r\nhost: s3.amazonaws.com\r\n\
                authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, \
                SignedHeaders=host, Signature=0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let answer = exchange(moto.address, request.as_bytes()).ok()?;
            answer.get(8..12).is_some_and(|status| status == b" 200").then_some(())
        });
        created.expect("moto makes a bucket");
        moto
    }

    /// Python of the readers of tables.
    pub(crate) fn python(&self) -> PathBuf {
        self.tools.join("readers/bin/python")
    }

    /// Keys of all objects, sorted.
    pub(crate) fn keys(&self) -> Vec<String> {
        let request = format!(
            "GET /{BUCKET}?list-type=2&max-keys=100000 HTTP/1.1\r\n\
            host: s3.amazonaws.com\r\nconnection: close\r\n\r\n"
        );
        let answer = exchange(self.address, request.as_bytes()).expect("moto lists");
        let text = String::from_utf8_lossy(&answer);
        let keys = text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
        let mut keys: Vec<String> = keys.map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// Removes an object.
    pub(crate) fn remove(&self, key: &str) {
        let request = format!(
            "DELETE /{BUCKET}/{key} HTTP/1.1\r\nhost: s3.amazonaws.com\r\nconnection: close\r\n\
            authorization: AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, \
            SignedHeaders=host, Signature=0\r\n\r\n"
        );
        let answer = exchange(self.address, request.as_bytes()).expect("moto deletes");
        assert!(answer.starts_with(b"HTTP/1.0 204"), "{}", String::from_utf8_lossy(&answer));
    }

    /// Copies all objects under a prefix of the bucket to another one, which is empty, as a tool for backups does.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        const COPY: &str = r#"
import sys, boto3
url, bucket, source, target = sys.argv[1:]
store = boto3.client("s3", endpoint_url=url, region_name="us-east-1",
                     aws_access_key_id="test", aws_secret_access_key="test")
for page in store.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=source + "/"):
    for key in (object["Key"] for object in page.get("Contents", [])):
        store.copy_object(Bucket=bucket, Key=target + key[len(source):], CopySource={"Bucket": bucket, "Key": key})
"#;
        let url = format!("http://{}", self.address);
        let mut copy = Command::new(self.tools.join("moto/bin/python"));
        let output = copy.args(["-c", COPY, &url, BUCKET, from, to]).output().expect("python");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A gate in front of it.
    pub(crate) fn gate(&self) -> Gate {
        Gate::open(self.address)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Settings of a server whose tables are in the bucket, at the end of this URL.
pub(crate) fn settings<'a>(url: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut settings = vec![
        ("WEIR_STORAGE_URL", "s3://weir-tests/events"),
        ("WEIR_STORAGE_ENDPOINT", url),
        ("WEIR_STORAGE_REQUEST_TIMEOUT", "5s"),
        ("WEIR_STORAGE_RETRY_TIMEOUT", "2s"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    settings.extend_from_slice(more);
    settings
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is answered.
    Passed,
    /// It is answered later.
    Slow(Duration),
    /// It does not arrive, and the connection ends.
    Lost,
    /// It takes effect, and the connection ends before the answer.
    AnswerLost,
    /// It is refused with 503.
    Refused,
    /// It arrives without its `If-None-Match`.
    Unconditional,
}

type Judge = Box<dyn FnMut(&str) -> Fate + Send>;

/// A proxy that decides the fate of each request by its first line.
pub(crate) struct Gate {
    address: SocketAddr,
    judge: Arc<Mutex<Judge>>,
    /// Requests that were not just passed.
    disturbed: Arc<AtomicU64>,
}

impl Gate {
    fn open(behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let passed: Judge = Box::new(|_| Fate::Passed);
        let judge = Arc::new(Mutex::new(passed));
        let disturbed = Arc::new(AtomicU64::new(0));
        let (judging, counting) = (Arc::clone(&judge), Arc::clone(&disturbed));
        beside(move || {
            for socket in listener.incoming().flatten() {
                let (judge, disturbed) = (Arc::clone(&judging), Arc::clone(&counting));
                // A connection that ends early is what clients have to expect.
                beside(move || drop(serve(socket, behind, &judge, &disturbed)));
            }
        });
        Self { address, judge, disturbed }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on the fate of requests is what `judge` says.
    pub(crate) fn judge(&self, judge: impl FnMut(&str) -> Fate + Send + 'static) {
        *self.judge.lock() = Box::new(judge);
    }

    pub(crate) fn disturbed(&self) -> u64 {
        self.disturbed.load(Ordering::Relaxed)
    }
}

/// One request of a connection, which then ends.
fn serve(
    mut socket: TcpStream,
    behind: SocketAddr,
    judge: &Mutex<Judge>,
    disturbed: &AtomicU64,
) -> io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line);
    }
    let length = lines.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let fate = {
        let mut judge = judge.lock();
        judge(lines.first().map_or("", String::as_str))
    };
    if fate != Fate::Passed {
        disturbed.fetch_add(1, Ordering::Relaxed);
    }
    match fate {
        Fate::Lost => return Ok(()),
        Fate::Refused => {
            let answer =
                b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            return socket.write_all(answer);
        }
        Fate::Slow(time) => thread::sleep(time),
        Fate::Passed | Fate::AnswerLost | Fate::Unconditional => {}
    }
    let is_kept = |line: &String| {
        let line = line.to_ascii_lowercase();
        let is_condition = fate == Fate::Unconditional && line.starts_with("if-none-match:");
        !is_condition && !line.starts_with("connection:")
    };
    let mut request: String =
        lines.iter().filter(|line| is_kept(line)).map(String::as_str).collect();
    request.push_str("connection: close\r\n\r\n");
    let mut request = request.into_bytes();
    request.extend_from_slice(&body);
    let answer = exchange(behind, &request)?;
    if fate == Fate::AnswerLost {
        return Ok(());
    }
    socket.write_all(&answer)
}

/// Sends a request, and reads the answer up to the end of the connection.
fn exchange(address: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.write_all(request)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    Ok(answer)
}
