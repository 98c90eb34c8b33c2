//! The packages of `scripts/package.sh`: each is installed into an empty place, and what it installs serves.

use std::fs;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Client, KEY, TOKEN, address, binary, patiently};

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// Packs a program in all formats. Compression would take longer than everything else here.
fn pack(program: &Path, out: &Path) {
    // Whose files nobody else may read, packs the same.
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077 && exec \"$0\" \"$@\""]);
    command.arg(Path::new(SOURCE).join("scripts/package.sh"));
    succeeds(command.arg("--binary").arg(program).args(["--level", "0", "--out"]).arg(out));
}

/// The directory with all packages. The tests that run at the same time share one, which ends with the last of them.
fn packages() -> Arc<TempDir> {
    static PACKED: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut packed = PACKED.lock();
    packed.upgrade().unwrap_or_else(|| {
        let made = Arc::new(tempfile::tempdir().expect("a directory"));
        pack(&binary(), made.path());
        *packed = Arc::downgrade(&made);
        made
    })
}

/// The only package whose name ends so.
fn package(packages: &TempDir, end: &str) -> PathBuf {
    let files = fs::read_dir(packages.path()).expect("a directory");
    let paths = files.map(|file| file.expect("a file").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.to_str().is_some_and(|path| path.ends_with(end))).collect();
    assert_eq!(found.len(), 1, "{end}: {found:?}");
    found.remove(0)
}

/// What the command prints.
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Unpacks an archive of tar, with its owners if this user may.
fn unpack(archive: &Path, into: &Path) {
    fs::create_dir_all(into).expect("a directory");
    succeeds(
        Command::new("tar").args(["--extract", "--file"]).arg(archive).arg("--directory").arg(into),
    );
}

/// The only entry of a directory.
fn only(directory: &Path) -> PathBuf {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths.remove(0)
}

/// What a package has installed, while it runs.
struct Installed {
    process: Child,
    client: Client,
}

