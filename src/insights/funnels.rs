//! Funnels: how many actors go from step to step. `walk` says how far an actor comes with its events.

#[cfg(test)]
mod walk;
