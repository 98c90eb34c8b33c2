//! The filters of older clients, unparsed: [`Sent`].

use std::marker::PhantomData;

use serde_json::Value;

use crate::openapi::{AnyObject, Body, Parameter, Shape};
use crate::operation::input::{InBoth, Parts};
use crate::response::Problem;
use crate::routes::insights::{OFFSET, invalid};
use weir_insights::legacy;
use weir_insights::legacy::Filter;

/// The parameters of a kind of filters.
pub trait Parameters: Send {
    /// The parameters.
    const OWN: &'static [Parameter];
}

/// Declares the parameters of a kind of filters.
macro_rules! parameters {
    ($(#[$of:meta])* $name:ident: [$($parameter:expr),* $(,)?]) => {
        $(#[$of])*
        #[derive(Debug)]
        pub struct $name;

        impl crate::routes::insights::filters::Parameters for $name {
            const OWN: &'static [crate::openapi::Parameter] = &[$($parameter),*];
        }
    };
}

pub(super) use parameters;

/// The filters of a request: those of the query, and with POST those of the body, which take precedence.
#[derive(Debug)]
pub struct Sent<P> {
    /// All filters.
    pub(super) filter: Filter,
    /// The offset in the query.
    pub(super) offset: Option<String>,
    parameters: PhantomData<fn() -> P>,
}

impl<P: Parameters> InBoth for Sent<P> {
    fn describe(shape: &mut Shape) {
        shape.query.extend_from_slice(P::OWN);
        shape.body = Some(Body::of::<AnyObject>(true));
    }

    fn take(parts: &mut Parts<'_>) -> Result<Self, Problem> {
        let request = parts.request;
        let mut filter: Filter = request
            .query_all()
            .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
            .collect();
        filter.remove("personal_api_key");
        filter.extend(std::mem::take(&mut parts.body).into_values());
        legacy::check(&filter).map_err(|error| invalid(&error))?;
        let offset = request.query(OFFSET).map(|offset| offset.into_owned());
        Ok(Self { filter, offset, parameters: PhantomData })
    }
}
