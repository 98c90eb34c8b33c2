//! Flag request and response shapes of `/decide` and `/flags`, all supported versions.
//!
//! Shapes that SDKs of the last ten years send and read: [`request`] and [`response`]. Here is what both
//! share: the endpoint and the query, which select the shape of the response. No evaluation rules.

pub mod request;
pub mod response;
pub mod runtime;

use form_urlencoded::parse;

/// The endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/decide`, of SDKs until 2025.
    Decide,
    /// `/flags`, of SDKs since.
    Flags,
}

/// The shape of the flags in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// decide 1: a list of the keys of enabled flags.
    EnabledKeys,
    /// decide 2: a map of enabled flags.
    EnabledValues,
    /// decide 3, flags 1: a map of all flags, and a map of payloads.
    Values,
    /// decide 4, flags 2 and above: a map of records with reasons.
    Records,
}

/// The parsed query of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The shape of the flags.
    pub shape: Shape,
    /// Whether the response contains the remote configuration for the start of an SDK.
    pub with_config: bool,
    /// The token, if the query has one.
    pub token: Option<String>,
    /// `only_evaluate_survey_feature_flags`.
    pub surveys_only: bool,
    /// `only_use_override_person_properties`: stored properties are not used.
    pub supplied_only: bool,
    /// `detailed_analysis`: the response contains every step of every evaluation.
    pub detailed: bool,
}

impl Query {
    /// Reads the query of a URL, without the question mark.
    ///
    /// On `/decide`, a missing or non-numeric version is version 1. On `/flags`, a request with neither a
    /// version nor `config` gets version 2 with the configuration.
    pub fn parse(endpoint: Endpoint, query: &str) -> Self {
        let mut version = None;
        let mut config = None;
        let mut token = None;
        let mut surveys_only = false;
        let mut supplied_only = false;
        let mut detailed = false;
        for (key, value) in parse(query.as_bytes()) {
            match &*key {
                "v" => version = Some(value.parse().unwrap_or(1)),
                "config" => config = Some(is_true(&value)),
                "token" | "api_key" => token = Some(value.into_owned()),
                "only_evaluate_survey_feature_flags" => surveys_only = is_true(&value),
                "detailed_analysis" => detailed = is_true(&value),
                "only_use_override_person_properties" => supplied_only = is_true(&value),
                _ => {}
            }
        }
        let (shape, with_config) = match endpoint {
            Endpoint::Decide => (decide_shape(version), true),
            Endpoint::Flags => flags_shape(version, config),
        };
        let token = token.filter(|token| !token.is_empty());
        Self { endpoint, shape, with_config, token, surveys_only, supplied_only, detailed }
    }
}

fn decide_shape(version: Option<i64>) -> Shape {
    match version {
        Some(2) => Shape::EnabledValues,
        Some(3) => Shape::Values,
        Some(4..) => Shape::Records,
        _ => Shape::EnabledKeys,
    }
}

fn flags_shape(version: Option<i64>, config: Option<bool>) -> (Shape, bool) {
    match (version, config) {
        (None, None) => (Shape::Records, true),
        (Some(2..), config) => (Shape::Records, config == Some(true)),
        (_, config) => (Shape::Values, config == Some(true)),
    }
}

/// A key without a value counts as true.
fn is_true(value: &str) -> bool {
    matches!(value, "" | "1") || value.eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests;
