//! Profiles in the files of AWS's tools, `~/.aws/config` and `~/.aws/credentials`: region, endpoint and keys.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error};
use parking_lot::Mutex;

use weir_base::clock::Clock;
use weir_base::config::bucket::AwsVariables;

/// Time after which keys are read again: tools that sign in for a user renew them in the file.
const KEYS_MAX_AGE: Duration = Duration::from_secs(60);

/// Profile that is used if none is named.
const DEFAULT: &str = "default";

/// One profile.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    name: String,
    /// Whether the operator has named it.
    is_named: bool,
    /// The files that it may be in; the second wins.
    files: Vec<PathBuf>,
    values: BTreeMap<String, String>,
}

impl Profile {
    /// The profile that `AWS_PROFILE` names, or `default`; `None` if there is none and none is named.
    pub(super) fn find(variables: &AwsVariables) -> Result<Option<Self>, String> {
        let named = variables.get("AWS_PROFILE");
        let files = [
            variables.file("AWS_CONFIG_FILE", "config"),
            variables.file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        ];
        let files: Vec<PathBuf> = files.into_iter().flatten().collect();
        let name = named.unwrap_or(DEFAULT).to_owned();
        let values = read(&files, &name)?;
        match (values.is_empty(), named) {
            (true, Some(name)) => Err(format!("AWS_PROFILE: there is no profile {name}")),
            (true, None) => Ok(None),
            (false, _) => Ok(Some(Self { name, is_named: named.is_some(), files, values })),
        }
    }

    /// Whether keys are to come from it: it has some, or the operator has named it.
    pub(super) fn is_for_keys(&self) -> bool {
        self.is_named || keys(&self.values).is_some()
    }

    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }
}

