//! CSS selectors on elements: [`Selector`]. Supports what an elements chain contains: tags, classes, ids, attributes,
//! `:nth-child(2)`, `:nth-of-type(2)`, descendants and children, and lists of these.

use std::str::Chars;

use serde::{Deserialize, Serialize};

use crate::elements::Element;

/// Longest selector, in characters.
const CHARS_MAX: usize = 1000;

/// Most hexadecimal digits of an escaped character, as in CSS.
const HEX_DIGITS_MAX: usize = 6;

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector(Vec<Path>);

/// Why a text is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// Compounds from the outermost to the innermost; each with whether it is the parent of the next one, not only an
/// ancestor.
type Path = Vec<(Compound, bool)>;

/// What one element must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Compound {
    tag: Option<String>,
    classes: Vec<String>,
    attributes: Vec<Attribute>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Attribute {
    name: String,
    test: Test,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Test {
    Present,
    Equal,
    /// One of the words of the value.
    Word,
    Start,
    End,
    Inside,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    ///
    /// It is malformed, too long, or selects by data that an elements chain does not have.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.chars().count() > CHARS_MAX {
            return Err(refused(format!("A selector has at most {CHARS_MAX} characters.")));
        }
        let mut reader = Reader { rest: text.trim() };
        let mut paths = vec![reader.path()?];
        while reader.take(",") {
            reader.spaces();
            paths.push(reader.path()?);
        }
        match reader.rest {
            "" => Ok(Self(paths)),
            rest => Err(unexpected(rest)),
        }
    }

    /// Whether it selects any of these elements: an element and its ancestors.
    pub fn matches(&self, elements: &[Element<'_>]) -> bool {
        self.0.iter().any(|path| is_in(path, elements))
    }
}

