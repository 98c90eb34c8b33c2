//! What the receiver of an error can do about it.
//!
//! Every module has an error enum of its own with a `kind()`; `http/response.rs` turns a [`Kind`]
//! into a status once. No messages and no status codes here.

/// The reaction an error asks of whoever receives it. Names the reaction, not the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong; sending it again will fail again.
    Invalid,
    /// No valid credential came with the request.
    Unauthorized,
    /// The credential is valid, and not for this.
    Forbidden,
    /// The thing named does not exist.
    NotFound,
    /// The body or a part of it exceeds a configured limit.
    TooLarge,
    /// The thing changed since the sender looked.
    Conflict,
    /// A queue, a budget or a quota is full; nothing was stored; try again after a pause.
    Overloaded,
    /// The work took longer than its limit and was stopped.
    Timeout,
    /// The server refuses such requests until an operator acts or a restart completes.
    Unavailable,
    /// A bug, or data that cannot be what it is.
    Internal,
}
