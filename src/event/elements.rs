//! The elements of a page that an event refers to, innermost first, parsed from the event's elements chain
//! ([`elements`]): `button.big:text="Buy"nth-child="1";div.shop:attr__id="x"`. `selector` matches them by CSS
//! selectors, `criteria` by what actions ask for.

use std::borrow::Cow;

pub mod criteria;
pub mod selector;

/// An element of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element<'c> {
    /// The name of its tag.
    pub tag: &'c str,
    /// The parts between the dots after its tag: its classes, unless these contain dots themselves; see
    /// [`Element::class_list`].
    pub classes: Vec<&'c str>,
    /// Its attributes, as the chain names them: `text`, `href`, `nth-child`, `nth-of-type`, `attr_id`, and all
    /// others with `attr__` before their name.
    pub attributes: Vec<(&'c str, Cow<'c, str>)>,
}

impl<'c> Element<'c> {
    /// The values of an attribute, by its name in the page or in the chain.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let is_it = move |own: &str| match own.strip_prefix("attr__") {
            Some(own) => own == name,
            None => own == name || (own == "attr_id" && name == "id"),
        };
        self.attributes.iter().filter(move |(own, _)| is_it(own)).map(|(_, value)| value.as_ref())
    }

    /// Its classes. In the chain they are separated by dots, so those with dots of their own (`py-2.5`) are in pieces
    /// there; if the chain also has the `class` attribute, they are whole here.
    pub fn class_list(&self) -> Vec<&str> {
        match self.whole_classes() {
            Some(whole) => whole.split_ascii_whitespace().collect(),
            None => self.classes.clone(),
        }
    }

    /// Whether it has a class.
    pub fn has_class(&self, class: &str) -> bool {
        if let Some(whole) = self.whole_classes() {
            return whole.split_ascii_whitespace().any(|own| own == class);
        }
        let pieces: Vec<&str> = class.split('.').collect();
        self.classes.windows(pieces.len()).any(|own| own == pieces)
    }

    fn whole_classes(&self) -> Option<&str> {
        let (_, value) = self.attributes.iter().find(|(name, _)| *name == "attr__class")?;
        Some(value.as_ref()).filter(|value| !value.trim_ascii().is_empty())
    }

    /// Reads an element from the start of `chain`, and the `;` after it; returns it with the rest.
    fn read(chain: &'c str) -> (Self, &'c str) {
        let mut characters = chain.char_indices();
        let (names, mut rest) = match characters.find(|(at, c)| is_end_of_names(chain, *at, *c)) {
            Some((at, _)) => chain.split_at(at),
            None => (chain, ""),
        };
        let mut names = names.split('.');
        let tag = names.next().unwrap_or_default();
        let classes = names.filter(|class| !class.is_empty()).collect();
        let mut attributes = Vec::new();
        rest = rest.strip_prefix(':').unwrap_or(rest);
        while !rest.is_empty() && !rest.starts_with(';') {
            let Some((name, after)) = rest.split_once("=\"") else {
                return (Self { tag, classes, attributes }, "");
            };
            let (value, after) = quoted(after);
            attributes.push((name, value));
            rest = after;
        }
        (Self { tag, classes, attributes }, rest.strip_prefix(';').unwrap_or(rest))
    }
}

/// The elements of a chain.
pub fn elements(chain: &str) -> Vec<Element<'_>> {
    let mut elements = Vec::new();
    let mut rest = chain;
    while !rest.is_empty() {
        let (element, after) = Element::read(rest);
        elements.push(element);
        rest = after;
    }
    elements
}

/// Whether the tag and the classes end here: at the end of the element, or at its attributes. Classes may contain `:`,
/// too, but not one that the name of an attribute follows.
fn is_end_of_names(chain: &str, at: usize, character: char) -> bool {
    let is_attribute = || {
        let after = chain.get(at + 1..).unwrap_or_default();
        let is_of_name =
            |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
        after.trim_start_matches(is_of_name).starts_with("=\"")
    };
    character == ';' || (character == ':' && is_attribute())
}

