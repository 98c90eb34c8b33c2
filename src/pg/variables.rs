//! Settings of a session, which clients read and set: [`Variables`]. Most have one value here, and setting another one is
//! accepted if nothing depends on it.

use std::collections::BTreeMap;

use crate::error::Failure;

/// The version of PostgreSQL whose catalog and protocol this port has.
pub(crate) const SERVER_VERSION: &str = concat!("15.0 (Weir ", env!("CARGO_PKG_VERSION"), ")");

/// Most settings of other names that a session may have.
const OTHERS_MAX: usize = 64;

/// Longest value of a setting, in bytes.
const VALUE_MAX_BYTES: usize = 1024;

/// The settings with their values at the start of a session, and whether clients are told of them.
const KNOWN: [(&str, &str, bool); 34] = [
    ("server_version", SERVER_VERSION, true),
    ("server_encoding", "UTF8", true),
    ("client_encoding", "UTF8", true),
    ("DateStyle", "ISO, MDY", true),
    ("IntervalStyle", "postgres", true),
    ("TimeZone", "UTC", true),
    ("integer_datetimes", "on", true),
    ("standard_conforming_strings", "on", true),
    ("is_superuser", "off", true),
    ("default_transaction_read_only", "on", true),
    ("in_hot_standby", "off", true),
    ("application_name", "", true),
    ("server_version_num", "150000", false),
    ("transaction_isolation", "read committed", false),
    ("default_transaction_isolation", "read committed", false),
    ("transaction_read_only", "on", false),
    ("search_path", "public", false),
    ("extra_float_digits", "1", false),
    ("bytea_output", "hex", false),
    ("client_min_messages", "notice", false),
    ("statement_timeout", "0", false),
    ("lock_timeout", "0", false),
    ("idle_in_transaction_session_timeout", "0", false),
    ("max_identifier_length", "63", false),
    ("max_index_keys", "32", false),
    ("lc_collate", "C", false),
    ("lc_ctype", "C", false),
    ("lc_messages", "C", false),
    ("block_size", "8192", false),
    ("backslash_quote", "safe_encoding", false),
    ("escape_string_warning", "on", false),
    ("row_security", "on", false),
    ("ssl", "off", false),
    ("session_authorization", "", false),
];

/// Settings whose value does not change, because results have one form.
const FIXED: [&str; 12] = [
    "server_version",
    "server_encoding",
    "server_version_num",
    "integer_datetimes",
    "is_superuser",
    "in_hot_standby",
    "max_identifier_length",
    "max_index_keys",
    "block_size",
    "ssl",
    "session_authorization",
    "transaction_read_only",
];

/// The settings of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    /// Values that differ from those at the start, by names in lower case.
    changed: BTreeMap<String, String>,
    /// Values that a reset restores.
    initial: BTreeMap<String, String>,
}

impl Variables {
    /// The settings at the start of a session of `user`, which sent `parameters`.
    ///
    /// # Errors
    ///
    /// The client wants another encoding than UTF-8.
    pub(crate) fn new(user: &str, parameters: &[(String, String)]) -> Result<Self, Failure> {
        let mut variables = Self::default();
        for (name, value) in parameters {
            let is_setting =
                !matches!(name.as_str(), "user" | "database" | "options" | "replication");
            if is_setting && !name.starts_with("_pq_.") {
                variables.set(name, value)?;
            }
        }
        let user = user.chars().take(VALUE_MAX_BYTES / 4).collect();
        variables.changed.insert("session_authorization".to_owned(), user);
        variables.initial = variables.changed.clone();
        Ok(variables)
    }

    /// The names and values of which clients are told.
    pub(crate) fn told(&self) -> impl Iterator<Item = (&'static str, String)> {
        let told = KNOWN.iter().filter(|(_, _, is_told)| *is_told);
        told.map(|(name, usual, _)| (*name, self.get(name).unwrap_or_else(|| (*usual).to_owned())))
    }