impl Installed {
    /// Starts it with further arguments, which end with the data directory or leave it to the environment.
    fn serve(mut command: Command, own: &Path) -> Self {
        let said = |name: &str| File::create(own.join(name)).expect("a file");
        command
            .env("WEIR_LISTEN", "127.0.0.1:0")
            .env("WEIR_PROJECT_API_KEY", TOKEN)
            .env("WEIR_PERSONAL_API_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(said("stdout"))
            .stderr(said("stderr"));
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let client = patiently(|| {
            let ended = process.try_wait().expect("the server's state");
            if ended.is_some() {
                return Some(None);
            }
            let client = Client::of(address(&own.join("stdout"))?);
            let ready = client.send("GET", "/_readiness", &[], b"").ok()?;
            (ready.status == 200).then_some(Some(client))
        });
        let client = client.flatten().unwrap_or_else(|| {
            let _ = process.kill();
            panic!("{command:?}: {}", fs::read_to_string(own.join("stderr")).unwrap_or_default())
        });
        Self { process, client }
    }

    /// Sends an event, and asks for it by SQL.
    fn serves(&self) {
        let json = ("content-type", "application/json");
        let event = json!({"event": "packed", "distinct_id": "ada", "properties": {"plan": "pro"}});
        let body = json!({"api_key": TOKEN, "batch": [event]}).to_string();
        let sent =
            self.client.send("POST", "/batch/", &[json], body.as_bytes()).expect("an answer");
        assert_eq!(sent.status, 200, "{sent}");
        let sql = "SELECT event, distinct_id, properties.plan FROM events";
        let body = json!({"query": sql, "format": "csv"}).to_string();
        let bearer = format!("Bearer {KEY}");
        let headers = [json, ("authorization", &*bearer)];
        let asked = self.client.send("POST", "/api/projects/1/query/", &headers, body.as_bytes());
        let asked = asked.expect("an answer");
        assert_eq!(asked.status, 200, "{asked}");
        let told = String::from_utf8(asked.body).expect("UTF-8");
        assert_eq!(told.lines().nth(1), Some("packed,ada,pro"), "{told}");
    }

    /// SIGTERM ends it without an error.
    fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("SIGTERM");
        let ended = patiently(|| self.process.try_wait().expect("the server's state"));
        assert!(ended.is_some_and(|status: ExitStatus| status.success()), "{ended:?}");
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program of a package tells its version, serves with an empty data directory, and ends.
fn works(program: &Path, own: &Path) {
    let told = succeeds(Command::new(program).arg("--version"));
    assert!(told.starts_with(concat!("weir ", env!("CARGO_PKG_VERSION"))), "{told}");
    let mut command = Command::new(program);
    command.args(["serve", "--data-dir"]).arg(own.join("data"));
    let installed = Installed::serve(command, own);
    installed.serves();
    installed.stop();
    let mut query = Command::new(program);
    query.args(["query", "--format", "csv", "SELECT count(*) AS events FROM events", "--data-dir"]);
    assert_eq!(succeeds(query.arg(own.join("data"))), "events\n1\n");
}

#[test]
fn the_archive_serves() {
    let (packages, own) = (packages(), tempfile::tempdir().expect("a directory"));
    let place = own.path().join("place");
    unpack(&package(&packages, "linux-gnu.tar.gz"), &place);
    let top = only(&place);
    for (file, part) in [
        ("LICENSE", "Apache License"),
        ("README.md", "# Weir"),
        ("weir.service", "ExecStart=/usr/local/bin/weir serve"),
        ("examples/alerts.yml", "alert: WeirIsAway"),
        ("examples/grafana-operation.json", "weir_events_accepted_total"),
        ("examples/grafana-product.json", "FROM events"),
        ("examples/pair.env", "WEIR_STORAGE_LOG=bucket"),
        ("examples/shards-postgres.cfg", "track nodes/a"),
        ("examples/shards.cfg", "uri /_readiness"),
        ("examples/shards.env", "WEIR_NODE_SHARDS_MAX="),
        ("examples/workers.env", "WEIR_CLUSTER_WORKERS="),
    ] {
        let text =
            fs::read_to_string(top.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(part), "{file}: {text}");
    }
    works(&top.join("weir"), own.path());

    // Settings that are shown exist.
    let help = succeeds(Command::new(top.join("weir")).args(["serve", "--help"]));
    let example = fs::read_to_string(top.join("examples/weir.env")).expect("a file");
    let lines = example.lines().map(|line| line.trim_start_matches('#'));
    let names: Vec<&str> = lines
        .filter_map(|line| line.split_once('=')?.0.starts_with("WEIR_").then_some(line))
        .collect();
    assert!(names.len() > 2, "{example}");
    for (name, _) in names.iter().filter_map(|line| line.split_once('=')) {
        assert!(name == "WEIR_NAME" || help.contains(&format!("[env: {name}=]")), "{name}");
    }
}

#[test]
fn the_wheel_serves() {
    let (packages, own) = (packages(), tempfile::tempdir().expect("a directory"));
    let place = own.path().join("place");
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(&place));
    let mut install = Command::new(place.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]);
    succeeds(install.arg(package(&packages, ".whl")));
    works(&place.join("bin/weir"), own.path());
    // The name by which `pipx run` and `uvx` find a command, and as a module.
    for told in [
        succeeds(Command::new(place.join("bin/weir-server")).arg("version")),
        succeeds(Command::new(place.join("bin/python")).args(["-m", "weir_server", "version"])),
    ] {
        assert!(told.starts_with("weir "), "{told}");
    }
    let check = succeeds(Command::new(place.join("bin/python")).args([
        "-m",
        "pip",
        "show",
        "--files",
        "weir-server",
    ]));
    assert!(check.contains("License: Apache-2.0") && check.contains("licenses/LICENSE"), "{check}");
}

