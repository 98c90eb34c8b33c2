//! Words and signs of SQL with their places, as far as it takes to tell statements apart. What a query means is up to the
//! parser of queries; a text that has no end reaches to the end here, and is refused there.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lexeme {
    /// A word: a keyword or a name.
    Word,
    /// A name in quotes.
    Quoted,
    /// A text in quotes.
    Text,
    /// A number.
    Number,
    /// Any other character.
    Sign,
}

/// A token and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'s> {
    /// What it is.
    pub(crate) lexeme: Lexeme,
    /// As it was written.
    pub(crate) text: &'s str,
    /// Where it begins, in bytes.
    pub(crate) start: usize,
}

impl<'s> Token<'s> {
    /// Where it ends.
    pub(crate) fn end(&self) -> usize {
        self.start.saturating_add(self.text.len())
    }

    /// Whether it is this keyword, which is given in upper case.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        self.lexeme == Lexeme::Word && self.text.eq_ignore_ascii_case(keyword)
    }

    /// Whether it is this sign.
    pub(crate) fn is_sign(&self, sign: &str) -> bool {
        self.lexeme == Lexeme::Sign && self.text == sign
    }

    /// The name that it is: words in lower case, quoted names as they are.
    pub(crate) fn name(&self) -> Option<String> {
        match self.lexeme {
            Lexeme::Word => Some(self.text.to_lowercase()),
            Lexeme::Quoted => Some(unquoted(self.text, '"')),
            _ => None,
        }
    }

    /// The value that it is: the content of a text, or a word or number as written.
    pub(crate) fn value(&self) -> String {
        match self.lexeme {
            Lexeme::Text => unquoted(self.text.trim_start_matches(['e', 'E']), '\''),
            Lexeme::Quoted => unquoted(self.text, '"'),
            _ => self.text.to_owned(),
        }
    }
}

/// What stands between quotes; within them a quote is written twice.
fn unquoted(text: &str, quote: char) -> String {
    let inner = text.strip_prefix(quote).unwrap_or(text);
    let inner = inner.strip_suffix(quote).unwrap_or(inner);
    inner.replace(&format!("{quote}{quote}"), &quote.to_string())
}

/// The tokens of SQL, without comments.
pub(crate) fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = sql.get(at..).filter(|rest| !rest.is_empty()) {
        let (lexeme, length) = first(rest);
        if let (Some(lexeme), Some(text)) = (lexeme, rest.get(..length)) {
            found.push(Token { lexeme, text, start: at });
        }
        at = at.saturating_add(length.max(1));
    }
    found
}

/// What `rest` begins with, and its length; `None` for white space and comments.
fn first(rest: &str) -> (Option<Lexeme>, usize) {
    let mut letters = rest.chars();
    let (letter, second) = (letters.next().unwrap_or(' '), letters.next());
    let span = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    match (letter, second) {
        ('-', Some('-')) => (None, rest.find('\n').unwrap_or(rest.len())),
        ('/', Some('*')) => (None, comment(rest)),
        ('\'', _) => (Some(Lexeme::Text), quoted(rest, '\'', false)),
        ('e' | 'E', Some('\'')) => {
            let inner = rest.get(1..).unwrap_or_default();
            (Some(Lexeme::Text), quoted(inner, '\'', true).saturating_add(1))
        }
        ('"' | '`', _) => (Some(Lexeme::Quoted), quoted(rest, letter, false)),
        ('$', _) => match dollars(rest) {
            Some(length) => (Some(Lexeme::Text), length),
            None => (Some(Lexeme::Sign), 1),
        },
        (letter, _) if letter.is_whitespace() => (None, span(char::is_whitespace)),
        (letter, _) if letter.is_alphabetic() || letter == '_' => {
            (Some(Lexeme::Word), span(|c| c.is_alphanumeric() || matches!(c, '_' | '$')))
        }
        (letter, _) if letter.is_ascii_digit() => {
            (Some(Lexeme::Number), span(|c| c.is_ascii_alphanumeric() || c == '.'))
        }
        (letter, _) => (Some(Lexeme::Sign), letter.len_utf8()),
    }
}

