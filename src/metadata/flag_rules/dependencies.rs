//! Flag dependencies: references exist, are active, and form no cycle. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::cohorts::StoredCohort;
use crate::flags::{FlagId, StoredFlag};
use crate::violation::Violation;

/// Names of flags that an error lists; of further ones it gives the number.
const NAMED_MAX: usize = 5;

/// The flags of a project, with one of them to be checked.
#[derive(Clone, Copy, Debug)]
pub struct Graph<'a> {
    /// The flag to be checked; `None` before it has an id.
    pub flag: Option<FlagId>,
    /// Its key.
    pub key: &'a str,
    /// The flags of the project that are not deleted, with or without the one to be checked.
    pub live: &'a [Arc<StoredFlag>],
    /// The cohorts of the project that are not deleted.
    pub cohorts: &'a [Arc<StoredCohort>],
}

impl<'a> Graph<'a> {
    /// Checks the dependencies that new `filters` of the flag have.
    pub(super) fn check(&self, filters: &Map<String, Value>) -> Result<(), Violation> {
        let references: Vec<&Value> = references(filters).collect();
        if references.is_empty() {
            return Ok(());
        }
        let live: HashMap<FlagId, &StoredFlag> =
            self.live.iter().map(|flag| (flag.id, flag.as_ref())).collect();
        let mut direct = Vec::with_capacity(references.len());
        for reference in references {
            direct.push(self.target(reference, &live)?);
        }
        self.check_acyclic(&direct, &live)
    }

    /// The flag that a reference names.
    fn target(
        &self,
        reference: &Value,
        live: &HashMap<FlagId, &StoredFlag>,
    ) -> Result<FlagId, Violation> {
        let Some(id) = flag_id(reference) else {
            let name = reference.as_str().map_or_else(|| reference.to_string(), str::to_owned);
            return Err(Violation::filters(format!(
                "Flag dependencies must reference flag IDs (integers), not flag keys. \
                 Invalid reference: '{name}'"
            )));
        };
        if self.flag == Some(id) {
            let detail = format!("Feature flag '{}' cannot depend on itself", self.key);
            return Err(Violation::filters(detail));
        }
        match live.get(&id) {
            None => Err(Violation::filters(format!(
                "Flag dependency references non-existent flag with ID {id}"
            ))),
            Some(flag) if !flag.active => Err(Violation::filters(format!(
                "Cannot create dependency on disabled flag '{}' (ID: {id}). \
                 Flag dependencies must reference active flags only.",
                flag.key
            ))),
            Some(_) => Ok(id),
        }
    }

    /// Searches a path from the `direct` dependencies back to the flag.
    ///
    /// Visits each flag once, with an explicit stack: chains may be as long as there are flags.
    fn check_acyclic(
        &self,
        direct: &[FlagId],
        live: &HashMap<FlagId, &StoredFlag>,
    ) -> Result<(), Violation> {
        // A flag without an id cannot be referenced.
        let Some(this) = self.flag else {
            return Ok(());
        };
        let mut came_from: HashMap<FlagId, FlagId> = HashMap::new();
        let mut stack: Vec<(FlagId, FlagId)> = direct.iter().map(|&next| (next, this)).collect();
        while let Some((flag, from)) = stack.pop() {
            if flag == this {
                return Err(self.cycle(from, this, &came_from, live));
            }
            if came_from.contains_key(&flag) {
                continue;
            }
            came_from.insert(flag, from);
            let next = live.get(&flag).into_iter().flat_map(|stored| of(&stored.filters));
            stack.extend(next.map(|next| (next, flag)));
        }
        Ok(())
    }

    /// The error for a cycle that ends at `last` and closes at `this`.
    fn cycle(
        &self,
        last: FlagId,
        this: FlagId,
        came_from: &HashMap<FlagId, FlagId>,
        live: &HashMap<FlagId, &StoredFlag>,
    ) -> Violation {
        let mut names = vec![self.key];
        let mut at = last;
        while at != this {
            names.push(live.get(&at).map_or("", |flag| flag.key.as_str()));
            let Some(&from) = came_from.get(&at) else { break };
            at = from;
        }
        names.push(self.key);
        names.reverse();
        Violation::filters(format!("Circular dependency detected: {}", names.join(" → ")))
    }

    /// Checks that the flag may be deleted: no active flag depends on it.
    ///
    /// # Errors
    ///
    /// A violation that names the flags.
    pub fn check_deletable(&self) -> Result<(), Violation> {
        self.check_unneeded("delete")
    }

    /// Checks that the flag may be deactivated: no active flag depends on it.
    ///
    /// # Errors
    ///
    /// A violation that names the flags.
    pub fn check_disableable(&self) -> Result<(), Violation> {
        self.check_unneeded("disable")
    }

    /// Checks that the flag may be activated: its dependencies are active.
    ///
    /// # Errors
    ///
    /// A violation that names the flags.
    pub fn check_enableable(&self, filters: &Value) -> Result<(), Violation> {
        let needed: Vec<FlagId> = of(filters).collect();
        let disabled = self.live.iter().filter(|flag| !flag.active && needed.contains(&flag.id));
        match list(disabled) {
            None => Ok(()),
            Some(names) => Err(Violation::general(format!(
                "Cannot enable this feature flag because it depends on disabled flags: {names}. \
                 Please enable the dependency flags first."
            ))),
        }
    }

    fn check_unneeded(&self, action: &str) -> Result<(), Violation> {
        let Some(this) = self.flag else {
            return Ok(());
        };
        let needs = |flag: &&Arc<StoredFlag>| {
            flag.active && flag.id != this && of(&flag.filters).any(|needed| needed == this)
        };
        match list(self.live.iter().filter(needs)) {
            None => Ok(()),
            Some(names) => Err(Violation::general(format!(
                "Cannot {action} this feature flag because other flags depend on it: {names}. \
                 Please update or {action} the dependent flags first."
            ))),
        }
    }
}

/// The flags that stored filters depend on; with repetitions.
pub fn of(filters: &Value) -> impl Iterator<Item = FlagId> {
    filters.as_object().into_iter().flat_map(references).filter_map(flag_id)
}

/// The flag that a property filter references, if it does.
pub fn of_property(property: &Map<String, Value>) -> Option<FlagId> {
    let is_flag = property.get("type").and_then(Value::as_str) == Some("flag");
    property.get("key").filter(|_| is_flag).and_then(flag_id)
}

/// The references of the flag properties of all conditions, as written.
fn references(filters: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    filters
        .get("groups")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|group| group.get("properties").and_then(Value::as_array))
        .flatten()
        .filter(|property| property.get("type").and_then(Value::as_str) == Some("flag"))
        .filter_map(|property| property.get("key"))
}

fn flag_id(reference: &Value) -> Option<FlagId> {
    let id = match reference {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_i64(),
    };
    id.map(FlagId)
}

/// `a (ID: 1), b (ID: 2)`, sorted by key, at most [`NAMED_MAX`]; `None` for no flags.
fn list<'a>(flags: impl Iterator<Item = &'a Arc<StoredFlag>>) -> Option<String> {
    let mut flags: Vec<&StoredFlag> = flags.map(Arc::as_ref).collect();
    flags.sort_by(|a, b| a.key.cmp(&b.key));
    let mut names: Vec<String> = flags
        .iter()
        .take(NAMED_MAX)
        .map(|flag| format!("{} (ID: {})", flag.key, flag.id))
        .collect();
    match flags.len().checked_sub(NAMED_MAX) {
        None | Some(0) => {}
        Some(more) => names.push(format!("and {more} more")),
    }
    (!names.is_empty()).then(|| names.join(", "))
}
