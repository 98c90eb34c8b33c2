//! How columns hold types: [`Stored`], and the declarations of it. [`stored!`] is for one type at a time; [`named!`] declares
//! an enumeration with the names that its column has.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::sql::Bind;
use weir_base::clock::UnixMicros;
use weir_event::id::{ProjectId, ShardId};
use weir_event::json;

/// A type that a column holds.
pub(crate) trait Stored: Sized {
    /// What both databases have of it: `i64`, `bool`, `String`, or an option of one.
    type Raw: Into<Bind> + Into<Value>;

    fn store(&self) -> Self::Raw;

    /// The inverse of [`Stored::store`].
    ///
    /// # Errors
    ///
    /// What is wrong with what it never returns. Logs show it, so it has nothing of a secret.
    fn restore(raw: Self::Raw) -> Result<Self, String>;

    /// The value in the activity log.
    fn shown(&self) -> Value {
        self.store().into()
    }
}

/// Declares how columns hold types: `type as raw: |value| raw, |raw| the value or what is wrong;`.
macro_rules! stored {
    ($($type:ty as $raw:ty: |$value:ident| $store:expr, |$cell:ident| $restore:expr;)+) => {$(
        impl $crate::entity::Stored for $type {
            type Raw = $raw;

            fn store(&self) -> $raw {
                let $value = self;
                $store
            }

            fn restore($cell: $raw) -> Result<Self, String> {
                $restore
            }
        }
    )+};
}

/// Declares an enumeration that the API has by the names of its values, and after the colon what else it needs of these:
/// `ALL`, `NAMES`, `parse`, and `Stored` for columns.
macro_rules! named {
    ($(#[$about:meta])* pub enum $enum:ident $(: $($item:ident),+)? { $($values:tt)+ }) => {
        $crate::entity::named_item! { enum [$(#[$about])*] $enum { $($values)+ } }
        $crate::entity::named_items! { [$($($item)+)?] $enum { $($values)+ } }
    };
}

/// The items of [`named!`] one by one.
macro_rules! named_items {
    ([] $enum:ident $values:tt) => {};
    ([$item:ident $($further:ident)*] $enum:ident $values:tt) => {
        $crate::entity::named_item! { $item [] $enum $values }
        $crate::entity::named_items! { [$($further)*] $enum $values }
    };
}

/// One item of [`named!`].
macro_rules! named_item {
    (
        enum [$($about:tt)*] $enum:ident { $($(#[$value_about:meta])* $value:ident = $name:literal,)+ }
    ) => {
        $($about)*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$value_about])* $value,)+
        }

        impl $enum {
            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }
    };
    (ALL [] $enum:ident { $($(#[$about:meta])* $value:ident = $name:literal,)+ }) => {
        impl $enum {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];
        }
    };
    (NAMES [] $enum:ident { $($(#[$about:meta])* $value:ident = $name:literal,)+ }) => {
        impl $enum {
            /// The names of all.
            pub const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];
        }
    };
    (parse [] $enum:ident { $($(#[$about:meta])* $value:ident = $name:literal,)+ }) => {
        impl $enum {
            /// The one with this name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
    };
    (Stored [] $enum:ident { $($(#[$about:meta])* $value:ident = $name:literal,)+ }) => {
        $crate::entity::stored! {
            $enum as String: |own| own.name().to_owned(), |name| match name.as_str() {
                $($name => Ok(Self::$value),)+
                _ => Err(format!("no such {}: {name}", stringify!($enum))),
            };
        }
    };
}

pub(crate) use {named, named_item, named_items, stored};

stored! {
    i64 as i64: |value| *value, |raw| Ok(raw);
    bool as bool: |value| *value, |raw| Ok(raw);
    String as String: |value| value.clone(), |raw| Ok(raw);
    ProjectId as i64: |id| id.0, |raw| Ok(Self(raw));
    ShardId as i64: |id| i64::from(id.0), |raw| u16::try_from(raw).map(Self).map_err(|error| error.to_string());
    Uuid as String: |uuid| uuid.to_string(), |raw| Self::parse_str(&raw).map_err(|error| error.to_string());
}

/// A nullable column.
impl<T: Stored> Stored for Option<T>
where
    Option<T::Raw>: Into<Bind>,
{
    type Raw = Option<T::Raw>;

    fn store(&self) -> Self::Raw {
        self.as_ref().map(T::store)
    }

    fn restore(raw: Self::Raw) -> Result<Self, String> {
        raw.map(T::restore).transpose()
    }

    fn shown(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::shown)
    }
}

impl Stored for UnixMicros {
    type Raw = i64;

    fn store(&self) -> i64 {
        self.0
    }

    fn restore(raw: i64) -> Result<Self, String> {
        Ok(Self(raw))
    }

    fn shown(&self) -> Value {
        self.to_rfc3339().into()
    }
}

/// Types that a column holds as JSON text.
macro_rules! stored_as_json {
    ($($type:ty),+) => {$(
        impl Stored for $type {
            type Raw = String;

            fn store(&self) -> String {
                // The first never fails for these types; the second copies all of it.
                serde_json::to_string(self).unwrap_or_else(|_| self.shown().to_string())
            }

            fn restore(raw: String) -> Result<Self, String> {
                json::restore(raw.as_bytes()).map_err(|error| error.to_string())
            }

            fn shown(&self) -> Value {
                self.clone().into()
            }
        }
    )+};
}

stored_as_json!(Value, Map<String, Value>, Vec<String>);
