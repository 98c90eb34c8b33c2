//! Decoder for lz-string's `compressToBase64`.
//!
//! LZ78 over UTF-16 code units. Codes are packed into six bits per character, most significant bit
//! of a character first, least significant bit of a code first. Code 0 announces a new unit of 8
//! bits, 1 one of 16 bits, 2 the end; 3 and up are the dictionary. After each code but the first,
//! the previous phrase plus the first unit of this one enters the dictionary. Codes begin with 3 bits
//! and grow with the dictionary. Source: lz-string 1.5, `_decompress`.
//!
//! # Why not a crate
//!
//! `lz-str` has no limit on its output, and a phrase can grow by one unit per code: a few kB become
//! gigabytes. It also clones every phrase. Here a dictionary entry is a range of the output, which
//! works because the previous phrase and the first unit of this one are neighbors there. The crate
//! remains the oracle of the tests.

use crate::encoding::error::DecodeError;
use crate::encoding::inflate::Output;

/// Widest code. A dictionary of 2^31 phrases would need an input of gigabytes.
const CODE_BITS_MAX: u32 = 31;

/// Distinct UTF-16 code units. lz-string announces each at most once; more would only fill memory.
const NEW_UNITS_MAX: usize = 65_536;

const NEW_UNIT_8: u32 = 0;
const NEW_UNIT_16: u32 = 1;
const END: u32 = 2;

const MALFORMED: DecodeError =
    DecodeError::Malformed("decompress_lz64: failed decompress to UTF16");

/// Returns the text, UTF-8, at most `limit_bytes` of it. Lone surrogates become U+FFFD.
///
/// # Errors
///
/// [`DecodeError::TooLarge`] above the limit, [`DecodeError::Malformed`] for input that lz-string
/// cannot produce.
pub(super) fn decompress(packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    // While phrases may still be repeated, each half of a surrogate pair takes three bytes of its
    // own, because a phrase may end between them. Joined they take four instead of six.
    let limit_while_split = limit_bytes.saturating_add(limit_bytes / 2);
    let mut output = Output::new(packed.len(), limit_while_split);
    let too_large = DecodeError::TooLarge { limit_bytes };
    let surrogates = match decompress_phrases(packed.trim_ascii(), &mut output) {
        Err(DecodeError::TooLarge { .. }) => return Err(too_large),
        other => other?,
    };
    let mut text = output.finish();
    if surrogates == Surrogates::Present {
        join_surrogates(&mut text);
    }
    if u64::try_from(text.len()).is_ok_and(|length| length <= limit_bytes) {
        Ok(text)
    } else {
        Err(too_large)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Surrogates {
    Absent,
    Present,
}

/// A range of the output.
#[derive(Clone, Copy)]
struct Phrase {
    start: u32,
    length: u32,
}

/// Writes all phrases to `output`, every UTF-16 code unit as one to three bytes.
fn decompress_phrases(packed: &[u8], output: &mut Output) -> Result<Surrogates, DecodeError> {
    let mut bits = Bits { characters: packed.iter(), buffer: 0, count: 0 };
    let mut surrogates = Surrogates::Absent;
    let mut phrases = Phrases { added: Vec::new(), new_units: 0 };
    let mut code_bits = 2;
    let mut previous: Option<Phrase> = None;
    loop {
        let code = bits.read(code_bits).ok_or(MALFORMED)?;
        let announced_bits = match code {
            END => return Ok(surrogates),
            NEW_UNIT_8 => Some(8),
            NEW_UNIT_16 => Some(16),
            _ => None,
        };
        let start = u32::try_from(output.bytes.len()).map_err(|_| MALFORMED)?;
        let phrase = if let Some(announced_bits) = announced_bits {
            let unit = bits.read(announced_bits).and_then(|unit| u16::try_from(unit).ok());
            let unit = unit.ok_or(MALFORMED)?;
            if (0xD800..=0xDFFF).contains(&unit) {
                surrogates = Surrogates::Present;
            }
            let phrase = Phrase { start, length: push_unit(output, unit)? };
            phrases.add_unit(phrase)?;
            phrase
        } else if let Some(phrase) = phrases.get(code) {
            repeat(output, phrase)?;
            Phrase { start, ..phrase }
        } else if let Some(previous) = previous.filter(|_| phrases.is_next(code)) {
            // The phrase that this step adds: the previous one and its own first unit.
            repeat(output, previous)?;
            let first = first_unit(output, previous);
            repeat(output, first)?;
            Phrase { start, length: previous.length.saturating_add(first.length) }
        } else {
            return Err(MALFORMED);
        };
        if let Some(previous) = previous {
            let first = first_unit(output, phrase);
            let length = previous.length.saturating_add(first.length);
            phrases.added.push(Phrase { start: previous.start, length });
        }
        previous = Some(phrase);
        code_bits = phrases.code_bits().ok_or(MALFORMED)?;
    }
}

/// The dictionary, from code 3 on.
struct Phrases {
    added: Vec<Phrase>,
    new_units: usize,
}

impl Phrases {
    fn index(code: u32) -> Option<usize> {
        usize::try_from(code.checked_sub(3)?).ok()
    }

    fn get(&self, code: u32) -> Option<Phrase> {
        self.added.get(Self::index(code)?).copied()
    }

    fn is_next(&self, code: u32) -> bool {
        Self::index(code) == Some(self.added.len())
    }

    fn add_unit(&mut self, phrase: Phrase) -> Result<(), DecodeError> {
        self.new_units = self.new_units.saturating_add(1);
        if self.new_units > NEW_UNITS_MAX {
            return Err(MALFORMED);
        }
        self.added.push(phrase);
        Ok(())
    }

    /// Width of the next code: enough for the code that the next phrase will get, which may be used
    /// before the phrase is complete.
    fn code_bits(&self) -> Option<u32> {
        let next = u32::try_from(self.added.len()).ok()?.checked_add(3)?;
        let bits = u32::BITS.checked_sub(next.leading_zeros())?;
        (bits <= CODE_BITS_MAX).then_some(bits)
    }
}

/// Reads codes from base64 text.
struct Bits<'text> {
    characters: std::slice::Iter<'text, u8>,
    buffer: u64,
    count: u32,
}

impl Bits<'_> {
    /// The next `count` bits (1 to 31), the first one being the least significant.
    fn read(&mut self, count: u32) -> Option<u32> {
        while self.count < count {
            let value = value_of(*self.characters.next()?)?;
            self.buffer = (self.buffer << 6) | u64::from(value);
            self.count = self.count.checked_add(6)?;
        }
        self.count = self.count.checked_sub(count)?;
        let ahead = self.buffer >> self.count;
        u32::try_from(ahead.reverse_bits() >> (u64::BITS.checked_sub(count)?)).ok()
    }
}

