//! Files that are replaced as a whole: whoever reads one, after whatever end of the process or of the machine, has the one
//! before or the new one.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

use tempfile::NamedTempFile;

/// Replaces a file, durably.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(bytes)?;
    rename(file, path)
}

/// A temporary file in the directory of `path`, to which [`rename`] gives its name. It is removed if it gets none.
pub(super) fn beside(path: &Path) -> io::Result<NamedTempFile> {
    NamedTempFile::new_in(directory(path))
}

/// Gives a file that is written the name of `path`, durably.
pub(super) fn rename(file: NamedTempFile, path: &Path) -> io::Result<()> {
    // Before it has the name: otherwise an empty file may have it after a loss of power.
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(directory(path))?.sync_all()
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{beside, replace};

    #[test]
    fn files_are_replaced_and_nothing_is_left_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        for text in ["first", "second"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        drop(beside(&path).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(replace(&directory.path().join("none/state.json"), b"x").is_err());
    }
}
