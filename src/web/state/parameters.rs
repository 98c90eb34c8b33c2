//! Parameters of a query string, or the fields of a form: [`Parameters`] are taken one by one, and any that is left
//! over is an error; [`Printer`] builds a query string.

use std::fmt::Display;
use std::str::FromStr;

/// Longest query string. Browsers and proxies accept at least that many bytes of an address.
const QUERY_MAX_BYTES: usize = 16 << 10;

/// Most characters of a parameter's name that an error repeats.
const TOLD_MAX_CHARS: usize = 60;

/// Why an address is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {detail}")]
pub struct Wrong {
    /// The parameter.
    pub name: String,
    /// What is wrong with it.
    pub detail: String,
}

impl Wrong {
    /// An error about a parameter.
    pub fn new(name: impl AsRef<str>, detail: impl Into<String>) -> Self {
        let name = name.as_ref().chars().take(TOLD_MAX_CHARS).collect();
        Self { name, detail: detail.into() }
    }
}

/// Parameters that have not been taken yet.
#[derive(Clone, Debug)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses a query string, without its `?`. Empty parameters count as absent: forms send them.
    ///
    /// # Errors
    ///
    /// The query string is too long.
    pub fn parse(query: &str) -> Result<Self, Wrong> {
        if query.len() > QUERY_MAX_BYTES {
            let detail =
                format!("The address has more than {QUERY_MAX_BYTES} bytes of parameters.");
            return Err(Wrong::new("address", detail));
        }
        Ok(Self::of_bytes(query.as_bytes()))
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(bytes)
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.into_owned(), value.into_owned()));
        Self(pairs.collect())
    }

    /// The fields of a form, whose length the caller limits. Browsers send line ends as CR LF.
    pub fn of_form(body: &[u8]) -> Self {
        let mut fields = Self::of_bytes(body);
        for (_, value) in &mut fields.0 {
            if value.contains('\r') {
                *value = value.replace("\r\n", "\n");
            }
        }
        fields
    }

    /// The first value of a field; empty without one.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value.as_str())
    }

    /// Takes all values of a parameter, in their order.
    pub fn take_all(&mut self, name: &str) -> Vec<String> {
        let is_it = |pair: &mut (String, String)| pair.0 == name;
        self.0.extract_if(.., is_it).map(|(_, value)| value).collect()
    }

    /// Takes a parameter.
    ///
    /// # Errors
    ///
    /// It is given twice.
    pub fn take(&mut self, name: &str) -> Result<Option<String>, Wrong> {
        let mut values = self.take_all(name);
        let value = values.pop();
        if values.is_empty() { Ok(value) } else { Err(Wrong::new(name, "This is given twice.")) }
    }

    /// Takes one of some words.
    ///
    /// # Errors
    ///
    /// It is another word, or given twice.
    pub fn choice(
        &mut self,
        name: &str,
        words: &[&'static str],
    ) -> Result<Option<&'static str>, Wrong> {
        let Some(value) = self.take(name)? else { return Ok(None) };
        let known = words.iter().copied().find(|word| *word == value);
        let wrong = || Wrong::new(name, format!("Expected one of {}.", words.join(", ")));
        known.map(Some).ok_or_else(wrong)
    }

    /// Takes a number.
    ///
    /// # Errors
    ///
    /// It is not a number, or given twice.
    pub fn number<N: FromStr>(&mut self, name: &str) -> Result<Option<N>, Wrong> {
        let Some(value) = self.take(name)? else { return Ok(None) };
        let wrong = |_| Wrong::new(name, "Expected a whole number that is not too large.");
        value.parse().map(Some).map_err(wrong)
    }

    /// Takes a checkbox.
    ///
    /// # Errors
    ///
    /// It is neither 1 nor 0.
    pub fn truth(&mut self, name: &str) -> Result<bool, Wrong> {
        Ok(self.choice(name, &["1", "0"])? == Some("1"))
    }

    /// Takes the parameters whose names begin with `prefix`.
    pub fn split_off(&mut self, prefix: &str) -> Self {
        Self(self.0.extract_if(.., |(name, _)| name.starts_with(prefix)).collect())
    }

    /// Removes the parameters with these names.
    pub fn without(&mut self, names: &[&str]) {
        self.0.retain(|(name, _)| !names.contains(&name.as_str()));
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that all parameters have been taken.
    ///
    /// # Errors
    ///
    /// A parameter is left.
    pub fn finish(self) -> Result<(), Wrong> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Wrong::new(name, "There is no such parameter here.")),
        }
    }
}

/// Builder of a query string.
pub struct Printer(form_urlencoded::Serializer<'static, String>);

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Printer")
    }
}

impl Default for Printer {
    fn default() -> Self {
        Self(form_urlencoded::Serializer::new(String::new()))
    }
}

impl Printer {
    /// Adds a parameter, if there is one.
    pub fn add(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.0.append_pair(name, &value.to_string());
        }
    }

    /// Adds each value of a parameter.
    pub fn add_all(&mut self, name: &str, values: &[impl Display]) {
        values.iter().for_each(|value| self.add(name, Some(value)));
    }

    /// Adds a checked box.
    pub fn truth(&mut self, name: &str, truth: bool) {
        self.add(name, truth.then_some(1));
    }

    /// The query string.
    pub fn finish(mut self) -> String {
        self.0.finish()
    }
}