#[test]
fn the_package_of_npm_serves() {
    let (packages, own) = (packages(), tempfile::tempdir().expect("a directory"));
    let place = own.path().join("place");
    fs::create_dir(&place).expect("a directory");
    let mut install = Command::new("npm");
    install
        .args(["install", "--offline", "--no-audit", "--no-fund"])
        .arg(package(&packages, ".tgz"));
    // Of the user's cache nothing is needed, and nothing is left there.
    install.env("npm_config_cache", own.path().join("cache")).current_dir(&place);
    succeeds(&mut install);
    works(&place.join("node_modules/.bin/weir"), own.path());
    // As `npx weir-server` finds it.
    let mut exec = Command::new("npm");
    exec.args(["exec", "--offline", "weir-server", "--", "version"]);
    exec.env("npm_config_cache", own.path().join("cache")).current_dir(&place);
    let told = succeeds(&mut exec);
    assert!(told.starts_with("weir "), "{told}");
}

#[test]
fn the_package_of_debian_serves() {
    let (packages, own) = (packages(), tempfile::tempdir().expect("a directory"));
    let (place, deb) = (own.path().join("place"), package(&packages, ".deb"));
    succeeds(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&place));
    works(&place.join("usr/bin/weir"), own.path());
    let settings = fs::metadata(place.join("etc/weir/env")).expect("a file");
    assert_eq!(settings.mode() & 0o777, 0o600, "settings may have credentials");
    let unit =
        fs::read_to_string(place.join("usr/lib/systemd/system/weir.service")).expect("a file");
    assert!(unit.contains("ExecStart=/usr/bin/weir serve --data-dir /var/lib/weir"), "{unit}");
    // In tenths of systemd's measure, in which a service that may do anything has 96.
    let mut exposure = Command::new("systemd-analyze");
    exposure.args(["security", "--no-pager", "--offline=yes", "--threshold=20"]);
    succeeds(exposure.arg(place.join("usr/lib/systemd/system/weir.service")));
    let field = |name: &str| succeeds(Command::new("dpkg-deb").arg("-f").arg(&deb).arg(name));
    assert_eq!(field("Package"), "weir\n");
    assert!(field("Depends").contains("libc6 (>= 2."), "{}", field("Depends"));
    let control = own.path().join("control");
    succeeds(Command::new("dpkg-deb").arg("-e").arg(&deb).arg(&control));
    assert_eq!(fs::read_to_string(control.join("conffiles")).expect("a file"), "/etc/weir/env\n");
    for script in ["postinst", "prerm", "postrm"] {
        succeeds(Command::new("sh").arg("-n").arg(control.join(script)));
    }
    let owners = succeeds(Command::new("dpkg-deb").arg("-c").arg(&deb));
    assert!(owners.lines().all(|line| line.contains(" root/root ")), "{owners}");
}

