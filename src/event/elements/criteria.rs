//! What the elements of an event must have, as a step of an action asks for it: [`Criteria`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::elements::Element;
use crate::elements::selector::Selector;
use crate::pattern;
use crate::pattern::Pattern;

/// What the elements of an event must have; each criterion must be met by one of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Criteria {
    /// The name of a tag, in any case.
    pub tag: Option<String>,
    /// A selector.
    pub selector: Option<Selector>,
    /// What the text of an element matches.
    #[serde(with = "pattern::as_text_if_any")]
    pub text: Option<Arc<Pattern>>,
    /// What the link of an element matches.
    #[serde(with = "pattern::as_text_if_any")]
    pub href: Option<Arc<Pattern>>,
}

impl Criteria {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        let Self { tag, selector, text, href } = self;
        tag.is_none() && selector.is_none() && text.is_none() && href.is_none()
    }

    /// Their patterns.
    pub fn patterns(&self) -> impl Iterator<Item = &Arc<Pattern>> {
        self.text.iter().chain(&self.href)
    }

    /// Whether the elements of an event meet all of them. Different elements may: the text is often that of a child of
    /// the link.
    pub fn are_met_by(&self, elements: &[Element<'_>]) -> bool {
        let has = |name: &str, pattern: &Pattern| {
            let mut values = elements.iter().flat_map(|element| element.values(name));
            values.any(|value| pattern.is_match(value).unwrap_or(false))
        };
        let is_tag =
            |tag: &String| elements.iter().any(|element| element.tag.eq_ignore_ascii_case(tag));
        self.tag.as_ref().is_none_or(is_tag)
            && self.selector.as_ref().is_none_or(|selector| selector.matches(elements))
            && self.text.as_ref().is_none_or(|text| has("text", text))
            && self.href.as_ref().is_none_or(|href| has("href", href))
    }
}
