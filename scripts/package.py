"""Packs a program that is built: one function for each format. scripts/package.sh builds it, and says what is needed."""

import argparse
import base64
import contextlib
import csv
import dataclasses
import functools
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "scripts" / "deploy"
EXAMPLES = [
    *("alerts.yml", "grafana-operation.json", "grafana-product.json", "haproxy.cfg"),
    *("pair.env", "shards-postgres.cfg", "shards.cfg", "shards.env", "weir.env", "workers.env"),
]

# The name `weir` belongs to others at the registries of Python and npm; the command is `weir` everywhere.
REGISTRY_NAME = "weir-server"

# By the number of the machine in the header of an ELF file: names of Python and of triples, Debian, npm, images.
MACHINES = {0x3E: ("x86_64", "amd64", "x64", "amd64"), 0xB7: ("aarch64", "arm64", "arm64", "arm64")}

# What every system with glibc has, by the package of Debian that has it.
LIBRARIES = {
    "libc6": r"lib(c|m|pthread|dl|rt|util|resolv)\.so\.\d+|ld-linux.*\.so\.\d+",
    "libgcc-s1": r"libgcc_s\.so\.1",
}

# The user of the image; high, so that it is nobody on the machine.
IMAGE_USER = 10001


@dataclasses.dataclass
class Entry:
    """A file of an archive, with its content or where that is; a directory if it has none."""

    name: str
    content: bytes | pathlib.Path | None = None
    mode: int = 0o644
    owner: int = 0


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


@dataclasses.dataclass
class Release:
    """What is packed, and what all formats say of it."""

    # The program as it was built.
    binary: pathlib.Path
    out: pathlib.Path
    level: int
    # The program without symbols; see `split`.
    program: pathlib.Path

    @functools.cached_property
    def manifest(self):
        command = [os.environ.get("CARGO", "cargo"), "metadata", "--no-deps", "--format-version=1"]
        packages = json.loads(output(*command, cwd=ROOT))["packages"]
        return next(package for package in packages if package["name"] == "weir")

    @functools.cached_property
    def version(self):
        return self.manifest["version"]

    @functools.cached_property
    def time(self):
        """Seconds: everything in a package is as old as the commit. Archives of zip know no time before 1980."""
        chosen = os.environ.get("SOURCE_DATE_EPOCH")
        if not chosen:
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                chosen = output("git", "log", "-1", "--format=%ct", cwd=ROOT, stderr=subprocess.DEVNULL)
        return max(int(chosen or 0), 315532800)

    @functools.cached_property
    def machine(self):
        with open(self.binary, "rb") as file:
            header = file.read(20)
        return MACHINES[int.from_bytes(header[18:20], "little")]

    @property
    def name(self):
        return f"weir-{self.version}-{self.machine[0]}-linux-gnu"

    @functools.cached_property
    def needed(self):
        """The packages of Debian with the libraries that the program is linked with."""
        libraries = re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", self.program))
        packages = set()
        for library in libraries:
            having = [name for name, pattern in LIBRARIES.items() if re.fullmatch(pattern, library)]
            if not having:
                raise SystemExit(f"the program needs {library}, which not every system has")
            packages.update(having)
        return sorted(packages)

    @functools.cached_property
    def glibc(self):
        """The newest version that a symbol of the program asks for, such as (2, 28)."""
        symbols = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", self.program))
        return max((int(major), int(minor)) for major, minor in symbols)

    def tar(self, path, entries, compressed=True):
        """An archive with these entries in this order, and nothing in it of who makes it, where and when."""
        with contextlib.ExitStack() as open_files:
            file = open_files.enter_context(open(path, "wb"))
            if compressed:
                compressor = gzip.GzipFile("", "wb", self.level, file, mtime=0)
                file = open_files.enter_context(compressor)
            archive = open_files.enter_context(tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT))
            for entry in entries:
                info = tarfile.TarInfo(entry.name)
                info.mtime, info.mode = self.time, entry.mode
                info.uid = info.gid = entry.owner
                if entry.content is None:
                    info.type = tarfile.DIRTYPE
                    archive.addfile(info)
                elif isinstance(entry.content, bytes):
                    info.size = len(entry.content)
                    archive.addfile(info, io.BytesIO(entry.content))
                else:
                    info.size = entry.content.stat().st_size
                    with open(entry.content, "rb") as content:
                        archive.addfile(info, content)


def digest(file):
    """The SHA-256 of what an open file has."""
    found = hashlib.sha256()
    while block := file.read(1 << 20):
        found.update(block)
    return found.hexdigest()


