//! The road from a request body to a durable acknowledgement.