/// Whether the innermost compound of a path matches an element whose ancestors match the others. Goes from the outside
/// to the inside and keeps all possible positions, so the time is proportional to the product of both lengths.
fn is_in(path: &Path, elements: &[Element<'_>]) -> bool {
    let mut outer: Option<(Vec<bool>, bool)> = None;
    for (compound, is_parent) in path {
        let mut has_ancestor = false;
        let mut places = vec![false; elements.len()];
        for (at, element) in elements.iter().enumerate().rev() {
            let is_below = match &outer {
                None => true,
                Some((places, true)) => places.get(at + 1) == Some(&true),
                Some((_, false)) => has_ancestor,
            };
            if let Some(place) = places.get_mut(at) {
                *place = is_below && compound.matches(element);
            }
            has_ancestor |= outer.as_ref().is_some_and(|(places, _)| places.get(at) == Some(&true));
        }
        outer = Some((places, *is_parent));
    }
    outer.is_some_and(|(places, _)| places.contains(&true))
}

impl Compound {
    fn matches(&self, element: &Element<'_>) -> bool {
        self.tag.as_ref().is_none_or(|tag| tag.eq_ignore_ascii_case(element.tag))
            && self.classes.iter().all(|class| element.has_class(class))
            && self.attributes.iter().all(|attribute| {
                element
                    .values(&attribute.name)
                    .any(|value| attribute.test.holds(value, &attribute.value))
            })
    }
}

impl Test {
    fn holds(self, actual: &str, wanted: &str) -> bool {
        // As in CSS, no value contains an empty text.
        let is_any = !wanted.is_empty();
        match self {
            Self::Present => true,
            Self::Equal => actual == wanted,
            Self::Word => is_any && actual.split_ascii_whitespace().any(|word| word == wanted),
            Self::Start => is_any && actual.starts_with(wanted),
            Self::End => is_any && actual.ends_with(wanted),
            Self::Inside => is_any && actual.contains(wanted),
        }
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips white space; true if there was some.
    fn spaces(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_start();
        self.rest.len() < before
    }

    fn path(&mut self) -> Result<Path, SelectorError> {
        let mut path = Path::new();
        loop {
            let compound = self.compound()?;
            let has_space = self.spaces();
            if self.rest.is_empty() || self.rest.starts_with(',') {
                path.push((compound, false));
                return Ok(path);
            }
            let is_parent = self.take(">");
            if !is_parent && !has_space {
                return Err(unexpected(self.rest));
            }
            self.spaces();
            path.push((compound, is_parent));
        }
    }

    fn compound(&mut self) -> Result<Compound, SelectorError> {
        let before = self.rest.len();
        let mut compound = Compound::default();
        if !self.take("*") && self.rest.starts_with(is_of_name) {
            compound.tag = Some(self.name()?);
        }
        loop {
            if self.take(".") {
                compound.classes.push(self.name()?);
            } else if self.take("#") {
                let value = self.name()?;
                compound.attributes.push(Attribute {
                    name: "id".to_owned(),
                    test: Test::Equal,
                    value,
                });
            } else if self.take("[") {
                compound.attributes.push(self.attribute()?);
            } else if self.rest.starts_with(':') {
                compound.attributes.push(self.place()?);
            } else {
                break;
            }
        }
        if self.rest.len() == before {
            return Err(unexpected(self.rest));
        }
        Ok(compound)
    }

    /// A name; see [`escaped`] for a backslash.
    fn name(&mut self) -> Result<String, SelectorError> {
        let mut name = String::new();
        let mut characters = self.rest.chars();
        loop {
            let here = characters.as_str();
            match characters.next() {
                Some('\\') => name.extend(escaped(&mut characters)),
                Some(character) if is_of_name(character) => name.push(character),
                _ => {
                    self.rest = here;
                    break;
                }
            }
        }
        if name.is_empty() { Err(unexpected(self.rest)) } else { Ok(name) }
    }

    /// An attribute after its opening bracket.
    fn attribute(&mut self) -> Result<Attribute, SelectorError> {
        self.spaces();
        let name = self.name()?;
        self.spaces();
        let tests = [
            ("=", Test::Equal),
            ("~=", Test::Word),
            ("^=", Test::Start),
            ("$=", Test::End),
            ("*=", Test::Inside),
        ];
        let test = tests.into_iter().find(|(token, _)| self.take(token));
        let test = test.map_or(Test::Present, |(_, test)| test);
        let mut value = String::new();
        if test != Test::Present {
            self.spaces();
            value = self.value()?;
            self.spaces();
        }
        if self.take("]") {
            Ok(Attribute { name, test, value })
        } else {
            Err(unexpected(self.rest))
        }
    }

    /// A name, or a text in quotes.
    fn value(&mut self) -> Result<String, SelectorError> {
        let Some(quote) = self.rest.chars().next().filter(|first| matches!(first, '"' | '\''))
        else {
            return self.name();
        };
        let mut value = String::new();
        let mut characters = self.rest.chars();
        characters.next();
        loop {
            match characters.next() {
                Some('\\') => value.extend(escaped(&mut characters)),
                Some(character) if character == quote => break,
                Some(character) => value.push(character),
                None => return Err(refused("A quote of the selector is not closed.".to_owned())),
            }
        }
        self.rest = characters.as_str();
        Ok(value)
    }

    /// `:nth-child(2)` or `:nth-of-type(2)`.
    fn place(&mut self) -> Result<Attribute, SelectorError> {
        for name in ["nth-child", "nth-of-type"] {
            let Some(rest) = self.rest.strip_prefix(':').and_then(|rest| rest.strip_prefix(name))
            else {
                continue;
            };
            let Some((number, rest)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
            else {
                continue;
            };
            let Ok(number) = number.trim().parse::<u32>() else { continue };
            self.rest = rest;
            let (name, value) = (name.to_owned(), number.to_string());
            return Ok(Attribute { name, test: Test::Equal, value });
        }
        Err(unexpected(self.rest))
    }
}

/// The character that a backslash and the text after it represent: the one whose number is given by one to six
/// hexadecimal digits (`\32 xl` is `2xl`; white space ends them), or else the next character itself.
fn escaped(characters: &mut Chars<'_>) -> Option<char> {
    let rest = characters.as_str();
    let digits = rest.chars().take(HEX_DIGITS_MAX).take_while(char::is_ascii_hexdigit).count();
    let (digits, after) = rest.split_at_checked(digits)?;
    if digits.is_empty() {
        return characters.next();
    }
    *characters = after.strip_prefix([' ', '\t', '\n']).unwrap_or(after).chars();
    let number = u32::from_str_radix(digits, 16).ok()?;
    Some(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_' | '\\') || !character.is_ascii()
}

fn unexpected(rest: &str) -> SelectorError {
    if rest.is_empty() {
        return refused("The selector ends too early.".to_owned());
    }
    let rest: String = rest.chars().take(30).collect();
    refused(format!(
        "The selector is not understood at \"{rest}\". Tags, .classes, #ids, [attributes=\"values\"], \
         :nth-child(number), :nth-of-type(number), descendants and children (>) are."
    ))
}

fn refused(detail: String) -> SelectorError {
    SelectorError(detail)
}

#[cfg(test)]
mod tests {
    use super::{CHARS_MAX, Selector};
    use crate::elements::elements;

    const CHAIN: &str = concat!(
        r#"span.icon:nth-child="1"nth-of-type="1"text="Buy now""#,
        r#";button.buy.primary:attr__data-attr="buy"attr__type="submit"attr_id="b1"nth-child="2"nth-of-type="1""#,
        r#";div.w-1/2.card:nth-child="3"nth-of-type="3""#,
        r#";form.card:attr__class="card"href="/shop"nth-child="1"nth-of-type="1""#,
        ";body"
    );

    /// The meaning of selectors in the standard, evaluated on an element and its ancestors.
    #[test]
    fn selectors_select_as_in_style_sheets() {
        for (selector, expected) in [
            ("span", true),
            ("SPAN", true),
            ("*", true),
            ("b", false),
            (".buy", true),
            (".primary.buy", true),
            (".buy.icon", false),
            ("button.buy#b1", true),
            ("#b2", false),
            ("[data-attr=\"buy\"]", true),
            ("[data-attr='buy']", true),
            ("button[type=submit][data-attr]", true),
            ("[data-attr]", true),
            ("[missing]", false),
            ("[data-attr^=b]", true),
            ("[data-attr$=\"y\"]", true),
            ("[data-attr*=u]", true),
            ("[data-attr*=\"\"]", false),
            ("[text~=now]", true),
            ("[href=\"/shop\"]", true),
            ("button:nth-child(2)", true),
            ("button:nth-of-type( 2 )", false),
            (".w-1\\/2", true),
            ("body span", true),
            ("body > span", false),
            ("form > div > button > span", true),
            ("form>div>button>span", true),
            ("form > button", false),
            ("form button", true),
            ("span button", false),
            (".card .card", true),
            (".card .card .card", false),
            (".card > .card > button span", true),
            ("body > .card button > span", true),
            ("b, .icon", true),
            ("b , i", false),
        ] {
            let parsed =
                Selector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
            assert_eq!(parsed.matches(&elements(CHAIN)), expected, "{selector}");
        }
    }

    #[test]
    fn dots_of_classes_are_escaped() {
        let chain = concat!(
            r#"div.5.foo.py-2:attr__class="2xl:p-1.5 py-2.5 gap-1.5 text-[1.5rem] border-[1.5px] m.x md:w-1/2 foo hover:bg-blue-500/75 !mt-0""#,
            r#"attr__id="sec.1"attr_id="sec.1"nth-child="1""#
        );
        for (selector, expected) in [
            (r".py-2\.5", true),
            (r".gap-1\.5", true),
            (r".text-\[1\.5rem\]", true),
            (r".border-\[1\.5px\]", true),
            (r".m\.x", true),
            (r"div.foo.py-2\.5", true),
            (r".md\:w-1\/2", true),
            (r".hover\:bg-blue-500\/75", true),
            (r".\!mt-0", true),
            (r".\32 xl\:p-1\.5", true),
            (r".\000032xl\:p-1\.5", true),
            (r".foo .foo", false),
            (r"#sec\.1", true),
            (r#"[class~="py-2.5"]"#, true),
            (".py-2", false),
            (".gap-1", false),
            (".m.x", false),
            (".py-2.5", false),
        ] {
            let found = Selector::parse(selector).map(|own| own.matches(&elements(chain)));
            assert_eq!(found.unwrap_or(false), expected, "{selector}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let long = "a".repeat(CHARS_MAX + 1);
        for selector in [
            "",
            " ",
            ">",
            "a >",
            "> a",
            "a + b",
            "a ~ b",
            "a:hover",
            "a::before",
            "a:nth-child(2n)",
            "a:not(b)",
            "[a",
            "[a=]",
            "[=b]",
            "[a|=b]",
            "[a=\"b]",
            "a,",
            ",a",
            "a..b",
            "a.",
            "#",
            "a{",
            "a b !",
            &long,
        ] {
            assert!(Selector::parse(selector).is_err(), "{selector}");
        }
    }
}
