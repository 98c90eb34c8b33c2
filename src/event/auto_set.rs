//! Properties of events that become properties of the person too: browser, device, page, campaign.
//! Each sets the property of its name, and once the property of its first value. The names and their
//! selection are PostHog's.

/// Keys of a property: the one for `$set`, and the one for `$set_once`.
pub type Names = (&'static str, &'static str);

/// Name of each property, and name of its first value: `$initial_` and the name without its `$`.
/// Each has one bit of a `u64`.
pub const AUTO_SET: &[Names; 44] = &[
    ("$os", "$initial_os"),
    ("$os_name", "$initial_os_name"),
    ("$os_version", "$initial_os_version"),
    ("$app_build", "$initial_app_build"),
    ("$app_name", "$initial_app_name"),
    ("$app_namespace", "$initial_app_namespace"),
    ("$app_version", "$initial_app_version"),
    ("$browser", "$initial_browser"),
    ("$browser_version", "$initial_browser_version"),
    ("$device_type", "$initial_device_type"),
    ("$current_url", "$initial_current_url"),
    ("$pathname", "$initial_pathname"),
    ("$referring_domain", "$initial_referring_domain"),
    ("$referrer", "$initial_referrer"),
    ("$screen_height", "$initial_screen_height"),
    ("$screen_width", "$initial_screen_width"),
    ("$viewport_height", "$initial_viewport_height"),
    ("$viewport_width", "$initial_viewport_width"),
    ("$raw_user_agent", "$initial_raw_user_agent"),
    ("utm_source", "$initial_utm_source"),
    ("utm_medium", "$initial_utm_medium"),
    ("utm_campaign", "$initial_utm_campaign"),
    ("utm_content", "$initial_utm_content"),
    ("utm_name", "$initial_utm_name"),
    ("utm_term", "$initial_utm_term"),
    ("gclid", "$initial_gclid"),
    ("gad_source", "$initial_gad_source"),
    ("gclsrc", "$initial_gclsrc"),
    ("dclid", "$initial_dclid"),
    ("gbraid", "$initial_gbraid"),
    ("wbraid", "$initial_wbraid"),
    ("fbclid", "$initial_fbclid"),
    ("msclkid", "$initial_msclkid"),
    ("twclid", "$initial_twclid"),
    ("li_fat_id", "$initial_li_fat_id"),
    ("mc_cid", "$initial_mc_cid"),
    ("igshid", "$initial_igshid"),
    ("ttclid", "$initial_ttclid"),
    ("rdt_cid", "$initial_rdt_cid"),
    ("irclid", "$initial_irclid"),
    ("_kx", "$initial__kx"),
    ("epik", "$initial_epik"),
    ("qclid", "$initial_qclid"),
    ("sccid", "$initial_sccid"),
];

/// Whether a property is auto-set only from events of servers (`true`) or only from others (`false`);
/// `None` if from all. A server's operating system is not the person's, and in other events `$os_name`
/// is another name of `$os`.
pub fn is_of_server(key: &str) -> Option<bool> {
    match key {
        "$os" | "$os_version" => Some(false),
        "$os_name" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::AUTO_SET;

    #[test]
    fn initial_names_follow_from_the_names() {
        for (key, initial) in AUTO_SET {
            assert_eq!(*initial, format!("$initial_{}", key.replacen('$', "", 1)));
        }
        assert!(AUTO_SET.len() <= 64, "one bit each");
    }
}
