//! Decodes the elements chain of an event to the list of elements that PostHog's API has: [`body`].

use serde_json::{Map, Value, json};

use weir_event::elements::elements;

/// The elements of a chain, innermost first.
pub(super) fn body(chain: &str) -> Value {
    elements(chain)
        .iter()
        .zip(0..)
        .map(|(element, order): (_, usize)| {
            let mut known: Map<String, Value> = Map::new();
            let mut others: Map<String, Value> = Map::new();
            for (name, value) in &element.attributes {
                match *name {
                    "text" | "href" | "attr_id" => {
                        known.insert((*name).to_owned(), json!(value));
                    }
                    "nth-child" | "nth-of-type" => {
                        let number = value.parse::<i64>().ok();
                        known.insert(name.replace('-', "_"), json!(number));
                    }
                    "" => {}
                    other => {
                        others.insert(other.to_owned(), json!(value));
                    }
                }
            }
            let known = |name: &str| known.get(name).cloned().unwrap_or_default();
            json!({
                "event": null, "text": known("text"), "tag_name": element.tag,
                "attr_class": Some(element.class_list()).filter(|classes| !classes.is_empty()),
                "href": known("href"), "attr_id": known("attr_id"), "nth_child": known("nth_child"),
                "nth_of_type": known("nth_of_type"), "attributes": others, "order": order,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::body;

    #[test]
    fn elements_have_what_their_chain_says() {
        let chain = r#"a.btn.big:attr__data-x="1"attr_id="buy"href="/b"nth-child="2"nth-of-type="1"text="Buy";div"#;
        let none = json!({});
        let expected = json!([
            {"event": null, "text": "Buy", "tag_name": "a", "attr_class": ["btn", "big"], "href": "/b",
             "attr_id": "buy", "nth_child": 2, "nth_of_type": 1, "attributes": {"attr__data-x": "1"}, "order": 0},
            {"event": null, "text": null, "tag_name": "div", "attr_class": null, "href": null, "attr_id": null,
             "nth_child": null, "nth_of_type": null, "attributes": none, "order": 1},
        ]);
        assert_eq!(body(chain), expected);
        assert_eq!(body(""), json!([]));
    }
}