/// The values of a profile in all files that exist.
fn read(files: &[PathBuf], name: &str) -> Result<BTreeMap<String, String>, String> {
    let mut values = BTreeMap::new();
    for file in files {
        match std::fs::read_to_string(file) {
            Ok(text) => values.extend(section(&text, name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
        }
    }
    Ok(values)
}

/// The values of a profile in a file: `[name]` or `[profile name]`, then lines `key = value`.
fn section(text: &str, name: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut is_in = false;
    for line in text.lines() {
        let plain = line.trim();
        if plain.starts_with(['#', ';']) || plain.is_empty() {
            continue;
        }
        if let Some(head) = plain.strip_prefix('[') {
            let head = head.split(']').next().unwrap_or_default().trim();
            is_in = head.strip_prefix("profile ").map_or(head, str::trim) == name;
        } else if is_in
            && !line.starts_with([' ', '\t'])
            && let Some((key, value)) = plain.split_once('=')
        {
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    values
}

/// The keys of a profile, read again from time to time.
#[derive(Debug)]
pub(super) struct ProfileCredentials {
    profile: Profile,
    clock: Clock,
    last: Mutex<(Duration, Arc<AwsCredential>)>,
}

impl ProfileCredentials {
    pub(super) fn new(profile: &Profile, clock: &Clock) -> Result<Self, String> {
        let keys = keys(&profile.values).ok_or_else(|| {
            format!(
                "the profile {} has no aws_access_key_id with aws_secret_access_key; other kinds of \
                 profiles are not supported: put keys into the environment, or use a role of the machine",
                profile.name
            )
        })?;
        let last = Mutex::new((clock.monotonic(), Arc::new(keys)));
        Ok(Self { profile: profile.clone(), clock: clock.clone(), last })
    }
}

fn keys(values: &BTreeMap<String, String>) -> Option<AwsCredential> {
    let value = |key: &str| values.get(key).filter(|value| !value.is_empty()).cloned();
    Some(AwsCredential {
        key_id: value("aws_access_key_id")?,
        secret_key: value("aws_secret_access_key")?,
        token: value("aws_session_token"),
    })
}

#[async_trait]
impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>, Error> {
        let now = self.clock.monotonic();
        let (read_at, known) = self.last.lock().clone();
        if now.saturating_sub(read_at) < KEYS_MAX_AGE {
            return Ok(known);
        }
        let (files, name) = (self.profile.files.clone(), self.profile.name.clone());
        let values = tokio::task::spawn_blocking(move || read(&files, &name)).await?;
        let keys = values.map(|values| keys(&values));
        let current = match keys {
            Ok(Some(keys)) => Arc::new(keys),
            // The file is being replaced, or gone; the keys may be valid still.
            Ok(None) | Err(_) => known,
        };
        *self.last.lock() = (now, Arc::clone(&current));
        Ok(current)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::CredentialProvider;

    use super::{Profile, ProfileCredentials};
    use weir_base::clock::{Clock, UnixMicros};
    use weir_base::config::bucket::AwsVariables;

    const CONFIG: &str = "[default]\nregion = eu-west-1\n# comment\n[profile ana]\nRegion=us-west-2\n\
        s3 =\n  addressing_style = path\nendpoint_url = https://s3.example.com\n[profile sso]\nsso_session = x\n";
    const CREDENTIALS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key = B\n\n\
        [ana]\naws_access_key_id=C\naws_secret_access_key=D=\naws_session_token=E\n";

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/config"), CONFIG).unwrap();
        std::fs::write(home.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        home
    }

    fn find(home: &tempfile::TempDir, name: Option<&str>) -> Result<Option<Profile>, String> {
        let named: Vec<_> = name.map(|name| ("AWS_PROFILE", name)).into_iter().collect();
        Profile::find(&AwsVariables::new(&named, Some(home.path().to_path_buf())))
    }

    #[tokio::test]
    async fn profiles_have_regions_endpoints_and_keys() {
        let home = home();
        let clock = Clock::test(UnixMicros(0));
        for (name, region, endpoint, keys) in [
            (None, Some("eu-west-1"), None, Some(("A", "B", None))),
            (Some("default"), Some("eu-west-1"), None, Some(("A", "B", None))),
            (
                Some("ana"),
                Some("us-west-2"),
                Some("https://s3.example.com"),
                Some(("C", "D=", Some("E"))),
            ),
            (Some("sso"), None, None, None),
        ] {
            let profile = find(&home, name).unwrap().unwrap();
            assert_eq!(profile.value("region"), region, "{name:?}");
            assert_eq!(profile.value("endpoint_url"), endpoint, "{name:?}");
            assert_eq!(profile.value("addressing_style"), None, "{name:?}: of a nested section");
            let credentials = ProfileCredentials::new(&profile, &clock);
            let Some((id, secret, token)) = keys else {
                assert!(
                    credentials.unwrap_err().contains("the profile sso has no aws_access_key_id")
                );
                continue;
            };
            let found = credentials.unwrap().get_credential().await.unwrap();
            assert_eq!(
                (&*found.key_id, &*found.secret_key, found.token.as_deref()),
                (id, secret, token)
            );
        }
        assert_eq!(find(&home, Some("bob")).unwrap_err(), "AWS_PROFILE: there is no profile bob");
        assert!(find(&tempfile::tempdir().unwrap(), None).unwrap().is_none());
    }

    #[tokio::test]
    async fn renewed_keys_are_read_again() {
        let home = home();
        let clock = Clock::test(UnixMicros(0));
        let profile = find(&home, None).unwrap().unwrap();
        let credentials = ProfileCredentials::new(&profile, &clock).unwrap();
        let path = home.path().join(".aws/credentials");
        std::fs::write(&path, CREDENTIALS.replace("= A", "= F")).unwrap();
        let key = async || credentials.get_credential().await.unwrap().key_id.clone();
        assert_eq!(key().await, "A");
        clock.advance(Duration::from_secs(61));
        assert_eq!(key().await, "F");
        std::fs::remove_file(path).unwrap();
        clock.advance(Duration::from_secs(61));
        assert_eq!(key().await, "F", "the last that are known");
    }
}