def split(release):
    """Takes the symbols out of the program, into a file beside the packages that debuggers find by the name in it."""
    symbols = release.out / f"{release.name}.debug"
    subprocess.run(["objcopy", "--only-keep-debug", "--compress-debug-sections", release.binary, symbols], check=True)
    symbols.chmod(0o644)
    link = f"--add-gnu-debuglink={symbols}"
    subprocess.run(["objcopy", "--strip-all", link, release.binary, release.program], check=True)
    release.program.chmod(0o755)


def make_tar(release):
    """To be unpacked anywhere: the program, and what an operator needs."""
    top = release.name
    files = [
        Entry("LICENSE", ROOT / "LICENSE"),
        Entry("README.md", ROOT / "README.md"),
        Entry("examples", mode=0o755),
        *(Entry(f"examples/{name}", DEPLOY / name) for name in EXAMPLES),
        Entry("weir", release.program, 0o755),
        Entry("weir.service", DEPLOY / "weir.service"),
    ]
    entries = [Entry(top, mode=0o755)] + [dataclasses.replace(file, name=f"{top}/{file.name}") for file in files]
    release.tar(release.out / f"{top}.tar.gz", entries)


LAUNCHER = b'''"""Runs the program `weir` that is beside this file."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "weir")
    os.execv(program, ["weir", *sys.argv[1:]])
'''


def make_wheel(release):
    """For pip: a package whose two commands become the program."""
    # 1.0.0-beta.2 is 1.0.0b2.
    short = {"alpha": "a", "beta": "b", "rc": "rc"}
    version = re.sub(r"-(alpha|beta|rc)\.?(\d+)$", lambda found: short[found[1]] + found[2], release.version)
    package = REGISTRY_NAME.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    # No platform is older than 2.17.
    major, minor = max(release.glibc, (2, 17))
    tag = f"py3-none-manylinux_{major}_{minor}_{release.machine[0]}"
    metadata = (
        f"Metadata-Version: 2.1\nName: {REGISTRY_NAME}\nVersion: {version}\nSummary: {release.manifest['description']}\n"
        f"License: {release.manifest['license']}\nLicense-File: LICENSE\nRequires-Python: >=3.8\n"
        f"Description-Content-Type: text/markdown\n\n"
    )
    files = [
        Entry(f"{package}/__init__.py", LAUNCHER),
        Entry(f"{package}/__main__.py", f"from {package} import main\n\nmain()\n".encode()),
        Entry(f"{package}/weir", release.program.read_bytes(), 0o755),
        Entry(f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes()),
        Entry(f"{info}/METADATA", metadata.encode() + (ROOT / "README.md").read_bytes()),
        Entry(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()),
        Entry(
            f"{info}/entry_points.txt",
            f"[console_scripts]\nweir = {package}:main\n{REGISTRY_NAME} = {package}:main\n".encode(),
        ),
    ]
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for file in files:
        found = base64.urlsafe_b64encode(hashlib.sha256(file.content).digest()).decode().rstrip("=")
        rows.writerow([file.name, f"sha256={found}", len(file.content)])
    rows.writerow([f"{info}/RECORD", "", ""])
    files.append(Entry(f"{info}/RECORD", record.getvalue().encode()))
    with zipfile.ZipFile(release.out / f"{package}-{version}-{tag}.whl", "w") as wheel:
        for file in files:
            member = zipfile.ZipInfo(file.name, time.gmtime(release.time)[:6])
            # A file of Unix, whoever makes it.
            member.create_system, member.external_attr = 3, (0o100000 | file.mode) << 16
            wheel.writestr(member, file.content, zipfile.ZIP_DEFLATED, release.level)


def make_npm(release):
    """For npm: a link to the program in the directory of commands, so that no Node stands between."""
    manifest = {
        "name": REGISTRY_NAME,
        "version": release.version,
        "description": release.manifest["description"],
        "license": release.manifest["license"],
        "bin": {"weir": "bin/weir"},
        "files": ["bin"],
        "os": ["linux"],
        "cpu": [release.machine[2]],
        "libc": ["glibc"],
    }
    entries = [
        Entry("package/package.json", json.dumps(manifest, indent=2).encode() + b"\n"),
        Entry("package/LICENSE", ROOT / "LICENSE"),
        Entry("package/README.md", ROOT / "README.md"),
        Entry("package/bin/weir", release.program, 0o755),
    ]
    release.tar(release.out / f"{REGISTRY_NAME}-{release.version}-linux-{release.machine[2]}.tgz", entries)


