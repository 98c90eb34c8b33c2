//! Types of values as texts, for plans that another process executes: [`TypeText`].

use arrow::datatypes::DataType;
use datafusion::error::Result;
use serde::{Deserialize, Serialize};

/// The text of a type, from which it can be read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TypeText(String);

impl TypeText {
    /// That of a type; `None` if the type cannot be read from its text, as with names of fields that have quotes.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        let text = data_type.to_string();
        let read = text.parse::<DataType>().ok();
        (read.as_ref() == Some(data_type)).then_some(Self(text))
    }

    /// The type.
    ///
    /// # Errors
    ///
    /// The text is that of no type.
    pub(crate) fn data_type(&self) -> Result<DataType> {
        Ok(self.0.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, TimeUnit};

    use super::TypeText;

    #[test]
    fn types_are_read_as_they_were_written() {
        let list = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        for own in [
            DataType::Utf8,
            DataType::Utf8View,
            DataType::Decimal128(38, 10),
            DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into())),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano),
            DataType::List(list),
        ] {
            let text = TypeText::of(&own).expect("it has a text");
            assert_eq!(text.data_type().expect("a type"), own);
        }
        assert!(TypeText("Nothing".to_owned()).data_type().is_err());
    }
}