/// An image runs as its configuration says, in its own root. Root of the machine runs it as the user of the image.
#[test]
fn the_image_serves() {
    let (packages, own) = (packages(), tempfile::tempdir().expect("a directory"));
    let image = own.path().join("image");
    unpack(&package(&packages, ".image.tar"), &image);
    let read = |name: &str| -> Value {
        let text = fs::read(image.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_slice(&text).expect("JSON")
    };
    let blob = |description: &Value| {
        let digest = description["digest"].as_str().expect("a digest");
        let path = format!("blobs/{}", digest.replace(':', "/"));
        let size = fs::metadata(image.join(&path)).expect("a blob").len();
        assert_eq!(description["size"], size, "{path}");
        path
    };
    let sum = |path: &str| succeeds(Command::new("sha256sum").arg(image.join(path)));
    // As `docker load` finds it, and as an image of OCI.
    let docker = read("manifest.json");
    let manifest = read(&blob(&read("index.json")["manifests"][0]));
    let (config, layer) = (blob(&manifest["config"]), blob(&manifest["layers"][0]));
    assert_eq!(docker[0]["Config"], config);
    assert_eq!(docker[0]["Layers"], json!([layer]));
    for path in [&config, &layer] {
        assert!(path.ends_with(&sum(path)[..64]), "{path}");
    }
    let config = read(&config);
    let mut plain = Command::new("sh");
    plain.args(["-c", "gzip -dc <\"$0\" | sha256sum"]).arg(image.join(&layer));
    let digest = format!("sha256:{}", &succeeds(&mut plain)[..64]);
    assert_eq!(config["rootfs"]["diff_ids"], json!([digest]));

    let root = own.path().join("root");
    unpack(&image.join(&layer), &root);
    let config = &config["config"];
    let user = config["User"].as_str().expect("a user");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let data = fs::metadata(root.join("data")).expect("a directory");
        assert_eq!(format!("{}:{}", data.uid(), data.gid()), user);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let words = |name: &str| -> Vec<String> {
        serde_json::from_value(config[name].clone())
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let inside = |arguments: &[String]| {
        let mut command = if is_root {
            let mut command = Command::new("chroot");
            command.arg(format!("--userspec={user}"));
            command
        } else {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--root"]);
            command
        };
        command.arg(&root).args(arguments).env_clear();
        // The command that changes the root is the machine's.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let own = words("Env").into_iter().filter(|setting| !setting.starts_with("PATH="));
        command.envs(own.filter_map(|setting| {
            setting.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        }));
        command
    };
    let serve: Vec<String> = words("Entrypoint").into_iter().chain(words("Cmd")).collect();
    let installed = Installed::serve(inside(&serve), own.path());
    installed.serves();
    let test: Vec<String> =
        serde_json::from_value(config["Healthcheck"]["Test"].clone()).expect("a command");
    assert_eq!(test[0], "CMD");
    let listen = installed.client.address().to_string();
    let health = || inside(&test[1..]).env("WEIR_LISTEN", &listen).output().expect("weir");
    let told = health();
    assert!(told.status.success(), "{told:?}");
    installed.stop();
    let told = health();
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stderr).contains(&listen), "{told:?}");
    assert!(root.join("data/wal").exists(), "the data are in the volume");
}

/// Nothing of who packs, where and when, is in a package; and the list of digests is right.
#[test]
fn the_same_program_makes_the_same_packages() {
    let (packages, own) = (packages(), tempfile::tempdir().expect("a directory"));
    let again = own.path().join("again");
    // With another name, time and mode of the program.
    let copy = own.path().join("copy");
    fs::copy(binary(), &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).expect("a mode");
    pack(&copy, &again);
    let sums = |place: &Path| fs::read_to_string(place.join("SHA256SUMS")).expect("the digests");
    assert_eq!(sums(&again), sums(packages.path()));
    succeeds(
        Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&again),
    );
    assert_eq!(sums(&again).lines().count(), 7, "{}", sums(&again));
}

/// The program of a package has no symbols, and says where they are.
#[test]
fn symbols_are_beside_the_program() {
    let (packages, own) = (packages(), tempfile::tempdir().expect("a directory"));
    unpack(&package(&packages, "linux-gnu.tar.gz"), own.path());
    let program = only(own.path()).join("weir");
    let sections = |file: &Path| succeeds(Command::new("objdump").arg("-h").arg(file));
    let stripped = sections(&program);
    assert!(!stripped.contains(".debug_") && stripped.contains(".gnu_debuglink"), "{stripped}");
    let symbols = package(&packages, ".debug");
    let mut head = [0; 4];
    File::open(&symbols).and_then(|mut file| file.read_exact(&mut head)).expect("a head");
    assert_eq!(&head, b"\x7fELF");
    let link = succeeds(Command::new("readelf").arg("--debug-dump=links").arg(&program));
    let name = symbols.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(link.contains(name), "{link}");
    let names = succeeds(Command::new("nm").arg(&symbols));
    assert!(names.lines().any(|line| line.ends_with(" main")), "no symbols");
    let none = Command::new("nm").arg(&program).output().expect("nm");
    assert_eq!(String::from_utf8_lossy(&none.stdout), "");
}
