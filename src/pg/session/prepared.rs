//! What a session holds: prepared statements ([`Prepared`]) and portals ([`Portal`]), among them cursors; of both a bounded
//! number.

use datafusion::dataframe::DataFrame;

use crate::error::Failure;
use crate::parameters::Known;
use crate::rows::{Columns, Rows};
use crate::session::{Talk, told};
use crate::statement::Statement;
use crate::wire::frontend::Formats;
use weir_query::dialect::parameters::Parameter;

/// Most prepared statements of a session, and of their texts in bytes.
const STATEMENTS_MAX: usize = 1000;
const STATEMENTS_MAX_BYTES: usize = 4 << 20;

/// Most portals of a session, and of their texts and values in bytes.
const PORTALS_MAX: usize = 100;
const PORTALS_MAX_BYTES: usize = 4 << 20;

/// A prepared statement.
pub(super) struct Prepared {
    /// What it asks for.
    pub(super) statement: Statement,
    /// Bytes of its text.
    pub(super) bytes: usize,
    /// Type ids of its parameters that the client declared.
    pub(super) oids: Vec<u32>,
    /// Its types, once they were asked for.
    pub(super) described: Option<Described>,
}

/// The types of a statement.
#[derive(Clone)]
pub(super) struct Described {
    /// Of its parameters.
    pub(super) parameters: Vec<Known>,
    /// Of its result.
    pub(super) columns: Columns,
}

/// A statement with values, of which rows are read.
#[derive(Default)]
pub(super) struct Portal {
    /// What it asks for; a cursor is a query.
    pub(super) statement: Option<Statement>,
    pub(super) values: Vec<Parameter>,
    /// Bytes of its text and its values.
    pub(super) bytes: usize,
    /// Formats of its columns.
    pub(super) formats: Formats,
    /// The columns that the client was told.
    pub(super) columns: Option<Columns>,
    /// The plan, until it runs, if this portal was described last.
    pub(super) plan: Option<(DataFrame, Columns)>,
    /// The rows, once it runs.
    pub(super) rows: Option<Rows>,
    /// Whether all rows were read.
    pub(super) is_complete: bool,
    /// Whether it lasts longer than a transaction.
    pub(super) is_held: bool,
}

impl Portal {
    /// The columns of its result, as far as they are known.
    pub(super) fn known_columns(&self) -> Option<Columns> {
        let of_plan = || self.plan.as_ref().map(|(_, columns)| Columns::clone(columns));
        let of_rows = || self.rows.as_ref().map(|rows| Columns::clone(&rows.columns));
        self.columns.clone().or_else(of_plan).or_else(of_rows)
    }
}

impl Talk {
    /// Keeps a prepared statement. The one without a name is replaced.
    ///
    /// # Errors
    ///
    /// There is one with the name, or there are too many.
    pub(super) fn keep_statement(&mut self, name: &str, prepared: Prepared) -> Result<(), Failure> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let why = format!("prepared statement \"{}\" already exists", told(name));
            return Err(Failure::new("42P05", why));
        }
        self.statements.remove(name);
        let bytes = self
            .statements
            .values()
            .map(|own| own.bytes)
            .fold(prepared.bytes, usize::saturating_add);
        if self.statements.len() >= STATEMENTS_MAX || bytes > STATEMENTS_MAX_BYTES {
            let why = format!(
                "a session has at most {STATEMENTS_MAX} prepared statements, and {STATEMENTS_MAX_BYTES} bytes of them"
            );
            return Err(Failure::too_much(why).with_hint("DEALLOCATE ALL"));
        }
        self.statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// Keeps a portal. The one without a name is replaced.
    ///
    /// # Errors
    ///
    /// There is one with the name, or there are too many.
    pub(super) fn keep_portal(&mut self, name: &str, portal: Portal) -> Result<(), Failure> {
        if !name.is_empty() && self.portals.contains_key(name) {
            return Err(Failure::new("42P03", format!("cursor \"{}\" already exists", told(name))));
        }
        self.portals.remove(name);
        let bytes =
            self.portals.values().map(|own| own.bytes).fold(portal.bytes, usize::saturating_add);
        if self.portals.len() >= PORTALS_MAX || bytes > PORTALS_MAX_BYTES {
            let why = format!(
                "a session has at most {PORTALS_MAX} portals and cursors, and {PORTALS_MAX_BYTES} bytes of texts and values for them"
            );
            return Err(Failure::too_much(why).with_hint("CLOSE ALL"));
        }
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    /// # Errors
    ///
    /// There is none with the name.
    pub(super) fn statement(&mut self, name: &str) -> Result<&mut Prepared, Failure> {
        let missing = || {
            let why = format!("prepared statement \"{}\" does not exist", told(name));
            Failure::new("26000", why)
        };
        self.statements.get_mut(name).ok_or_else(missing)
    }

    /// # Errors
    ///
    /// There is none with the name.
    pub(super) fn portal(&mut self, name: &str) -> Result<&mut Portal, Failure> {
        let missing = || Failure::new("34000", format!("cursor \"{}\" does not exist", told(name)));
        self.portals.get_mut(name).ok_or_else(missing)
    }
}