# Debian's own tools do what systemctl would, and respect what an operator has disabled or masked.
SCRIPTS = {
    "postinst": """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
adduser --quiet --system --group --no-create-home --home /var/lib/weir weir
install -d -m 0700 -o weir -g weir /var/lib/weir
deb-systemd-helper unmask weir.service >/dev/null || true
if deb-systemd-helper --quiet was-enabled weir.service; then
    deb-systemd-helper enable weir.service >/dev/null || true
else
    deb-systemd-helper update-state weir.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    # Of an earlier version, if there is one.
    deb-systemd-invoke "$([ -n "$2" ] && echo restart || echo start)" weir.service >/dev/null || true
fi
""",
    "prerm": """#!/bin/sh
set -e
# At an upgrade it goes on until the new program is there.
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop weir.service >/dev/null || true
fi
""",
    "postrm": """#!/bin/sh
set -e
# Events stay in /var/lib/weir, and their user with them, until somebody removes both.
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
fi
command -v deb-systemd-helper >/dev/null || exit 0
case $1 in
remove) deb-systemd-helper mask weir.service >/dev/null || true ;;
purge)
    deb-systemd-helper purge weir.service >/dev/null || true
    deb-systemd-helper unmask weir.service >/dev/null || true
    ;;
esac
""",
}


def make_deb(release):
    """For Debian and Ubuntu: the program as a service."""
    # ~ comes before the release, and - would begin a version of the package.
    version, maintainer = release.version.replace("-", "~"), os.environ.get("DEBEMAIL", "Weir <weir@packages.invalid>")
    glibc = ".".join(map(str, release.glibc))
    depends = ", ".join(f"{name} (>= {glibc})" if name == "libc6" else name for name in release.needed)
    control = f"""Package: weir
Version: {version}
Architecture: {release.machine[1]}
Maintainer: {maintainer}
Section: database
Priority: optional
Depends: adduser, {depends}
Recommends: ca-certificates
Description: event-analytics server in one program
 Receives events over HTTP in the formats of PostHog's SDKs, and keeps them in
 Parquet files that any engine can open. Has feature flags, persons, SQL,
 insights and dashboards on the same data.
"""
    copyright = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir

Files: *
Copyright: the authors of Weir
License: Apache-2.0

License: Apache-2.0
 The Apache License, Version 2.0, is in /usr/share/common-licenses/Apache-2.0.
