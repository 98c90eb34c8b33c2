//! Byte offsets of tokens in a text, as the tokenizer reports only lines and columns: [`Offsets`].

use std::ops::Range;
use std::str::CharIndices;

use datafusion::sql::sqlparser::tokenizer::{Location, Span};

/// Converts positions of lines and columns, which must be passed in ascending order, to byte offsets.
pub(crate) struct Offsets<'s> {
    rest: CharIndices<'s>,
    at: Location,
    length: usize,
}

impl<'s> Offsets<'s> {
    pub(crate) fn of(text: &'s str) -> Self {
        let at = Location { line: 1, column: 1 };
        Self { rest: text.char_indices(), at, length: text.len() }
    }

    /// The byte range of a token.
    pub(crate) fn range(&mut self, token: Span) -> Range<usize> {
        self.offset(token.start)..self.offset(token.end)
    }

    /// The byte offset of a position.
    pub(crate) fn offset(&mut self, place: Location) -> usize {
        while self.at < place {
            match self.rest.next() {
                Some((_, '\n')) => self.at = Location { line: self.at.line + 1, column: 1 },
                Some(_) => self.at.column += 1,
                None => break,
            }
        }
        self.rest.clone().next().map_or(self.length, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::Offsets;

    #[test]
    fn tokens_are_told_to_the_byte() {
        let text = "é || 'it''s'\n -- ü\r\n\t/* ö */ N'x' \"a\"\"b\" 1.5e3";
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location().unwrap();
        let mut offsets = Offsets::of(text);
        let texts: Vec<&str> = tokens.iter().map(|own| &text[offsets.range(own.span)]).collect();
        assert_eq!(texts.concat(), text);
        assert!(["'it''s'", "N'x'", "\"a\"\"b\"", "1.5e3"].iter().all(|own| texts.contains(own)));
    }
}
