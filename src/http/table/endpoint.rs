//! One row of the table: [`Endpoint`], and [`op`], which makes a row from an operation.

use std::borrow::Cow;

use crate::openapi::{Refusal, Shape, Words};
use crate::operation;
use crate::operation::serve::{Serve, serve};
use crate::operation::{Caller, Operation};
use crate::rendering::Renderings;
use crate::table::COMPRESSED;

/// One row of the table.
#[derive(Debug)]
pub struct Endpoint {
    /// Methods, separated by spaces, such as `PUT PATCH`.
    pub(super) methods: &'static str,
    /// The path in the table; also the name in metrics and logs.
    pub path: &'static str,
    /// The scope that a key needs, such as `person:read`.
    pub scope: &'static str,
    /// The formats of the response.
    pub renderings: Renderings,
    /// Whether `Allow` lists the methods.
    pub(super) is_allowed: bool,
    /// Whether it may read very many events or persons.
    pub(super) is_analytics: bool,
    /// The parameter, with its value in lower case, that makes a request an analytics request.
    analytics_with: Option<(&'static str, &'static str)>,
    words: Words,
    shape: fn() -> Shape,
    /// Serves a request.
    pub(crate) serve: Serve,
}

/// A row whose endpoint is an operation.
pub(super) const fn op<O: Operation>(
    methods: &'static str,
    path: &'static str,
    summary: &'static str,
) -> Endpoint {
    assert!(O::Who::ROOT.is_that_of(path), "who asks is not who such a path names");
    Endpoint {
        methods,
        path,
        scope: O::SCOPE,
        renderings: Renderings::Json,
        is_allowed: true,
        is_analytics: false,
        analytics_with: None,
        words: Words::new(summary),
        shape: operation::shape::<O>,
        serve: serve::<O>,
    }
}

impl Endpoint {
    /// The same, where the response may also be a file: CSV, JSON lines, Parquet, Arrow.
    pub(super) const fn or_file(mut self) -> Self {
        self.renderings = Renderings::JsonOrFile;
        self
    }

    /// The same, where the body selects the format of the response.
    pub(super) const fn own_rendering(mut self) -> Self {
        self.renderings = Renderings::Own;
        self
    }

    /// The same for an endpoint that may read very many events or persons; the analytics rate limits of keys apply to
    /// it.
    pub(super) const fn analytics(mut self) -> Self {
        self.is_analytics = true;
        self
    }

    /// The same, only for requests where a parameter has this value.
    pub(super) const fn analytics_with(mut self, parameter: (&'static str, &'static str)) -> Self {
        self.analytics_with = Some(parameter);
        self
    }

    /// The same, where `Allow` does not list the methods, because the path has an error text of its own, or is an
    /// alias.
    pub(super) const fn unlisted(mut self) -> Self {
        self.is_allowed = false;
        self
    }

    /// The same with another tag.
    pub(super) const fn tagged(mut self, tag: &'static str) -> Self {
        self.words.tag = Some(tag);
        self
    }

    /// The same with another prefix of its operation ids.
    pub(super) const fn named(mut self, name: &'static str) -> Self {
        self.words.name = Some(name);
        self
    }

    /// The same with another description of the response.
    pub(super) const fn says(mut self, says: &'static str) -> Self {
        self.words.says = Some(says);
        self
    }

    /// The same with further explanations.
    pub(super) const fn notes(mut self, notes: &'static str) -> Self {
        self.words.notes = notes;
        self
    }

    /// The same, marked as deprecated in favor of another endpoint.
    pub(super) const fn deprecated(mut self) -> Self {
        self.words.is_deprecated = true;
        self
    }

    /// The same with further error responses of the components.
    pub(super) const fn or(mut self, refusals: &'static [Refusal]) -> Self {
        self.words.refusals = refusals;
        self
    }

    /// The parts of its OpenAPI description.
    pub(crate) fn described(&self) -> (Words, Shape) {
        (self.words, (self.shape)())
    }

    /// The methods of the endpoint.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.methods.split(' ')
    }

    /// The `:names` of the path, in their order; the first is the organization where there is one.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let organization = self.path.starts_with("O/").then_some("organization");
        let own = self.path.split('/').filter_map(|part| part.strip_prefix(':'));
        organization.into_iter().chain(own)
    }

    /// Whether a request reads events or persons; `query` returns the value of a query parameter.
    pub fn is_analytics<'q>(&self, query: impl Fn(&str) -> Option<Cow<'q, str>>) -> bool {
        let has = |(name, wanted): (&str, &str)| {
            query(name).is_some_and(|value| value.to_lowercase() == wanted)
        };
        self.is_analytics || self.analytics_with.is_some_and(has)
    }

    /// Whether responses are compressed for clients that accept it.
    pub fn is_compressed(&self) -> bool {
        COMPRESSED.iter().any(|begin| self.path.starts_with(begin))
    }

    pub(super) fn takes(&self, method: &str) -> bool {
        self.methods().any(|own| own == method)
    }
}
