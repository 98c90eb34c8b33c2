//! Evaluation runtime of a flag request, if the SDK does not send it: guessed from the headers.

/// Substrings of user agents of server SDKs; in lower case.
const SERVERS: [&str; 14] = [
    "posthog-python",
    "posthog-ruby",
    "posthog-php",
    "posthog-java",
    "posthog-go",
    "posthog-node",
    "posthog-dotnet",
    "posthog-elixir",
    "posthog-rs",
    "posthog-rust",
    "posthog-server",
    "python-requests",
    "python-urllib",
    "curl",
];

/// Substrings of user agents of browsers and app SDKs; in lower case.
const CLIENTS: [&str; 8] = [
    "mozilla",
    "posthog-js",
    "posthog-ios",
    "posthog-android",
    "posthog-flutter",
    "posthog-react-native",
    "okhttp",
    "cfnetwork",
];

/// Headers that only browsers send.
pub const BROWSER_HEADERS: [&str; 4] = ["origin", "referer", "sec-fetch-mode", "sec-fetch-site"];

/// `server` or `client`; `all` if unknown, which selects the flags that are for both.
pub fn guess(user_agent: Option<&str>, has_browser_header: impl FnOnce() -> bool) -> &'static str {
    let agent = user_agent.unwrap_or_default().to_ascii_lowercase();
    let is_any = |names: &[&str]| names.iter().any(|name| agent.contains(name));
    if is_any(&SERVERS) {
        return "server";
    }
    if is_any(&CLIENTS) || has_browser_header() { "client" } else { "all" }
}

#[cfg(test)]
mod tests {
    use super::guess;

    #[test]
    fn sdks_are_known_by_their_user_agents() {
        for (agent, has_browser_header, expected) in [
            (Some("posthog-python/7.91.1"), false, "server"),
            (Some("posthog-node/5.70.0"), false, "server"),
            (Some("curl/8.5.0"), false, "server"),
            (Some("Mozilla/5.0 (X11; Linux x86_64)"), false, "client"),
            (Some("posthog-ios/3.0"), false, "client"),
            (None, true, "client"),
            (Some("something"), false, "all"),
            (None, false, "all"),
        ] {
            assert_eq!(guess(agent, || has_browser_header), expected, "{agent:?}");
        }
    }
}
