//! What a NULL in a column means: [`ExactColumns`].

/// Columns in which a NULL means that the writer was given no value, as bits that the writer of a table gives to its
/// columns for good. In other columns a NULL may stand for a value that the column has no place for, such as the text
/// of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactColumns(u128);

impl ExactColumns {
    /// All columns.
    pub const ALL: Self = Self(u128::MAX);

    /// The first `count` columns but those with these bits. Columns that are added later are not among them: in rows
    /// from before, they are NULL whatever was sent.
    pub fn of(count: usize, inexact: u128) -> Self {
        let all = u32::try_from(count).ok().and_then(|count| 1_u128.checked_shl(count));
        Self(all.map_or(u128::MAX, |next| next - 1) & !inexact)
    }

    /// Whether the column with the bit of this number is one of them. What has no bit is not.
    pub fn has(self, number: usize) -> bool {
        let bit = u32::try_from(number).ok().and_then(|number| 1_u128.checked_shl(number));
        bit.is_some_and(|bit| self.0 & bit != 0)
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// As text, for the log of a table.
    pub(super) fn to_text(self) -> String {
        format!("{:x}", self.0)
    }

    /// Reads [`ExactColumns::to_text`]; none from anything else.
    pub(super) fn of_text(text: &str) -> Self {
        Self(u128::from_str_radix(text, 16).unwrap_or(0))
    }
}

impl FromIterator<Self> for ExactColumns {
    /// Those of all.
    fn from_iter<T: IntoIterator<Item = Self>>(all: T) -> Self {
        all.into_iter().fold(Self::ALL, Self::and)
    }
}

#[cfg(test)]
mod tests {
    use super::ExactColumns;

    #[test]
    fn columns_are_exact_where_all_parts_are() {
        let (a, b) = (ExactColumns::of(128, 0b1), ExactColumns::of(128, 0b100));
        let both: ExactColumns = [a, b].into_iter().collect();
        assert_eq!(
            [0, 1, 2, 127, 128].map(|number| both.has(number)),
            [false, true, false, true, false]
        );
        assert_eq!(ExactColumns::of_text(&both.to_text()), both);
        assert_eq!(ExactColumns::of_text("no number"), ExactColumns::default());
        assert!(!ExactColumns::default().has(0), "nothing is known");
        let three = ExactColumns::of(3, 0b10);
        assert_eq!([0, 1, 2, 3].map(|number| three.has(number)), [true, false, true, false]);
        assert_eq!([].into_iter().collect::<ExactColumns>(), ExactColumns::ALL);
    }
}
