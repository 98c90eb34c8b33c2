//! Links to insights and dashboards: whether a link is enabled, its token, its passwords, and its display settings. The
//! content of a link is in `shared`, its password check in `unlock`.

use serde_json::{Map, Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::body::{Exact, Field, body};
use crate::fields::{Fields, refused};
use crate::operation::input::{Named, input, part};
use crate::operation::output::{Created, Done};
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::documents::kinds::{Id, Linked};
use crate::routes::documents::rights;
use crate::routes::store::problem;
use weir_api::sharing as api;
use weir_metadata::Metadata;
use weir_metadata::documents::DocumentKey;
use weir_metadata::documents::shares::passwords::{
    NOTE_MAX_CHARS, PASSWORD_MAX_CHARS, PASSWORD_MIN_CHARS, SharePassword, check_required,
};
use weir_metadata::documents::shares::{Share, ShareChange};
use weir_metadata::passwords::PasswordHash;
use weir_metadata::violation::Violation;

/// The settings of a link, all booleans.
const SETTINGS: [&str; 6] =
    ["whitelabel", "noHeader", "showInspector", "legend", "detailed", "hideExtraDetails"];

/// The scope for reading links.
const READ: &str = "sharing_configuration:read";

/// The scope for changing them.
const WRITE: &str = "sharing_configuration:write";

input! {
    /// The link to a document.
    pub struct Retrieve<K: Linked> {
        path id: Id<K>,
    }
}

impl<K: Linked> Operation for Retrieve<K> {
    type Who = Principal;
    type Out = api::Sharing;
    const SCOPE: &'static str = READ;

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        self.id.document(cx).await?;
        let key = key::<K>(cx, self.id.number);
        let share = cx.metadata().share(key).await.map_err(problem)?;
        sharing(cx, share.as_ref()).await
    }
}

input! {
    /// Turns the link to a document on or off, or says how it shows it.
    pub struct Update<K: Linked> {
        path id: Id<K>,
        body change: SharingWrite,
    }
}

impl<K: Linked> Operation for Update<K> {
    type Who = Principal;
    type Out = api::Sharing;
    const SCOPE: &'static str = WRITE;

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        part::<Id<K>>(path, "id")?.document(cx).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let SharingWrite { enabled, password_required, settings } = self.change;
        let change = ShareChange {
            is_enabled: enabled,
            settings: settings.map(|Settings(settings)| settings),
            is_password_required: password_required,
            has_new_token: false,
        };
        changed(cx, key::<K>(cx, self.id.number), change).await
    }
}

input! {
    /// Gives the link to a document another token; the one before leads nowhere from then on.
    pub struct Refresh<K: Linked> {
        path id: Id<K>,
    }
}

impl<K: Linked> Operation for Refresh<K> {
    type Who = Principal;
    type Out = api::Sharing;
    const SCOPE: &'static str = WRITE;

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let change = ShareChange { has_new_token: true, ..ShareChange::default() };
        changed(cx, key::<K>(cx, self.id.number), change).await
    }
}

input! {
    /// Gives the link to a document one more password. Only this answer has the password itself.
    pub struct AddPassword<K: Linked> {
        path id: Id<K>,
        body password: SharePasswordWrite,
    }
}

impl<K: Linked> Operation for AddPassword<K> {
    type Who = Principal;
    type Out = Created<api::NewSharePassword>;
    const SCOPE: &'static str = WRITE;

    async fn look_up(cx: &Context<Principal>, path: &Named) -> Result<(), Problem> {
        part::<Id<K>>(path, "id")?.document(cx).await.map(drop)
    }

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let key = key::<K>(cx, self.id.number);
        check(cx, key).await?;
        let share = cx.metadata().share(key).await.map_err(problem)?;
        check_required(share.as_ref()).map_err(|violation| problem(violation.into()))?;
        let (given, note) = checked(self.password)?;
        let seed = auth::seed();
        let clear = given.unwrap_or_else(|| seed.share_password());
        let hashed = clear.clone();
        let hash = move |_: &dyn Fn() -> bool| PasswordHash::of(&hashed, &seed);
        let hash = cx.app.node.hashing.run("hash-password", hash).await;
        let hash = hash.map_err(|error| Problem::of(error.kind(), &error))?;
        let by = cx.user();
        let write = |metadata: Metadata| async move {
            metadata.add_share_password(by, key, hash, note).await
        };
        let own = cx.write("add-share-password", write).await?;
        Ok(Created(api::NewSharePassword { password: clear, told: password(cx, own) }))
    }
}

input! {
    /// Removes a password of a link. Whoever was let in by it is let in no more.
    pub struct RemovePassword<K: Linked> {
        path id: Id<K>,
        path password: i64,
    }
}

impl<K: Linked> Operation for RemovePassword<K> {
    type Who = Principal;
    type Out = Done;
    const SCOPE: &'static str = WRITE;

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let key = key::<K>(cx, self.id.number);
        check(cx, key).await?;
        let (by, password) = (cx.user(), self.password);
        let write = |metadata: Metadata| async move {
            metadata.remove_share_password(by, key, password).await
        };
        cx.write("remove-share-password", write).await?;
        Ok(Done)
    }
}

