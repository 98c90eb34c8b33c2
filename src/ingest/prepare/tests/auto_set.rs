//! Auto-set properties: in the ops, and not twice in the stored event.

use super::oracle::KNOWN;
use super::people::ops;
use super::*;
use weir_identity::auto_set::AutoSet;

fn stored(prepared: &Prepared) -> Json {
    serde_json::from_str(&text(prepared, 0, "properties")).unwrap()
}

/// Section 3.6 of the contract, key by key.
#[test]
fn every_known_property_is_auto_set() {
    for key in KNOWN.split_whitespace().filter(|key| *key != "$os_name") {
        let prepared = with_properties(&format!(r#""{key}":["v",1]"#));
        let initial = format!("$initial_{}", key.replacen('$', "", 1));
        assert_eq!(stored(&prepared), json!({key: ["v", 1]}));
        let expected = format!(r#"u1: update {{"{key}":["v",1]}} {{"{initial}":["v",1]}} []"#);
        assert_eq!(ops(&prepared), [expected]);
    }
    for key in ["$host", "$lib", "$initial_os", "utm", "price"] {
        let prepared = with_properties(&format!(r#""{key}":1"#));
        assert_eq!(ops(&prepared), ["u1: touch"], "{key}");
    }
}

#[test]
fn what_the_sender_says_itself_is_not_auto_set() {
    for (event, properties, expected) in [
        (
            r#""event":"e""#,
            r#"{"$os":"a","$browser":"b","$set":{"$os":"x","y":0},"$set_once":{"$initial_browser":"z"}}"#,
            json!({"$set": {"$os": "x", "y": 0, "$browser": "b"},
                   "$set_once": {"$initial_browser": "z", "$initial_os": "a"}}),
        ),
        (
            r#""event":"e","$set":{"$os":"top"},"$set_once":{"$initial_os":null}"#,
            r#"{"$os":"a","$set":{"$os":"below"}}"#,
            json!({"$set": {"$os": "top"}, "$set_once": {"$initial_os": null}}),
        ),
        // Null is a value for `$set`, but not for `$set_once`.
        (r#""event":"e""#, r#"{"utm_source":null}"#, json!({"$set": {"utm_source": null}})),
        (
            r#""event":"e""#,
            r#"{"utm_source":null,"$os":"a"}"#,
            json!({"$set": {"utm_source": null, "$os": "a"}, "$set_once": {"$initial_os": "a"}}),
        ),
        // A malformed object is replaced.
        (
            r#""event":"e""#,
            r#"{"$os":"a","$set":"text","$set_once":[1]}"#,
            json!({"$set": {"$os": "a"}, "$set_once": {"$initial_os": "a"}}),
        ),
        // If a name occurs twice, the last value counts.
        (
            r#""event":"e""#,
            r#"{"$browser":"x","$browser":"y"}"#,
            json!({"$set": {"$browser": "y"}, "$set_once": {"$initial_browser": "y"}}),
        ),
        // A server's operating system is not the person's.
        (
            r#""event":"e""#,
            r#"{"$is_server":true,"$os":"a","$os_version":"1","$browser":"b"}"#,
            json!({"$set": {"$browser": "b"}, "$set_once": {"$initial_browser": "b"}}),
        ),
        (
            r#""event":"e""#,
            r#"{"$is_server":false,"$os":"a"}"#,
            json!({"$set": {"$os": "a"}, "$set_once": {"$initial_os": "a"}}),
        ),
        // Another name of `$os`.
        (
            r#""event":"e""#,
            r#"{"$os_name":"n"}"#,
            json!({"$os": "n", "$set": {"$os": "n"}, "$set_once": {"$initial_os": "n"}}),
        ),
        (
            r#""event":"e""#,
            r#"{"$os_name":"n","$os":"a"}"#,
            json!({"$set": {"$os": "a"}, "$set_once": {"$initial_os": "a"}}),
        ),
        (r#""event":"$snapshot""#, r#"{"$os":"a"}"#, json!({})),
        (r#""event":"e""#, r#"{"$os":"a","$process_person_profile":false}"#, json!({})),
        (r#""event":"$groupidentify""#, r#"{"$os":"a","$set":{"x":1}}"#, json!({})),
    ] {
        let prepared = one(&format!(r#"{event},"distinct_id":"u","properties":{properties}"#));
        let stored = stored(&prepared);
        let sent: Json = serde_json::from_str(properties).unwrap();
        // `$os` is filled in.
        let os = sent.get("$os").or(expected.get("$os")).unwrap_or(&Json::Null);
        assert_eq!(&stored["$os"], os, "{event} {properties}");
        let own = |key: &str| !stored[key].to_string().contains("\"b\"");
        assert!(own("$set") && own("$set_once"), "{event} {properties}");
        let said = prepared.ops.iter().find_map(|op| match &op.kind {
            OpKind::Update(_) => Some(ops(&prepared)[0].clone()),
            _ => None,
        });
        let of = |key: &str| expected.get(key).cloned().unwrap_or_else(|| json!({}));
        let silent = of("$set") == json!({}) && of("$set_once") == json!({});
        let expected_op = format!("u: update {} {} []", of("$set"), of("$set_once"));
        assert_eq!(said, (!silent).then_some(expected_op), "{event} {properties}");
    }
}

/// Values are read from where they were written, whatever white space and escapes are around.
#[test]
fn auto_set_values_are_those_of_the_body() {
    let prepared = with_properties(
        "\"x\" : 1 ,\"\\u0024os\" :\t\"caf\\u00e9 \\\"\" , \"$screen_width\" : 1.50e2\n, \"y\":[ 2 ] ",
    );
    assert_eq!(
        text(&prepared, 0, "properties"),
        "{\"x\" : 1 ,\"\\u0024os\" :\t\"caf\\u00e9 \\\"\" , \"$screen_width\" : 1.50e2\n, \"y\":[ 2 ] }"
    );
    let OpKind::Update(update) = &prepared.ops[0].kind else { panic!("{:?}", prepared.ops) };
    let values = update.auto_set.iter().flatten().flat_map(AutoSet::read);
    let values: Vec<_> = values.map(|(.., value)| value).collect();
    assert_eq!(values, [json!("caf\u{e9} \""), json!(150.0)]);
}
