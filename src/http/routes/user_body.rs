//! A user embedded in another object: [`UserBody`].

use schemars::JsonSchema;
use serde::Serialize;

use weir_metadata::accounts::User;

/// The fields of the API specification in its order.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "User")]
pub(super) struct UserBody {
    id: i64,
    uuid: String,
    distinct_id: String,
    first_name: String,
    email: String,
    is_email_verified: bool,
}

impl UserBody {
    /// The fields of `user` that other users may see.
    pub(super) fn new(user: &User) -> Self {
        Self {
            id: user.id.0,
            uuid: user.uuid.to_string(),
            distinct_id: user.distinct_id.clone(),
            first_name: user.first_name.clone(),
            email: user.email.clone(),
            is_email_verified: user.is_email_verified,
        }
    }
}