/// Validates a new password. Returns the password, if one was sent, and the note about its recipient.
fn checked(sent: SharePasswordWrite) -> Result<(Option<String>, String), Problem> {
    let SharePasswordWrite { raw_password, note } = sent;
    let given = raw_password.map(|Exact(text)| text).filter(|text| !text.is_empty());
    let note = note.flatten().unwrap_or_default();
    let chars = given.as_ref().map(|text| text.chars().count());
    if chars.is_some_and(|chars| chars < PASSWORD_MIN_CHARS) {
        let detail = format!("Ensure this field has at least {PASSWORD_MIN_CHARS} characters.");
        return Err(refused("raw_password", "min_length", detail));
    }
    for (name, chars, most) in [
        ("raw_password", chars.unwrap_or_default(), PASSWORD_MAX_CHARS),
        ("note", note.chars().count(), NOTE_MAX_CHARS),
    ] {
        if chars > most {
            return Err(problem(Violation::too_long(name, most).into()));
        }
    }
    Ok((given, note))
}

/// The key of the document with this id in the project of the caller.
fn key<K: Linked>(cx: &Context<Principal>, id: i64) -> DocumentKey {
    DocumentKey { project: cx.who.project.id, kind: K::KIND, id }
}

/// Checks that the document exists, and that the caller may change it.
async fn check(cx: &Context<Principal>, key: DocumentKey) -> Result<(), Problem> {
    let DocumentKey { project, kind, id } = key;
    let document = cx.metadata().document(project, kind, id).await.map_err(problem)?;
    rights::check_edit(&document, &cx.who.user)
}

async fn changed(
    cx: &Context<Principal>,
    key: DocumentKey,
    change: ShareChange,
) -> Result<api::Sharing, Problem> {
    check(cx, key).await?;
    let by = cx.user();
    let write = |metadata: Metadata| async move {
        metadata.change_share(by, key, change, auth::seed()).await
    };
    let share = cx.write("change-share", write).await?;
    sharing(cx, Some(&share)).await
}

async fn sharing(cx: &Context<Principal>, share: Option<&Share>) -> Result<api::Sharing, Problem> {
    let passwords = match share {
        Some(share) => cx.metadata().share_passwords(share.key()).await.map_err(problem)?,
        None => Vec::new(),
    };
    let settings = share.map(|share| &share.settings).filter(|settings| !settings.is_empty());
    Ok(api::Sharing {
        created_at: share.map(|share| share.created_at.to_rfc3339()),
        enabled: share.is_some_and(|share| share.is_enabled),
        access_token: share.map(|share| share.token.clone()),
        settings: settings.map(shown),
        password_required: share.is_some_and(|share| share.is_password_required),
        share_passwords: passwords.into_iter().map(|own| password(cx, own)).collect(),
    })
}

fn password(cx: &Context<Principal>, own: SharePassword) -> api::SharePassword {
    let snapshot = cx.snapshot();
    let user = snapshot.user(own.created_by).filter(|user| !user.is_removed());
    api::SharePassword {
        id: own.id,
        created_at: own.created_at.to_rfc3339(),
        note: own.note,
        created_by_email: user.map_or("deleted user", |user| &user.email).to_owned(),
        is_active: true,
    }
}

/// Stored settings as clients see them.
pub(in crate::routes) fn shown(settings: &Map<String, Value>) -> api::SharingSettings {
    let is = |name: &str| settings.get(name).and_then(Value::as_bool);
    api::SharingSettings {
        detailed: is("detailed"),
        hide_extra_details: is("hideExtraDetails"),
        legend: is("legend"),
        no_header: is("noHeader"),
        show_inspector: is("showInspector"),
        whitelabel: is("whitelabel"),
    }
}

/// The settings of a link. Unknown ones are ignored, as in PostHog.
#[derive(Clone, Debug, Default)]
pub struct Settings(Map<String, Value>);

/// Null unsets all.
impl Field for Option<Settings> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        if fields.peek(name).is_some_and(Value::is_null) {
            return Ok(fields.nullable_value(name).map(|_| Settings::default()));
        }
        let Some(sent) = fields.object(name)? else { return Ok(None) };
        let mut settings = Map::new();
        for own in SETTINGS {
            match sent.get(own) {
                None | Some(Value::Null) => {}
                Some(value @ Value::Bool(_)) => {
                    settings.insert(own.to_owned(), value.clone());
                }
                Some(_) => {
                    let name = format!("{name}__{own}");
                    return Err(refused(name, "invalid_input", "Must be a valid boolean."));
                }
            }
        }
        Ok(Some(Settings(settings)))
    }

    fn schema() -> Value {
        json!({"anyOf": [{"$ref": "#/components/schemas/SharingSettings"}, {"type": "null"}]})
    }
}

body! {
    /// A change of a link.
    pub struct SharingWrite {
        /// Whether it leads to the document.
        enabled: Option<bool>,
        /// Whether whoever follows the link has to give one of its passwords.
        password_required: Option<bool>,
        /// How it shows the document; null unsets all.
        settings: Option<Settings>,
    }
}

body! {
    /// What a new password is made of.
    pub struct SharePasswordWrite {
        /// The password, of at least 8 characters; without one, or with an empty one, the server makes one.
        raw_password: Option<Exact> = {"maxLength": 200},
        /// Whom it is for.
        note: Option<Option<String>> = {"maxLength": 100},
    }
}
