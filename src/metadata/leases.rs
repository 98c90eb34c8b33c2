//! Who does something that one server at a time is to do, and whether it still does: rows of the table `leases`.
//!
//! A holder raises the beat of its row about once a second. Others see that it is alive by the beat alone, on their own
//! clocks, so no clocks are compared. A lease keeps servers from getting in each other's way; nothing is safe by it.

use std::fmt;

use crate::error::MetadataError;
use crate::sql::Builder;
use crate::{Metadata, sql};

/// A lease as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who has it; nobody, if the text is empty.
    pub holder: String,
    /// How often it was taken and renewed.
    pub beat: i64,
    /// URL at which the holder takes requests that others pass on; empty if they cannot.
    pub url: String,
    /// Secret with which it takes them.
    pub secret: String,
    /// Whether the holder has told that it has opened what it has the lease of, as nodes of a cluster do of their shards.
    pub is_open: bool,
}

/// The columns of a row: holder, beat, URL, secret, and who has opened it.
type Row = (String, i64, String, String, String);

impl Lease {
    /// The lease of a row.
    fn read((holder, beat, mut url, mut secret, opened_by): Row) -> Self {
        // A server of an earlier version takes a lease without changing these.
        if !secret.starts_with(&holder) {
            (url, secret) = (String::new(), String::new());
        }
        let is_open = !holder.is_empty() && opened_by == holder;
        Self { holder, beat, url, secret, is_open }
    }
}

/// Without the secret.
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holder, beat, url, secret: _, is_open } = self;
        f.debug_struct("Lease")
            .field("holder", holder)
            .field("beat", beat)
            .field("url", url)
            .field("is_open", is_open)
            .finish_non_exhaustive()
    }
}

/// Who takes a lease.
#[derive(Clone)]
pub struct Holder {
    /// Names it; never used before.
    pub name: String,
    /// See [`Lease::url`].
    pub url: String,
    /// See [`Lease::secret`]. It begins with the name.
    pub secret: String,
}

/// Without the secret.
impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, url, secret: _ } = self;
        f.debug_struct("Holder").field("name", name).field("url", url).finish_non_exhaustive()
    }
}

impl Metadata {
    /// Reads a lease; `None` if nobody has ever had it.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn lease(&self, name: &str) -> Result<Option<Lease>, MetadataError> {
        let found = self.leases(&[name.to_owned()]).await?;
        Ok(found.into_iter().next().map(|(_, lease)| lease))
    }

    /// Reads the leases with these names, by name, with one statement; a name that nobody has ever had is left out. Names
    /// are as many as shards: each is a value of the statement.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn leases(&self, names: &[String]) -> Result<Vec<(String, Lease)>, MetadataError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut select = Builder::new(
            "SELECT name, holder, beat, url, secret, opened_by FROM leases WHERE name IN ",
        );
        select.push_list(names).push(" ORDER BY name");
        let select = select.build_as();
        let rows: Vec<(String, String, i64, String, String, String)> =
            select.fetch_all(&mut self.shared.db.reader().await?).await?;
        let lease = |(name, holder, beat, url, secret, opened_by)| {
            (name, Lease::read((holder, beat, url, secret, opened_by)))
        };
        Ok(rows.into_iter().map(lease).collect())
    }

    /// Takes a lease if it still is as it was `seen`. Returns whether it was.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn take_lease(
        &self,
        name: &str,
        holder: &Holder,
        seen: Option<&Lease>,
    ) -> Result<bool, MetadataError> {
        let Holder { name: own, url, secret } = holder;
        let taken = match seen {
            None => sql::query(
                "INSERT INTO leases (name, holder, url, secret, beat) VALUES ($1, $2, $3, $4, 1)
                 ON CONFLICT (name) DO NOTHING",
            ),
            Some(_) => sql::query(
                "UPDATE leases SET holder = $2, url = $3, secret = $4, beat = beat + 1
                 WHERE name = $1 AND holder = $5 AND beat = $6",
            ),
        };
        let mut taken = taken.bind(name).bind(&**own).bind(&**url).bind(&**secret);
        if let Some(seen) = seen {
            taken = taken.bind(&*seen.holder).bind(seen.beat);
        }
        Ok(taken.execute(&mut self.shared.db.apart().await?).await? > 0)
    }

    /// Renews a lease, and notes whether the holder has opened what it has the lease of. Returns whether it still has it.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn renew_lease(
        &self,
        name: &str,
        holder: &str,
        is_open: bool,
    ) -> Result<bool, MetadataError> {
        let renew = "UPDATE leases SET beat = beat + 1, opened_by = $3
             WHERE name = $1 AND holder = $2";
        let opened_by = if is_open { holder } else { "" };
        let renew = sql::query(renew).bind(name).bind(holder).bind(opened_by);
        Ok(renew.execute(&mut self.shared.db.apart().await?).await? > 0)
    }

    /// Gives a lease back, so that the next server need not wait until it is dead.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn give_lease_back(&self, name: &str, holder: &str) -> Result<(), MetadataError> {
        let give = "UPDATE leases SET holder = '', url = '', secret = '', beat = beat + 1
             WHERE name = $1 AND holder = $2";
        let give = sql::query(give).bind(name).bind(holder);
        give.execute(&mut self.shared.db.apart().await?).await?;
        Ok(())
    }
}