    /// The value of a setting.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let name = name.to_lowercase();
        let usual = || KNOWN.iter().find(|(own, ..)| own.to_lowercase() == name);
        self.changed
            .get(&name)
            .cloned()
            .or_else(|| usual().map(|(_, usual, _)| (*usual).to_owned()))
    }

    /// All settings, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        let known = KNOWN.iter().map(|(name, ..)| ((*name).to_owned(), self.get(name)));
        let known = known.filter_map(|(name, value)| Some((name, value?)));
        let is_other = |name: &&String| !KNOWN.iter().any(|(own, ..)| own.to_lowercase() == **name);
        let others =
            self.changed.keys().filter(is_other).map(|name| (name.clone(), self.get(name)));
        known.chain(others.filter_map(|(name, value)| Some((name, value?)))).collect()
    }

    /// Sets a setting. Returns its name and value if clients are told of it.
    ///
    /// # Errors
    ///
    /// It cannot have this value.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<Option<(&'static str, String)>, Failure> {
        let key = name.to_lowercase();
        if value.eq_ignore_ascii_case("default") {
            self.reset(Some(&key));
            return Ok(None);
        }
        let known = KNOWN.iter().find(|(own, ..)| own.to_lowercase() == key);
        if FIXED.contains(&key.as_str()) {
            let why = format!("parameter \"{name}\" cannot be changed");
            return Err(Failure::new("55P02", why));
        }
        let plain = value.to_lowercase().replace(['-', '_', '\'', '"'], "");
        if key == "client_encoding" && !matches!(&*plain, "utf8" | "unicode" | "sqlascii" | "auto")
        {
            let why = format!("the encoding {value} is not available: texts are in UTF-8");
            return Err(Failure::new("22023", why));
        }
        // Results have one form, which values tell by themselves: times have the offset of UTC.
        if matches!(&*key, "client_encoding" | "datestyle" | "timezone" | "intervalstyle") {
            return Ok(None);
        }
        let is_new = known.is_none() && !self.changed.contains_key(&key);
        let others = self.changed.len().saturating_sub(KNOWN.len());
        if value.len() > VALUE_MAX_BYTES
            || key.len() > VALUE_MAX_BYTES
            || is_new && others >= OTHERS_MAX
        {
            return Err(Failure::too_much("a session has no more memory for settings"));
        }
        self.changed.insert(key, value.to_owned());
        Ok(known.filter(|(_, _, is_told)| *is_told).map(|(name, ..)| (*name, value.to_owned())))
    }

    /// Restores one setting, or all of them.
    pub(crate) fn reset(&mut self, name: Option<&str>) {
        match name {
            None => self.changed = self.initial.clone(),
            Some(name) => {
                let name = name.to_lowercase();
                match self.initial.get(&name) {
                    Some(value) => self.changed.insert(name, value.clone()),
                    None => self.changed.remove(&name),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FIXED, KNOWN, OTHERS_MAX, Variables};

    #[test]
    fn settings_are_set_and_restored() {
        let sent = [("user", "a"), ("application_name", "psql"), ("client_encoding", "UNICODE")];
        let sent = sent.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut own = Variables::new("a", &sent).unwrap();
        let get = |own: &Variables, name: &str| own.get(name).unwrap_or_default();
        assert_eq!(get(&own, "Application_Name"), "psql");
        assert_eq!(get(&own, "session_authorization"), "a");
        assert_eq!(get(&own, "client_encoding"), "UTF8");
        let told = own.set("application_name", "b").unwrap();
        assert_eq!(told, Some(("application_name", "b".to_owned())));
        assert_eq!(own.set("statement_timeout", "5s").unwrap(), None);
        assert_eq!(
            (get(&own, "application_name"), get(&own, "statement_timeout")),
            ("b".into(), "5s".into())
        );
        own.reset(Some("APPLICATION_NAME"));
        assert_eq!(
            (get(&own, "application_name"), get(&own, "statement_timeout")),
            ("psql".into(), "5s".into())
        );
        own.reset(None);
        assert_eq!(get(&own, "statement_timeout"), "0");
        assert_eq!(own.get("nothing"), None);
        for (name, value, code) in [
            ("server_version", "1", "55P02"),
            ("client_encoding", "LATIN1", "22023"),
            ("a.b", &"x".repeat(5000), "54000"),
        ] {
            assert_eq!(own.set(name, value).map_err(|error| error.code), Err(code), "{name}");
        }
        let odd = [("client_encoding".to_owned(), "LATIN1".to_owned())];
        assert!(Variables::new("a", &odd).is_err());
    }

    #[test]
    fn settings_of_clients_are_few() {
        let mut own = Variables::default();
        let set = (0..1000).filter(|n| own.set(&format!("a.b{n}"), "1").is_ok()).count();
        assert!((OTHERS_MAX..=OTHERS_MAX + KNOWN.len()).contains(&set), "{set}");
        assert!(FIXED.iter().all(|name| own.get(name).is_some()));
        assert_eq!(own.all().len(), set + KNOWN.len());
    }
}