/// Length of a comment, in which others may be nested.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    let bytes = rest.as_bytes();
    loop {
        match bytes.get(at..).and_then(|rest| rest.get(..2)) {
            Some(b"/*") => (depth, at) = (depth.saturating_add(1), at.saturating_add(2)),
            Some(b"*/") => {
                (depth, at) = (depth.saturating_sub(1), at.saturating_add(2));
                if depth == 0 {
                    return at;
                }
            }
            Some(_) => at = at.saturating_add(1),
            None => return rest.len(),
        }
    }
}

/// Length of what is between quotes, with them.
fn quoted(rest: &str, quote: char, has_escapes: bool) -> usize {
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && has_escapes {
            letters.next();
        } else if letter == quote {
            if letters.peek().is_none_or(|(_, next)| *next != quote) {
                return at.saturating_add(1);
            }
            letters.next();
        }
    }
    rest.len()
}

/// Length of a text between dollar signs, such as `$a$text$a$`, if there is one. Without an end it reaches to the end, like
/// all others: each is looked for once.
fn dollars(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('$')?;
    let end = inner.find('$')?;
    let tag = rest.get(..end.checked_add(2)?)?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    if !tag.trim_matches('$').chars().all(is_name) || inner.starts_with(|c: char| c.is_numeric()) {
        return None;
    }
    let text = rest.get(tag.len()..)?;
    Some(text.find(tag).map_or(rest.len(), |length| length.saturating_add(2 * tag.len())))
}

/// The statements of a text, which semicolons separate.
pub(crate) fn statements(sql: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    for token in tokens(sql).iter().filter(|token| token.is_sign(";")) {
        found.extend(sql.get(begin..token.start));
        begin = token.end();
    }
    found.extend(sql.get(begin..));
    found.retain(|own| !tokens(own).is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::{Lexeme, statements, tokens};

    #[test]
    fn statements_end_at_semicolons_outside_of_everything() {
        for (sql, expected) in [
            ("", &[][..]),
            (" ; ; -- only this", &[]),
            ("SELECT 1", &["SELECT 1"]),
            ("SELECT 1; SELECT 2;", &["SELECT 1", " SELECT 2"]),
            ("SELECT ';', \"a;\"\"b\", `;`; x", &["SELECT ';', \"a;\"\"b\", `;`", " x"]),
            ("SELECT 'it''s;'; x", &["SELECT 'it''s;'", " x"]),
            ("SELECT E'\\';'; x", &["SELECT E'\\';'", " x"]),
            ("SELECT '\\'; x", &["SELECT '\\'", " x"]),
            ("a /* ; /* ; */ ; */ b; c", &["a /* ; /* ; */ ; */ b", " c"]),
            ("a -- ;\nb; c", &["a -- ;\nb", " c"]),
            ("SELECT $$;$$, $t$;$$;$t$; x", &["SELECT $$;$$, $t$;$$;$t$", " x"]),
            ("SELECT $1; SELECT $2", &["SELECT $1", " SELECT $2"]),
            ("SELECT properties.$a; SELECT b.$c", &["SELECT properties.$a", " SELECT b.$c"]),
            ("SELECT 'open; x", &["SELECT 'open; x"]),
            ("SELECT $t$open; $u$ x", &["SELECT $t$open; $u$ x"]),
            ("/* open; x", &[]),
            ("é; ü", &["é", " ü"]),
        ] {
            assert_eq!(statements(sql), expected, "{sql}");
        }
    }

    #[test]
    fn tokens_have_values() {
        let found: Vec<_> = tokens("Fetch 5 \"A\"\"b\" 'c''d' $1 x.Y")
            .into_iter()
            .map(|own| (own.lexeme, own.value(), own.name()))
            .collect();
        let name = |text: &str| Some(text.to_owned());
        use Lexeme::{Number, Quoted, Sign, Text, Word};
        assert_eq!(
            found,
            [
                (Word, "Fetch".to_owned(), name("fetch")),
                (Number, "5".to_owned(), None),
                (Quoted, "A\"b".to_owned(), name("A\"b")),
                (Text, "c'd".to_owned(), None),
                (Sign, "$".to_owned(), None),
                (Number, "1".to_owned(), None),
                (Word, "x".to_owned(), name("x")),
                (Sign, ".".to_owned(), None),
                (Word, "Y".to_owned(), name("y")),
            ]
        );
    }
}
