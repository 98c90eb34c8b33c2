//! What may stand in an object: [`Fields`], and in each of them: [`Content`].

/// The fields of an object.
#[derive(Debug)]
pub(super) struct Fields {
    /// Those of another type of which this is one.
    pub(super) base: Option<&'static Fields>,
    /// Those that are read, or refused by their reader, and what stands in them.
    pub(super) read: &'static [(&'static str, Content)],
    /// Those that PostHog's clients send and that change no number here, by the reason.
    pub(super) ignored: &'static [(&'static str, &'static [&'static str])],
    /// Those that would change the answer and are not available; nothing may stand in them.
    pub(super) lacking: &'static [&'static str],
}

/// What stands in a field, as far as it has fields itself. What has another form is for its reader to refuse.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// A value.
    Value,
    /// One of these values, as JSON; what it says is so anyway.
    Fixed(&'static [&'static str]),
    /// An object.
    Object(&'static Fields),
    /// A list of objects.
    List(&'static Fields),
    /// Objects by names of the client's own.
    Map(&'static Fields),
    /// Events of a name or an action, with more fields.
    Entity(&'static Fields),
    /// A list of these.
    Entities(&'static Fields),
    /// Filters of properties, in a list or in groups.
    Filters,
    /// Another node.
    Node,
    /// Another node, which is one of these without a kind.
    NodeOf(&'static Fields),
}

impl Fields {
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |own| own.base)
    }

    /// What stands in a field that is read.
    pub(super) fn content(&self, name: &str) -> Option<Content> {
        let known = |own: &Self| own.read.iter().find(|(known, _)| *known == name);
        self.all().find_map(known).map(|(_, content)| *content)
    }

    /// Whether a field is taken and changes nothing.
    pub(super) fn is_ignored(&self, name: &str) -> bool {
        let mut lists = self.all().flat_map(|own| own.ignored);
        lists.any(|(_, names)| names.contains(&name))
    }

    /// Whether nothing may stand in a field.
    pub(super) fn is_lacking(&self, name: &str) -> bool {
        self.all().any(|own| own.lacking.contains(&name))
    }

    /// The names that somebody may have meant: its own, then those of the objects in it.
    pub(super) fn names(&self) -> Vec<String> {
        let own = || self.all().flat_map(|own| own.read);
        let mut names: Vec<String> = own().map(|(name, _)| (*name).to_owned()).collect();
        for (name, content) in own() {
            if let Content::Object(inner) = content {
                let inner = inner.all().flat_map(|own| own.read);
                names.extend(inner.map(|(field, _)| format!("{name}.{field}")));
            }
        }
        names
    }
}
