//! The protocol of PostgreSQL, version 3: messages of clients ([`frontend`]), messages of the server ([`backend`]), and the
//! connection that carries them ([`connection`]). Nothing here knows what a statement means.
//!
//! Why not a library: the one that there is reads a message of a gigabyte into memory, before a client has signed in as
//! well, and its decoders read over the end of a message that is too short, which is a panic or the next message.

pub(crate) mod backend;
pub(crate) mod connection;
pub(crate) mod frontend;
