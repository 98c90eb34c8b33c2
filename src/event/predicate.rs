//! The filter language on properties: key, operator, value.
