//! Share links to insights and dashboards.

use schemars::JsonSchema;
use serde::Serialize;

/// The link to a document.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Sharing {
    /// The time when there was a link first.
    pub created_at: Option<String>,
    /// Whether it leads to the document.
    pub enabled: bool,
    /// What it ends with. Null until there is a link first.
    pub access_token: Option<String>,
    /// How it shows the document; null where nothing was set.
    pub settings: Option<SharingSettings>,
    /// Whether whoever follows it has to give one of its passwords.
    pub password_required: bool,
    /// Newest first.
    pub share_passwords: Vec<SharePassword>,
}

/// How a link shows the document. What was not set is absent.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct SharingSettings {
    /// Kept for clients that set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub detailed: Option<bool>,
    /// Leaves out the name and description of an insight.
    #[serde(rename = "hideExtraDetails", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub hide_extra_details: Option<bool>,
    /// Kept for clients that set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub legend: Option<bool>,
    /// Leaves out the head of the page.
    #[serde(rename = "noHeader", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub no_header: Option<bool>,
    /// Kept for clients that set it.
    #[serde(rename = "showInspector", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub show_inspector: Option<bool>,
    /// Leaves out that the page is one of Weir.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub whitelabel: Option<bool>,
}

/// A password of a link.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SharePassword {
    /// Its id among those of the link.
    pub id: i64,
    /// The time when it was made.
    pub created_at: String,
    /// Whom it is for.
    pub note: String,
    /// `deleted user` once the user has left.
    pub created_by_email: String,
    /// Always true: those that are removed are not in the list.
    pub is_active: bool,
}

/// A new password of a link.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct NewSharePassword {
    /// The password itself; no other answer has it.
    pub password: String,
    /// What later answers have of it.
    #[serde(flatten)]
    pub told: SharePassword,
}
