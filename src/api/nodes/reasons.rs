//! Reasons why fields are accepted without an effect.

pub(super) const SHOWN: &str = "only says how an answer is drawn";
pub(super) const LOGGED: &str = "goes into a log of queries, which Weir has by itself";
pub(super) const OLD_ANSWER: &str = "an earlier answer or state that clients keep in the node";
pub(super) const SPEED: &str =
    "only says how the database of the original computes the same answer";
pub(super) const OTHER_USE: &str =
    "clients send entities with it, and it has a meaning in other places alone";
pub(super) const NO_RULES: &str = "applies rules of a project, of which there are none";
pub(super) const OF_FORM: &str = "is a state of the form that it was made in";
pub(super) const OF_SERVER: &str = "a key, or how a client wants to be told of the answer";
