//! Columns of files that are functions of another column of the row: [`Derived`]. They are computed when a file is
//! written, which says so ([`DerivedTag`]), and in memory they do not exist.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;

/// Computes the values of a column from those of another one, row by row.
pub type Derivation = Arc<dyn Fn(&ArrayRef) -> Result<ArrayRef, ArrowError> + Send + Sync>;

/// A column that is computed.
#[derive(Clone)]
pub struct DerivedColumn {
    /// Its name and type; it may be null.
    pub field: FieldRef,
    /// Its values. There is one for every row, whatever the row has.
    pub values: Derivation,
}

impl fmt::Debug for DerivedColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedColumn").field("field", &self.field).finish_non_exhaustive()
    }
}

/// The columns that are computed, which follow all others in files.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    /// Number of the formulas by which they are computed. Files of other formulas are taken for files without.
    pub formulas: u32,
    /// Position of the column from which they are computed.
    pub source: usize,
    /// The columns.
    pub columns: Arc<[DerivedColumn]>,
}

impl Derived {
    /// The columns of files: those of the table's rows, then these.
    pub(crate) fn after(&self, schema: &SchemaRef) -> SchemaRef {
        if self.columns.is_empty() {
            return Arc::clone(schema);
        }
        let fields: Vec<_> = schema.fields().iter().cloned().chain(self.fields()).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }

    /// The values of the columns for a batch with the columns of the table.
    pub(crate) fn of<'b>(
        &'b self,
        batch: &'b RecordBatch,
    ) -> impl Iterator<Item = Result<ArrayRef, ArrowError>> + 'b {
        let source = batch.columns().get(self.source);
        let missing = || ArrowError::SchemaError("the rows lack a column".to_owned());
        self.columns.iter().map(move |own| (own.values)(source.ok_or_else(missing)?))
    }

    /// What is said of a file that has them.
    pub fn tag(&self) -> DerivedTag {
        if self.columns.is_empty() {
            return DerivedTag::default();
        }
        let names: Vec<&str> = self.columns.iter().map(|own| own.field.name().as_str()).collect();
        DerivedTag(format!("{} {}", self.formulas, names.join(" ")).into())
    }

    /// Whether a file has all of them.
    pub fn are_in(&self, file: &DerivedTag) -> bool {
        self.columns.iter().all(|own| file.has(self.formulas, own.field.name()))
    }

    /// Which files lack some of them.
    pub fn lacking(&self) -> Lacking<'_> {
        Lacking { derived: self, tag: self.tag(), last: None }
    }

    /// Their names and types.
    pub fn fields(&self) -> Vec<FieldRef> {
        self.columns.iter().map(|own| Arc::clone(&own.field)).collect()
    }
}

/// Tells of files whether they lack columns. Most files say the same of themselves as others, which is compared at once.
#[derive(Debug)]
pub struct Lacking<'d> {
    derived: &'d Derived,
    /// What a file says that has the columns and no others.
    tag: DerivedTag,
    /// What another file said, and the answer.
    last: Option<(DerivedTag, bool)>,
}

impl Lacking<'_> {
    /// Whether a file lacks one of the columns.
    pub fn has(&mut self, file: &DerivedTag) -> bool {
        if *file == self.tag {
            return false;
        }
        match &self.last {
            Some((last, lacks)) if last == file => *lacks,
            _ => {
                let lacks = !self.derived.are_in(file);
                self.last = Some((file.clone(), lacks));
                lacks
            }
        }
    }
}

/// Which derived columns a file has, as its writer says in the log of the table: the number of the formulas, and the names,
/// which have no spaces. Other programs that write files of the table do not compute the columns, and say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DerivedTag(Arc<str>);

impl DerivedTag {
    /// Whether the file has a column, computed by these formulas.
    pub fn has(&self, formulas: u32, name: &str) -> bool {
        let mut words = self.0.split(' ');
        words.next().and_then(|number| number.parse().ok()) == Some(formulas)
            && words.any(|own| own == name)
    }

    /// As text, for the log of a table; `None` if there is none.
    pub(super) fn to_text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.to_string())
    }

    /// Reads [`DerivedTag::to_text`].
    pub(super) fn of_text(text: &str) -> Self {
        Self(text.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field};

    use super::{Derived, DerivedColumn, DerivedTag};

    #[test]
    fn a_file_has_what_its_writer_says() {
        let tag = DerivedTag::of_text("2 p_age p_plan");
        for (formulas, name, expected) in [
            (2, "p_age", true),
            (2, "p_plan", true),
            (2, "p_pl", false),
            (1, "p_age", false),
            (2, "2", false),
        ] {
            assert_eq!(tag.has(formulas, name), expected, "{formulas} {name}");
        }
        assert!(!DerivedTag::default().has(0, "") && !DerivedTag::of_text("p_age").has(0, "p_age"));
    }

    #[test]
    fn a_file_has_all_columns_or_lacks_some() {
        let column = |name: &str| DerivedColumn {
            field: Arc::new(Field::new(name, DataType::Utf8, true)),
            values: Arc::new(|texts| Ok(Arc::clone(texts))),
        };
        let of = |formulas, names: &[&str]| Derived {
            formulas,
            source: 0,
            columns: names.iter().map(|name| column(name)).collect(),
        };
        let file = of(2, &["p_age", "p_plan"]).tag();
        for (formulas, names, expected) in [
            (2, &["p_plan", "p_age"][..], true),
            (2, &["p_plan"], true),
            (2, &["p_plan", "p_paid"], false),
            (3, &["p_plan"], false),
            (3, &[], true),
        ] {
            assert_eq!(of(formulas, names).are_in(&file), expected, "{formulas} {names:?}");
        }
        assert!(!of(2, &["p_plan"]).are_in(&DerivedTag::default()));
        let plan = of(2, &["p_plan"]);
        let mut lacking = plan.lacking();
        let other = of(2, &["p_age"]).tag();
        for (file, expected) in [
            (&plan.tag(), false),
            (&other, true),
            (&other, true),
            (&plan.tag(), false),
            (&file, false),
            (&file, false),
            (&other, true),
            (&DerivedTag::default(), true),
        ] {
            assert_eq!(lacking.has(file), expected, "{file:?}");
        }
    }
}
