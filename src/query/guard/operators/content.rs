//! What a function in place of an operator consists of: [`OperatedContent`].

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::error::Result;
use datafusion::logical_expr::{Operator, ScalarUDF, TypeSignature};
use serde::{Deserialize, Serialize};

use crate::guard::operators::{Operated, Operation};
use crate::kernel::type_text::TypeText;

/// What a function in place of an operator consists of, for plans that another process executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OperatedContent {
    operation: OperationContent,
    arguments: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum OperationContent {
    Concat,
    /// The signs of the operators.
    Checked(Vec<Sign>),
    /// A type, whether it may be null, and whether values that cannot be cast become null.
    Cast(TypeText, bool, bool),
    Like {
        negated: bool,
        case_insensitive: bool,
    },
}

/// An operator of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Sign {
    Plus,
    Minus,
    Multiply,
    Divide,
    Modulo,
}

const SIGNS: [(Sign, Operator); 5] = [
    (Sign::Plus, Operator::Plus),
    (Sign::Minus, Operator::Minus),
    (Sign::Multiply, Operator::Multiply),
    (Sign::Divide, Operator::Divide),
    (Sign::Modulo, Operator::Modulo),
];

impl OperatedContent {
    /// That of a function; `None` if it is not in place of an operator, or its type has no text.
    pub(crate) fn of(function: &ScalarUDF) -> Option<Self> {
        let own = function.inner().downcast_ref::<Operated>()?;
        let TypeSignature::Any(arguments) = own.signature.type_signature else { return None };
        let operation = match &own.operation {
            Operation::Concat => OperationContent::Concat,
            Operation::Checked(operators) => {
                let sign = |own: &Operator| SIGNS.iter().find(|(_, known)| known == own);
                let signs = operators.iter().map(|own| sign(own).map(|(sign, _)| *sign));
                OperationContent::Checked(signs.collect::<Option<_>>()?)
            }
            Operation::Cast(field, is_lenient) => OperationContent::Cast(
                TypeText::of(field.data_type())?,
                field.is_nullable(),
                *is_lenient,
            ),
            Operation::Like { negated, case_insensitive } => {
                OperationContent::Like { negated: *negated, case_insensitive: *case_insensitive }
            }
        };
        Some(Self { operation, arguments })
    }

    /// The function.
    ///
    /// # Errors
    ///
    /// Its type is none.
    pub(crate) fn function(self) -> Result<ScalarUDF> {
        let operation = match self.operation {
            OperationContent::Concat => Operation::Concat,
            OperationContent::Checked(signs) => {
                let operator = |own: &Sign| SIGNS.iter().find(|(known, _)| known == own);
                let known = signs.iter().filter_map(|own| operator(own).map(|(_, own)| *own));
                Operation::Checked(known.collect())
            }
            OperationContent::Cast(text, is_nullable, is_lenient) => {
                let field = Field::new("", text.data_type()?, is_nullable);
                Operation::Cast(Arc::new(field), is_lenient)
            }
            OperationContent::Like { negated, case_insensitive } => {
                Operation::Like { negated, case_insensitive }
            }
        };
        Ok(ScalarUDF::new_from_impl(Operated::new(operation, self.arguments)))
    }
}
