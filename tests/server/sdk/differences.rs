//! Allowed differences between stored events or persons and the calls to an SDK: the only list of
//! them.
//!
//! [`ADDED`] are properties that SDKs add by themselves, as seen on the wire. The rest are rules of
//! the server.

use serde_json::Value;

use crate::sdk::stored::is_same;

/// Properties that SDKs add: (prefix of the driver's name, event or "" for every event, names). A
/// name that ends with `*` is a prefix.
const ADDED: &[(&str, &str, &[&str])] = &[
    // Of capture v1 the server writes them: they stand in a header there.
    ("", "", &["$lib", "$lib_version"]),
    ("python-3", "", &["$geoip_disable"]),
    ("python-5", "", &["$geoip_disable"]),
    ("python-7", "", &["$geoip_disable", "$is_server", "$os_distro"]),
    ("python-", "", &["$python_runtime", "$python_version", "$os", "$os_version"]),
    ("python-", "$exception", &["$exception_*"]),
    ("node-", "", &["$geoip_disable"]),
    ("node-5", "", &["$is_server"]),
    ("node-", "$exception", &["$exception_*"]),
    ("rust-", "", &["$is_server", "$os", "$os_version"]),
    // Of events with groups.
    ("rust-", "", &["$process_person_profile"]),
    ("rust-v0", "", &["$lib_version__major", "$lib_version__minor", "$lib_version__patch"]),
    ("rust-", "$exception", &["$exception_*", "$debug_images"]),
    ("", "$feature_flag_called", &["locally_evaluated", "$feature_flag_*", "$feature/*"]),
];

/// Event properties that are propagated to the person (PostHog's `eventToPersonProperties` and
/// campaign parameters).
const LIFTED: [&str; 44] = [
    "$app_build",
    "$app_name",
    "$app_namespace",
    "$app_version",
    "$browser",
    "$browser_version",
    "$device_type",
    "$current_url",
    "$pathname",
    "$os",
    "$os_name",
    "$os_version",
    "$referring_domain",
    "$referrer",
    "$screen_height",
    "$screen_width",
    "$viewport_height",
    "$viewport_width",
    "$raw_user_agent",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_content",
    "utm_name",
    "utm_term",
    "gclid",
    "gad_source",
    "gclsrc",
    "dclid",
    "gbraid",
    "wbraid",
    "fbclid",
    "msclkid",
    "twclid",
    "li_fat_id",
    "mc_cid",
    "igshid",
    "ttclid",
    "rdt_cid",
    "irclid",
    "_kx",
    "epik",
    "qclid",
    "sccid",
];

/// Properties of a person that no call sets: initial values of propagated properties (browsers send
/// some of them themselves), and the event that created the person.
const OF_PERSONS: [&str; 2] = ["$initial_*", "$creator_event_uuid"];

/// Whether an SDK adds this property to this event.
pub(super) fn is_added(who: &str, event: &str, name: &str) -> bool {
    ADDED.iter().any(|(driver, of_event, names)| {
        who.starts_with(driver)
            && (of_event.is_empty() || *of_event == event)
            && names.iter().any(|added| matches(added, name))
    })
}

/// Whether a person may have this property although no call sets it.
pub(super) fn is_of_persons(name: &str) -> bool {
    LIFTED.contains(&name) || OF_PERSONS.iter().any(|known| matches(known, name))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Compares a property of a call with the stored one. `row` is the whole event.
pub(super) fn check_given(
    name: &str,
    given: &Value,
    row: &Value,
    stored: &Value,
) -> Result<(), String> {
    let found = &stored[name];
    match name {
        // The column has the clicked elements.
        "$elements_chain" if given.is_string() && row["elements_chain"] == *given => return Ok(()),
        "$elements" if row["elements_chain"].is_string() => return Ok(()),
        // True is what every event is.
        "$process_person_profile" if *given == true && found.is_null() => return Ok(()),
        // An event without a person, or about a group, says nothing of a person.
        "$set" | "$set_once" | "$unset" if says_nothing(row, stored) => {
            return match stored.get(name) {
                None => Ok(()),
                Some(found) => Err(format!("{name} is {found} and should be gone")),
            };
        }
        _ => {}
    }
    if is_same(given, found) && stored.get(name).is_some() {
        return Ok(());
    }
    Err(format!("{name} is {found} instead of {given}"))
}

/// Checks a property that no call sets.
pub(super) fn check_new(who: &str, name: &str, row: &Value, stored: &Value) -> Result<(), String> {
    let event = row["event"].as_str().unwrap_or_default();
    if is_added(who, event, name) {
        return Ok(());
    }
    match name {
        // As in the columns.
        "$ip" if row["ip"] == stored[name] => Ok(()),
        "$group_0" | "$group_1" | "$group_2" | "$group_3" | "$group_4"
            if row[name.trim_start_matches('$')] == stored[name] =>
        {
            Ok(())
        }
        _ => Err(format!("{name} is {} and was not given", stored[name])),
    }
}

/// Whether an event sets no property of a person.
fn says_nothing(row: &Value, stored: &Value) -> bool {
    stored["$process_person_profile"] == false || row["event"] == "$groupidentify"
}

/// Checks what the server always adds and removes.
pub(super) fn check_rules(row: &Value, stored: &Value) -> Result<(), String> {
    for name in ["$elements_chain", "$elements"] {
        if stored.get(name).is_some() {
            return Err(format!("{name} stands in the properties"));
        }
    }
    if stored["$process_person_profile"] == true {
        return Err("$process_person_profile is what it always is".to_owned());
    }
    if row["ip"] != stored["$ip"] {
        return Err("the address is not in the properties".to_owned());
    }
    for index in 0..5 {
        if row[format!("group_{index}")] != stored[format!("$group_{index}")] {
            return Err(format!("group {index} is not in the properties"));
        }
    }
    Ok(())
}

/// Properties that a person has because of this event.
pub(super) fn lifted(row: &Value, stored: &Value) -> Vec<String> {
    // These say nothing of persons that are there, or only of those.
    let timid = ["$exception", "$$heatmap", "$feature_flag_called", "$snapshot"];
    if says_nothing(row, stored) || timid.iter().any(|event| row["event"] == *event) {
        return Vec::new();
    }
    let mut names = Vec::new();
    for name in LIFTED {
        // Of a server, the system is not the person's; `$os_name` is another name of `$os`.
        let is_system = matches!(name, "$os" | "$os_version") && stored["$is_server"] == true;
        let Some(value) = stored.get(name).filter(|_| !is_system && name != "$os_name") else {
            continue;
        };
        names.push(name.to_owned());
        if !value.is_null() {
            names.push(format!("$initial_{}", name.strip_prefix('$').unwrap_or(name)));
        }
    }
    names
}