"""
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(release.time))
    changes = f"weir ({version}) unstable; urgency=medium\n\n  * Release {version}.\n\n -- {maintainer}  {date}\n"
    unit = (DEPLOY / "weir.service").read_text().replace("/usr/local/bin/", "/usr/bin/")
    documents = "usr/share/doc/weir"
    files = [
        Entry("DEBIAN/control", control.encode()),
        Entry("DEBIAN/conffiles", b"/etc/weir/env\n"),
        *(Entry(f"DEBIAN/{name}", text.encode(), 0o755) for name, text in SCRIPTS.items()),
        # It may have credentials.
        Entry("etc/weir/env", DEPLOY / "weir.env", 0o600),
        Entry("usr/bin/weir", release.program, 0o755),
        Entry("usr/lib/systemd/system/weir.service", unit.encode()),
        Entry(f"{documents}/README.md", ROOT / "README.md"),
        Entry(f"{documents}/changelog.gz", gzip.compress(changes.encode(), 9, mtime=0)),
        Entry(f"{documents}/copyright", copyright.encode()),
        *(Entry(f"{documents}/examples/{name}", DEPLOY / name) for name in EXAMPLES),
    ]
    with tempfile.TemporaryDirectory() as stage:
        for file in files:
            path = pathlib.Path(stage, file.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content if isinstance(file.content, bytes) else file.content.read_bytes())
            path.chmod(file.mode)
        for path in [pathlib.Path(stage), *pathlib.Path(stage).rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        target = release.out / f"weir_{version}_{release.machine[1]}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", f"-z{release.level}", "--build", stage, target]
        # Later times are set to this one.
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(release.time)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def root_entries(release):
    """The root of an image: the program, the libraries that it is linked with, and what these look for."""
    libraries = {path for path in re.findall(r"(/\S+) \(0x", output("ldd", release.program))}
    # Before 2.34 glibc looks up names by modules that it loads then.
    beside = next(pathlib.Path(path).parent for path in libraries if path.endswith("/libc.so.6"))
    modules = [beside / name for name in ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")]
    libraries |= {str(path) for path in modules if path.exists()}
    licenses = [pathlib.Path("/usr/share/doc", name, "copyright") for name in release.needed]
    user = f"weir:x:{IMAGE_USER}:{IMAGE_USER}"
    files = [
        Entry("etc/group", f"root:x:0:\nweir:x:{IMAGE_USER}:\n".encode()),
        Entry("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n"),
        Entry("etc/passwd", f"root:x:0:0::/:/bin/false\n{user}::/data:/bin/false\n".encode()),
        Entry("etc/ssl/certs/ca-certificates.crt", pathlib.Path("/etc/ssl/certs/ca-certificates.crt")),
        Entry("usr/bin/weir", release.program, 0o755),
        Entry("usr/share/doc/weir/copyright", ROOT / "LICENSE"),
        *(Entry(str(path)[1:], path.resolve()) for path in licenses if path.exists()),
        *(Entry(path[1:], pathlib.Path(path).resolve(), 0o755) for path in libraries),
    ]
    above = {str(path) for file in files for path in pathlib.PurePath(file.name).parents if path.name}
    directories = [Entry(name, mode=0o755) for name in above]
    directories += [Entry("data", mode=0o700, owner=IMAGE_USER), Entry("tmp", mode=0o1777)]
    return sorted(directories + files, key=lambda entry: entry.name)


def make_image(release):
    """For Docker, Podman and Kubernetes: the root as an archive, and an image of it as `docker load` takes it, which is
    also a layout of OCI."""
    layer = release.out / f"{release.name}.rootfs.tar.gz"
    release.tar(layer, root_entries(release))
    with open(layer, "rb") as packed, gzip.open(layer) as plain:
        packed, plain = digest(packed), digest(plain)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.time))
    config = {
        "architecture": release.machine[3],
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{IMAGE_USER}:{IMAGE_USER}",
            "ExposedPorts": {"8000/tcp": {}},
            "Env": ["PATH=/usr/bin", "WEIR_DATA_DIR=/data", "WEIR_LISTEN=0.0.0.0:8000"],
            "Entrypoint": ["/usr/bin/weir"],
            "Cmd": ["serve"],
            "Volumes": {"/data": {}},
            "WorkingDir": "/data",
            "StopSignal": "SIGTERM",
            # Docker's own; others leave it alone. In nanoseconds.
            "Healthcheck": {"Test": ["CMD", "/usr/bin/weir", "health"], "Interval": 30 * 10**9, "Timeout": 10 * 10**9},
            "Labels": {
                "org.opencontainers.image.title": "weir",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": release.manifest["license"],
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
        "history": [{"created": created, "created_by": "scripts/package.sh"}],
    }
    blobs = []

    def blob(kind, value, **more):
        """Adds the value as a blob of JSON, and returns its description."""
        text = json.dumps(value, sort_keys=True).encode()
        found = hashlib.sha256(text).hexdigest()
        blobs.append(Entry(f"blobs/sha256/{found}", text))
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{found}", "size": len(text), **more}

    blobs.append(Entry(f"blobs/sha256/{packed}", layer))
    described = {
        "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
        "digest": f"sha256:{packed}",
        "size": layer.stat().st_size,
    }
    config = blob("config.v1+json", config)
    kind = "manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": f"application/vnd.oci.image.{kind}", "config": config, "layers": [described]}
    names = {
        "io.containerd.image.name": f"docker.io/library/weir:{release.version}",
        "org.opencontainers.image.ref.name": release.version,
    }
    index = {"schemaVersion": 2, "manifests": [blob(kind, manifest, annotations=names)]}
    path = lambda description: "blobs/sha256/" + description["digest"].removeprefix("sha256:")
    docker = [{"Config": path(config), "RepoTags": [f"weir:{release.version}"], "Layers": [path(described)]}]
    entries = [
        Entry("blobs", mode=0o755),
        Entry("blobs/sha256", mode=0o755),
        *sorted(blobs, key=lambda entry: entry.name),
        Entry("index.json", json.dumps(index).encode()),
        Entry("manifest.json", json.dumps(docker).encode()),
        Entry("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode()),
    ]
    # What is large in it is compressed.
    release.tar(release.out / f"{release.name}.image.tar", entries, compressed=False)


FORMATS = {"tar": make_tar, "wheel": make_wheel, "npm": make_npm, "deb": make_deb, "image": make_image}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--level", type=int, default=9, choices=range(10), metavar="0-9")
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"{', '.join(FORMATS)} [default: all]")
    chosen = parser.parse_args()
    unknown = set(chosen.formats) - set(FORMATS)
    if unknown:
        parser.error(f"no format: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as work:
        made = pathlib.Path(work, "made")
        made.mkdir()
        release = Release(chosen.binary, made, chosen.level, pathlib.Path(work, "weir"))
        split(release)
        for name in chosen.formats or FORMATS:
            FORMATS[name](release)
        # Of this call alone: a directory may have those of other versions, too.
        sums = []
        for path in sorted(made.iterdir()):
            with open(path, "rb") as file:
                sums.append(f"{digest(file)}  {path.name}\n")
            print(f"{path.stat().st_size:12,} {chosen.out / path.name}")
        made.joinpath("SHA256SUMS").write_text("".join(sums))
        chosen.out.mkdir(parents=True, exist_ok=True)
        for path in made.iterdir():
            shutil.move(path, chosen.out / path.name)


if __name__ == "__main__":
    main()
