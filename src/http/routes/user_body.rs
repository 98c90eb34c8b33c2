//! A user embedded in another object: [`user`].

use weir_api::accounts as api;
use weir_metadata::accounts::User;

/// The fields of `user` that other users may see.
pub(super) fn user(user: &User) -> api::User {
    api::User {
        id: user.id.0,
        uuid: user.uuid.to_string(),
        distinct_id: user.distinct_id.clone(),
        first_name: user.first_name.clone(),
        email: user.email.clone(),
        is_email_verified: user.is_email_verified,
    }
}
