//! [`Kind`]: the class of an error, by what its receiver can do about it.
//!
//! Every module has an error enum of its own with a `kind()`; `http/response.rs` turns a [`Kind`]
//! into a status once. No messages and no status codes here.

/// The class of an error, by the reaction expected of the caller, not by its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong; sending it again will fail again.
    Invalid,
    /// The request carries no valid credential.
    Unauthorized,
    /// The credential is valid, but lacks the permission.
    Forbidden,
    /// The requested object does not exist.
    NotFound,
    /// The body or a part of it exceeds a configured limit.
    TooLarge,
    /// The object changed since the sender read it.
    Conflict,
    /// A queue, a budget or a quota is full; nothing was stored; try again after a pause.
    Overloaded,
    /// The operation took longer than its time limit and was stopped.
    Timeout,
    /// The server refuses requests of this kind until an operator acts or a restart completes.
    Unavailable,
    /// A bug in the server, or corrupt data.
    Internal,
}