/// The six bits of a character; padding counts as zeros, as in the original.
fn value_of(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        b'=' => Some(0),
        _ => None,
    }
}

/// Writes `unit` in the bit pattern of UTF-8, surrogates included; returns the number of bytes.
fn push_unit(output: &mut Output, unit: u16) -> Result<u32, DecodeError> {
    output.reserve(3)?;
    let [high, low] = unit.to_be_bytes();
    let last = 0x80 | (low & 0x3F);
    if unit < 0x80 {
        output.bytes.push(low);
        return Ok(1);
    }
    if unit < 0x800 {
        output.bytes.extend_from_slice(&[0xC0 | (high << 2) | (low >> 6), last]);
        return Ok(2);
    }
    let middle = 0x80 | ((high & 0x0F) << 2) | (low >> 6);
    output.bytes.extend_from_slice(&[0xE0 | (high >> 4), middle, last]);
    Ok(3)
}

/// Writes `phrase` again.
fn repeat(output: &mut Output, phrase: Phrase) -> Result<(), DecodeError> {
    let start = usize::try_from(phrase.start).map_err(|_| MALFORMED)?;
    let length = usize::try_from(phrase.length).map_err(|_| MALFORMED)?;
    let end = start.saturating_add(length);
    output.reserve(length)?;
    if end > output.bytes.len() {
        return Err(MALFORMED);
    }
    output.bytes.extend_from_within(start..end);
    Ok(())
}

/// The part of `phrase` that is its first unit.
fn first_unit(output: &Output, phrase: Phrase) -> Phrase {
    let lead = usize::try_from(phrase.start).ok().and_then(|start| output.bytes.get(start));
    let length = match lead {
        Some(0xE0..) => 3,
        Some(0xC0..) => 2,
        _ => 1,
    };
    Phrase { start: phrase.start, length }
}

/// Converts `text` to UTF-8 in place: joins halves of surrogate pairs, replaces lone ones.
fn join_surrogates(text: &mut Vec<u8>) {
    let mut read = 0;
    let mut written = 0;
    loop {
        let mut character = [0; 4];
        let (taken, bytes) = match text.get(read..).unwrap_or_default() {
            [0xED, a @ 0xA0..=0xAF, b, 0xED, c @ 0xB0..=0xBF, d, ..] => {
                let six = |byte: &u8| u32::from(byte & 0x3F);
                let high = ((six(a) & 0x0F) << 6) | six(b);
                let low = ((six(c) & 0x0F) << 6) | six(d);
                let joined = char::from_u32(0x10000 + (high << 10) + low);
                let joined = joined.unwrap_or(char::REPLACEMENT_CHARACTER);
                (6, &*joined.encode_utf8(&mut character))
            }
            [0xED, 0xA0..=0xBF, _, ..] => {
                (3, &*char::REPLACEMENT_CHARACTER.encode_utf8(&mut character))
            }
            [byte, ..] => {
                let byte = *byte;
                if let Some(target) = text.get_mut(written) {
                    *target = byte;
                }
                (read, written) = (read + 1, written + 1);
                continue;
            }
            [] => break,
        };
        if let Some(target) = text.get_mut(written..written + bytes.len()) {
            target.copy_from_slice(bytes.as_bytes());
        }
        (read, written) = (read + taken, written + bytes.len());
    }
    text.truncate(written);
}
