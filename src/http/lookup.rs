//! Result of looking up the route of a request: [`Lookup`]. The tables of routes have the paths.

/// What a table of routes has for a method and a path.
#[derive(Debug)]
pub enum Lookup<R> {
    /// The route.
    Found(R),
    /// The path exists, with the methods of this `Allow` header.
    WrongMethod(String),
    /// The table does not have the path.
    Nothing,
}

impl<R> Lookup<R> {
    /// The path exists with these methods only.
    pub fn wrong_method(methods: Vec<&str>) -> Self {
        Self::WrongMethod(allow(methods))
    }
}

/// The `Allow` header of a path with these methods: adds HEAD if there is GET, and OPTIONS.
pub fn allow(mut methods: Vec<&str>) -> String {
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.push("OPTIONS");
    methods.join(", ")
}