/// A value up to its closing quote, and the rest after it.
fn quoted(text: &str) -> (Cow<'_, str>, &str) {
    let mut is_escaped = false;
    let end = text.char_indices().find(|(_, character)| {
        let is_end = *character == '"' && !is_escaped;
        is_escaped = *character == '\\';
        is_end
    });
    let (value, rest) = match end {
        Some((at, _)) => {
            (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default())
        }
        None => (text, ""),
    };
    match value.contains("\\\"") {
        true => (Cow::Owned(value.replace("\\\"", "\"")), rest),
        false => (Cow::Borrowed(value), rest),
    }
}

#[cfg(test)]
mod tests {
    use super::elements;

    #[test]
    fn chains_are_read() {
        let chain = concat!(
            r#"span:nth-child="1"nth-of-type="2"text="a;b \"c\" .d:e=f""#,
            r#";a.btn.hover:blue.big:attr__href="/x?y=z"attr_id="go"href="/x?y=z""#,
            ";body;",
            r#":text="""#,
        );
        let found = elements(chain);
        let shown: Vec<_> =
            found.iter().map(|element| (element.tag, element.classes.join(" "))).collect();
        let expected = [("span", ""), ("a", "btn hover:blue big"), ("body", ""), ("", "")];
        assert_eq!(shown, expected.map(|(tag, classes)| (tag, classes.to_owned())));
        let values = |at: usize, name: &str| found[at].values(name).collect::<Vec<_>>();
        assert_eq!(values(0, "nth-of-type"), ["2"]);
        assert_eq!(values(0, "text"), [r#"a;b "c" .d:e=f"#]);
        assert_eq!(values(1, "href"), ["/x?y=z", "/x?y=z"]);
        assert_eq!(values(1, "id"), ["go"]);
        assert_eq!(values(3, "text"), [""]);
        assert_eq!(values(1, "class"), [""; 0]);
    }

    #[test]
    fn classes_may_have_dots() {
        let whole = concat!(
            r#"div.5.5rem].border-[1.5px].foo.gap-1.m.md:w-1/2.py-2.text-[1.x:"#,
            r#"attr__class="py-2.5 gap-1.5 text-[1.5rem] border-[1.5px] m.x md:w-1/2 foo"nth-child="1""#,
        );
        let pieces = r#"div.py-2.5.m:attr__class=" "nth-child="1""#;
        let quoted = r#"div.a"b:attr__class="content-[\"x\"] p-0.5""#;
        for (chain, class, expected) in [
            (whole, "py-2.5", true),
            (whole, "gap-1.5", true),
            (whole, "text-[1.5rem]", true),
            (whole, "border-[1.5px]", true),
            (whole, "m.x", true),
            (whole, "foo", true),
            (whole, "md:w-1/2", true),
            (whole, "py-2", false),
            (whole, "5", false),
            (whole, "m", false),
            // Without the attribute it is unknown which dots belong to a class.
            (pieces, "py-2.5", true),
            (pieces, "py-2", true),
            (pieces, "2.5", false),
            (pieces, "m.py-2", false),
            (quoted, "content-[\"x\"]", true),
            (quoted, "p-0.5", true),
            (quoted, "p-0", false),
        ] {
            assert_eq!(elements(chain)[0].has_class(class), expected, "{class} {chain}");
        }
        assert_eq!(elements(pieces)[0].class_list(), ["py-2", "5", "m"]);
        assert_eq!(elements(quoted)[0].class_list(), ["content-[\"x\"]", "p-0.5"]);
    }

    #[test]
    fn anything_can_be_read() {
        for chain in [
            "",
            ";",
            ";;",
            ":",
            "a:",
            "a:b",
            "a:b=",
            "a:b=\"",
            "a:b=\"\\",
            "a=\"",
            "é.ü:ö=\"ß",
            "a:b=\"c\"d",
        ] {
            let _ = elements(chain);
        }
        assert_eq!(elements("").len(), 0);
        assert_eq!(elements("a;b:x=\"1\";c").len(), 3);
    }
}
