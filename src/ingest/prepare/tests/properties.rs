//! Properties: columns of their own, and the stored JSON.

use super::*;
use crate::warnings::Kind;

#[test]
fn promoted_properties_have_columns_of_one_type() {
    let prepared = with_properties(
        r#""$current_url":"https://example.com/a/long/path","$os":"x","price":1.5,"revenue":-7,
           "$screen_width":18446744073709551615,"$is_server":true,"$is_identified":false,
           "$session_id":"a session id of more than twelve bytes","$window_id":"w",
           "utm_source":"caf\u00e9 with an escape, and long""#,
    );
    for (name, expected) in [
        ("p_$current_url", json!("https://example.com/a/long/path")),
        ("p_$os", json!("x")),
        ("p_price", json!(1.5)),
        ("p_revenue", json!(-7.0)),
        ("p_$screen_width", json!(18_446_744_073_709_551_615_f64)),
        ("p_$is_server", json!(true)),
        ("p_$is_identified", json!(false)),
        ("session_id", json!("a session id of more than twelve bytes")),
        ("window_id", json!("w")),
        ("p_utm_source", json!("caf\u{e9} with an escape, and long")),
        ("p_utm_medium", Json::Null),
        ("p_currency", Json::Null),
    ] {
        assert_eq!(cell(&prepared, 0, name), expected, "{name}");
    }
    let wrong = with_properties(
        r#""$current_url":7,"$os":null,"price":"1.5","revenue":true,"$is_server":"true",
           "$is_identified":1,"$session_id":5,"$window_id":{},"utm_source":["x"]"#,
    );
    let schema = events_schema();
    for field in schema.fields().iter().skip(column::SESSION_ID).filter(|field| field.is_nullable())
    {
        assert_eq!(cell(&wrong, 0, field.name()), Json::Null, "{}", field.name());
    }
}

/// Goal: values that SDKs regularly send are in the column, without a warning.
#[test]
fn verdicts_and_builds_are_text_whatever_they_are_sent_as() {
    for (value, expected, is_mismatch) in [
        ("true", json!("true"), false),
        ("false", json!("false"), false),
        (r#""blue""#, json!("blue"), false),
        ("42", json!("42"), false),
        ("-1.50", json!("-1.50"), false),
        ("null", Json::Null, false),
        ("[true]", Json::Null, true),
        ("{}", Json::Null, true),
    ] {
        for key in ["$feature_flag_response", "$app_build"] {
            let prepared = with_properties(&format!(r#""a":1,"{key}" : {value} ,"b":2"#));
            assert_eq!(cell(&prepared, 0, &format!("p_{key}")), expected, "{key}: {value}");
            let mut warned = prepared.warnings.counts().map(|(kind, _)| kind);
            let is_warned = warned.any(|kind| kind == Kind::PropertyTypeMismatch);
            assert_eq!(is_warned, is_mismatch, "{key}: {value}");
        }
        // Other text columns stay strict.
        let prepared = with_properties(&format!(r#""$os_version":{value}"#));
        let is_text = value.starts_with('"');
        let expected = if is_text { expected } else { Json::Null };
        assert_eq!(cell(&prepared, 0, "p_$os_version"), expected, "{value}");
    }
    let twice = with_properties(r#""$feature_flag_response":true,"$feature_flag_response":[]"#);
    assert_eq!(cell(&twice, 0, "p_$feature_flag_response"), Json::Null);
}

/// If a name occurs twice, the last value counts, as in every JSON parser.
#[test]
fn the_last_of_two_members_counts() {
    let prepared = with_properties(
        r#""$os":"first","$os":5,"price":"x","price":2,"$session_id":"s","$session_id":null"#,
    );
    assert_eq!(cell(&prepared, 0, "p_$os"), Json::Null);
    assert_eq!(cell(&prepared, 0, "p_price"), 2.0);
    assert_eq!(cell(&prepared, 0, "session_id"), Json::Null);
    let prepared = one(
        r#""event":"a","event":"b","distinct_id":"u","properties":{"$os":"first","$set":{"a":1}},"properties":{"price":1}"#,
    );
    assert_eq!(text(&prepared, 0, "event"), "b");
    assert_eq!(cell(&prepared, 0, "p_$os"), Json::Null);
    assert_eq!(cell(&prepared, 0, "p_price"), 1.0);
    assert_eq!(cell(&prepared, 0, "properties"), r#"{"price":1}"#);
    assert!(matches!(prepared.ops[0].kind, OpKind::Touch), "{:?}", prepared.ops);
}

#[test]
fn properties_are_stored_as_they_were_written() {
    for given in [
        "{}",
        "{ }",
        r#"{"a":1}"#,
        "{ \"b\" :\t[ 1 , 2.50 , 1E2 ] ,\n\"a\" : \"caf\\u00e9 \\/ \\\"\" }",
        "{\"\u{1f600}\":{\"deep\":[[[{}]]]},\"z\":null,\"a\":true,\"n\":123456789012345678901234567890}",
        r#"{"$set":{"a":1},"$ip":"127.0.0.1","$groups":{"unknown":"c"}}"#,
        r#"{"a":1,"a":2}"#,
    ] {
        for body in [
            format!(
                r#"{{"api_key":"phc_a","batch":[{{"event":"e","distinct_id":"u","properties":{given}}}]}}"#
            ),
            format!(
                r#"{{"batch" : [ {{"properties" : {given} , "event":"e","distinct_id":"u"}} ],"api_key":"phc_a"}}"#
            ),
        ] {
            assert_eq!(cell(&prepare(&body), 0, "properties"), given, "{body}");
        }
    }
    for absent in ["null", "\"text\"", "[1]", "7"] {
        let prepared = one(&format!(r#""event":"e","distinct_id":"u","properties":{absent}"#));
        assert_eq!(texts(&prepared, "properties"), ["{}"], "{absent}");
    }
}

#[test]
fn the_elements_chain_has_a_column_instead() {
    for (given, properties, chain) in [
        (r#""$elements_chain":"a:href=\"/x\"""#, "{}", json!("a:href=\"/x\"")),
        (
            r#""x":1,"$elements_chain":"button.one.two","y":[2]"#,
            r#"{"x":1,"y":[2]}"#,
            json!("button.one.two"),
        ),
        (
            r#""$elements":[{"tag_name":"a"}],"$elements_chain":"a long chain of elements","y" : 2"#,
            r#"{"y" : 2}"#,
            json!("a long chain of elements"),
        ),
        // Old SDKs send the elements themselves.
        (
            r#""$elements":[{"tag_name":"a","$el_text":"x"}],"$elements_chain":null,"y":2"#,
            r#"{"y":2}"#,
            json!(r#"a:nth-child="0"nth-of-type="0"text="x""#),
        ),
        (r#""$elements":[],"y":2"#, r#"{"y":2}"#, Json::Null),
        // A value that is neither is kept.
        (r#""$elements":"a""#, r#"{"$elements":"a"}"#, Json::Null),
        (r#""$elements_chain":null"#, r#"{"$elements_chain":null}"#, Json::Null),
    ] {
        let prepared = with_properties(given);
        assert_eq!(cell(&prepared, 0, "properties"), properties);
        assert_eq!(cell(&prepared, 0, "elements_chain"), chain);
    }
    let prepared =
        one(r#""event":"e","distinct_id":"u","$set":{"a":1},"properties":{"$elements":{}}"#);
    assert_eq!(cell(&prepared, 0, "properties"), r#"{"$elements":{},"$set":{"a":1}}"#);
}
