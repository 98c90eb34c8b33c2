//! The files of an import: what FILE, DIR, GLOB and `-` stand for, and how a file is recognized that was read before.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Bytes at each end of a file that tell whether it is the same file.
const ENDS_BYTES: u64 = 64 << 10;
/// Files of one import.
pub const FILES_MAX: usize = 1_000_000;

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Standard,
    /// A file.
    File(PathBuf),
}

impl Input {
    /// Its name in messages, rejects and checkpoints.
    pub fn name(&self) -> String {
        match self {
            Self::Standard => "-".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Its size in bytes; 0 if it is not known.
    pub fn size(&self) -> u64 {
        match self {
            Self::Standard => 0,
            Self::File(path) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
        }
    }

    /// A text that is another one if the file has another size, beginning or end.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn fingerprint(&self) -> io::Result<String> {
        let Self::File(path) = self else { return Ok(String::new()) };
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut ends = Vec::new();
        Read::by_ref(&mut file).take(ENDS_BYTES).read_to_end(&mut ends)?;
        file.seek(SeekFrom::Start(size.saturating_sub(ENDS_BYTES)))?;
        file.take(ENDS_BYTES).read_to_end(&mut ends)?;
        Ok(format!("{size}-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, &ends).simple()))
    }
}

/// The files that arguments name, in the order of the arguments, those of a directory or pattern by name. Hidden files and
/// lists of files (`manifest.json`) of a directory are left out.
///
/// # Errors
///
/// There is no such file, a pattern matches nothing, or there are more than [`FILES_MAX`].
pub fn inputs(arguments: &[String]) -> io::Result<Vec<Input>> {
    let mut found = Vec::new();
    for argument in arguments {
        let path = Path::new(argument);
        if argument == "-" {
            found.push(Input::Standard);
        } else if path.is_dir() {
            let before = found.len();
            walk(path, &mut found)?;
            if found.len() == before {
                return Err(missing(format!("{argument} has no files")));
            }
        } else if path.exists() {
            found.push(Input::File(path.to_owned()));
        } else {
            matching(argument, &mut found)?;
        }
    }
    Ok(found)
}

fn matching(pattern: &str, found: &mut Vec<Input>) -> io::Result<()> {
    let before = found.len();
    let is_pattern = pattern.contains(['*', '?', '[']);
    let paths = glob::glob(pattern).map_err(|error| missing(format!("{pattern}: {error}")))?;
    for path in paths.filter(|_| is_pattern) {
        let path = path.map_err(io::Error::from)?;
        if path.is_dir() { walk(&path, found)? } else { add(path, found)? }
    }
    if found.len() > before {
        return Ok(());
    }
    Err(missing(match is_pattern {
        true => format!("no file matches {pattern}"),
        false => format!("there is no file {pattern}"),
    }))
}

fn walk(directory: &Path, found: &mut Vec<Input>) -> io::Result<()> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || name.ends_with("manifest.json") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() { walk(&path, found)? } else { add(path, found)? }
    }
    Ok(())
}

fn add(path: PathBuf, found: &mut Vec<Input>) -> io::Result<()> {
    if found.len() >= FILES_MAX {
        return Err(io::Error::other(format!("more than {FILES_MAX} files")));
    }
    found.push(Input::File(path));
    Ok(())
}

fn missing(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Input, inputs};

    #[test]
    fn arguments_name_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("sub")).unwrap();
        for name in ["b.jsonl", "a.jsonl", "sub/c.gz", ".hidden", "x_manifest.json"] {
            fs::write(at(name), name).unwrap();
        }
        let names = |argument: &str| -> Vec<String> {
            let argument = at(argument).display().to_string();
            let found = inputs(&[argument]).unwrap();
            let short = |input: Input| {
                input
                    .name()
                    .strip_prefix(&format!("{}/", directory.path().display()))
                    .unwrap()
                    .to_owned()
            };
            found.into_iter().map(short).collect()
        };
        assert_eq!(names(""), ["a.jsonl", "b.jsonl", "sub/c.gz"]);
        assert_eq!(names("*.jsonl"), ["a.jsonl", "b.jsonl"]);
        assert_eq!(names("**/*.gz"), ["sub/c.gz"]);
        assert_eq!(names("b.jsonl"), ["b.jsonl"]);
        for missing in ["nothing", "*.csv", "["] {
            assert!(inputs(&[at(missing).display().to_string()]).is_err(), "{missing}");
        }
        assert_eq!(inputs(&["-".to_owned()]).unwrap(), [Input::Standard]);
    }

    #[test]
    fn a_fingerprint_is_of_the_size_and_both_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let of = |text: &[u8]| {
            fs::write(&path, text).unwrap();
            Input::File(path.clone()).fingerprint().unwrap()
        };
        let base = of(&[b'a'; 200_000]);
        assert_eq!(base, of(&[b'a'; 200_000]));
        let mut other = [b'a'; 200_000];
        other[199_999] = b'b';
        assert_ne!(base, of(&other));
        assert_ne!(base, of(&[b'a'; 200_001]));
        assert!(!of(b"").is_empty());
    }
}
