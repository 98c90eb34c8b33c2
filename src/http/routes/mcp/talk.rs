//! Who talks with the server, and in which revision of the protocol: [`Talk`], which tools, resources and prompts get.

use std::fmt;

use tokio::time::Instant;

use crate::fields::refused;
use crate::response::Problem;
use crate::routes::mcp::protocol::Revision;
use crate::routes::mcp::token::Seal;
use crate::routes::pages::visit::Asking;
use weir_api::node::NodeError;
use weir_web::parts;

/// The caller of one request.
pub(super) struct Talk {
    /// Performs operations with the caller's rights.
    pub(super) asking: Asking,
    /// Makes the tokens of changes.
    pub(super) seal: Seal,
    /// The revision of the messages.
    pub(super) revision: Revision,
    /// When the time of the request ends.
    pub(super) deadline: Instant,
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Talk {
    /// The address of a page of the project.
    pub(super) fn page(&self, path: &str) -> String {
        self.address(&parts::page(self.asking.project(), path))
    }

    /// The address of a path of the server.
    pub(super) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.asking.server)
    }
}

/// The problem of an argument.
pub(super) fn wrong(error: &NodeError) -> Problem {
    refused(error.field.clone(), "invalid_input", error.detail.clone())
}

/// The problem of the argument `name`.
pub(super) fn of_argument(name: &'static str, detail: impl Into<String>) -> Problem {
    refused(name, "invalid_input", detail.into())
}

/// A limit of rows or the like: as it was sent, within its bounds.
pub(super) fn limit(sent: Option<usize>, usual: usize, most: usize) -> usize {
    sent.unwrap_or(usual).clamp(1, most)
}
