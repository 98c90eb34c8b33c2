//! Error messages of commands: [`explain`].

/// An error and its chain of causes in one line. A cause whose text the line already contains is left out.
pub fn explain(error: &anyhow::Error) -> String {
    let mut explained = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if explained.is_empty() {
            explained = cause;
        } else if !explained.contains(&cause) {
            explained = format!("{explained}: {cause}");
        }
    }
    explained
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::explain;

    #[derive(Debug)]
    struct Quoting(std::io::Error);

    impl fmt::Display for Quoting {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the database says: {}", self.0)
        }
    }

    impl std::error::Error for Quoting {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn each_cause_is_printed_once() {
        let cause = || std::io::Error::other("no such table");
        let plain = anyhow::Error::new(cause()).context("cannot read x").context("cannot start");
        assert_eq!(explain(&plain), "cannot start: cannot read x: no such table");
        let quoting = anyhow::Error::new(Quoting(cause())).context("cannot start");
        assert_eq!(explain(&quoting), "cannot start: the database says: no such table");
    }
}
