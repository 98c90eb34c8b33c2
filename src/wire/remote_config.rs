//! Remote configuration that SDKs request at their start: [`RemoteConfig`]. The only list of its keys,
//! for `/array/<token>/config`, for its script, for `/flags` with `config=true`, and for `/decide`.
//!
//! It describes this server: no session recordings, no surveys, no other extras, events at the usual
//! path. posthog-js and the mobile SDKs disable what is `false` here, so that they do not send data
//! that the server would not store.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The path to which browsers send events from then on; PostHog's servers return the same.
const CAPTURE_PATH: &str = "/i/v0/e/";

/// Compressions that current SDKs may use. Without `gzip-js` browsers send plain JSON, which costs
/// them a preflight request.
const COMPRESSION: &[&str] = &["gzip", "gzip-js"];

/// Compressions for `/decide`: `lz64` makes SDKs from before 2021 use that compression, which capture
/// can decode.
const COMPRESSION_OF_DECIDE: &[&str] = &["gzip", "gzip-js", "lz64"];

/// Disabled features, one key each. They could be absent, but for `autocapture_opt_out`: without it a
/// browser captures no clicks at its first visit. There is no key for surveys: posthog-js loads its
/// script for them if the key exists, whatever its value.
const OFF: [&str; 8] = [
    "sessionRecording",
    "heatmaps",
    "capturePerformance",
    "captureDeadClicks",
    "autocaptureExceptions",
    "autocapture_opt_out",
    "productTours",
    "conversations",
];

/// The values that the configuration depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteConfig {
    /// Whether the project has any flags. Browsers do not request flags if it has none.
    pub has_flags: bool,
    /// The generation of the requesting SDK.
    pub asker: Asker,
}

/// Generation of a requesting SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// SDKs that use `/flags` and `/array`.
    Current,
    /// SDKs that use `/decide`.
    Decide,
}

#[derive(Serialize)]
struct Endpoint {
    endpoint: &'static str,
}

#[derive(Serialize)]
struct CollectEverything {
    enable_collect_everything: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorTracking {
    autocapture_exceptions: bool,
    suppression_rules: [Value; 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Logs {
    capture_console_logs: bool,
}

impl RemoteConfig {
    /// Writes the keys into an object that the caller began.
    ///
    /// # Errors
    ///
    /// The errors of the serializer.
    pub fn write<M: SerializeMap>(self, object: &mut M) -> Result<(), M::Error> {
        let compression = match self.asker {
            Asker::Current => COMPRESSION,
            Asker::Decide => COMPRESSION_OF_DECIDE,
        };
        object.serialize_entry("supportedCompression", compression)?;
        object.serialize_entry("hasFeatureFlags", &self.has_flags)?;
        for key in OFF {
            object.serialize_entry(key, &false)?;
        }
        let errors = ErrorTracking { autocapture_exceptions: false, suppression_rules: [] };
        object.serialize_entry("errorTracking", &errors)?;
        object.serialize_entry("logs", &Logs { capture_console_logs: false })?;
        object.serialize_entry("analytics", &Endpoint { endpoint: CAPTURE_PATH })?;
        // Browsers then send clicks as one `$elements_chain` string instead of a list of objects.
        object.serialize_entry("elementsChainAsString", &true)?;
        object.serialize_entry("defaultIdentifiedOnly", &true)?;
        let sites: [Value; 0] = [];
        object.serialize_entry("siteApps", &sites)?;
        // For SDKs from before 2025.
        let all = CollectEverything { enable_collect_everything: true };
        object.serialize_entry("config", &all)?;
        object.serialize_entry("toolbarParams", &Map::new())?;
        object.serialize_entry("isAuthenticated", &false)?;
        if self.asker == Asker::Decide {
            object.serialize_entry("editorParams", &Map::new())?;
        }
        Ok(())
    }

    /// The body of `/array/<token>/config`.
    ///
    /// # Errors
    ///
    /// No data can cause one; the signature is serde's.
    pub fn json(self, token: &str) -> Result<String, serde_json::Error> {
        serde_json::to_string(&OfProject { token, config: self })
    }

    /// The body of `/array/<token>/config.js`: puts the configuration where posthog-js looks for it.
    ///
    /// # Errors
    ///
    /// No data can cause one; the signature is serde's.
    pub fn script(self, token: &str) -> Result<String, serde_json::Error> {
        let (name, config) = (serde_json::to_string(token)?, self.json(token)?);
        Ok(format!(
            "(function() {{\n  \
             window._POSTHOG_REMOTE_CONFIG = window._POSTHOG_REMOTE_CONFIG || {{}};\n  \
             window._POSTHOG_REMOTE_CONFIG[{name}] = {{config: {config}, siteApps: []}};\n\
             }})();\n"
        ))
    }
}

struct OfProject<'t> {
    token: &'t str,
    config: RemoteConfig,
}

impl Serialize for OfProject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("token", self.token)?;
        self.config.write(&mut object)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Asker, RemoteConfig};

    /// Keys by hand, from the type `RemoteConfig` of posthog-js.
    #[test]
    fn a_browser_learns_what_this_server_has() {
        for has_flags in [false, true] {
            let config = RemoteConfig { has_flags, asker: Asker::Current };
            let body: Value = serde_json::from_str(&config.json("phc_t").unwrap()).unwrap();
            assert_eq!(
                body,
                json!({
                    "token": "phc_t",
                    "supportedCompression": ["gzip", "gzip-js"],
                    "hasFeatureFlags": has_flags,
                    "sessionRecording": false,
                    "heatmaps": false,
                    "capturePerformance": false,
                    "captureDeadClicks": false,
                    "autocaptureExceptions": false,
                    "autocapture_opt_out": false,
                    "productTours": false,
                    "conversations": false,
                    "errorTracking": {"autocaptureExceptions": false, "suppressionRules": []},
                    "logs": {"captureConsoleLogs": false},
                    "analytics": {"endpoint": "/i/v0/e/"},
                    "elementsChainAsString": true,
                    "defaultIdentifiedOnly": true,
                    "siteApps": [],
                    "config": {"enable_collect_everything": true},
                    "toolbarParams": {},
                    "isAuthenticated": false,
                })
            );
        }
    }

    #[test]
    fn the_script_is_the_config_under_its_token_and_nothing_a_token_can_break() {
        let config = RemoteConfig { has_flags: true, asker: Asker::Current };
        for (token, name) in [("phc_t", r#"["phc_t"]"#), (r#"a"]=1;//\"#, r#"["a\"]=1;//\\"]"#)] {
            let script = config.script(token).unwrap();
            let (_, value) = script.split_once(&format!("{name} = {{config: ")).unwrap();
            let (value, rest) = value.split_once(", siteApps: []};").unwrap();
            assert_eq!(rest, "\n})();\n");
            assert_eq!(value, config.json(token).unwrap());
        }
    }
}
