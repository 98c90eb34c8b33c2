//! Which node has which shard: every node looks at the same rows (who is there, who has which lease, what operators wish) and
//! decides what to do itself ([`next_step`]); there is no leader. No I/O.
//!
//! Nothing is safe by it: two nodes that take the same shard meet at its lease, and if they do not, at its log. So a decision
//! that others have overtaken costs an attempt, and nothing else.

use std::time::Duration;

use weir_event::id::ShardId;

/// Time after which a free shard no longer waits for the node that is to have it.
const WISH_MAX: Duration = Duration::from_secs(10);

/// A node that is there, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Names it, and is where it is reached.
    pub url: String,
    /// Whether it is to have no shards.
    pub is_draining: bool,
    /// Most shards that it may have.
    pub shards_max: usize,
}

/// Who has a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody, for this time as far as this node has seen.
    Nobody(Duration),
    /// This node, which has it open since this moment of its clock, or is about to.
    This(Duration),
    /// This node, which is about to give it away.
    Leaving,
    /// The node with this URL.
    Other(String),
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The shard.
    pub id: ShardId,
    /// Who has it.
    pub owner: Owner,
    /// The URL of the node that is to have it; empty for any.
    pub wanted: String,
    /// The URL of the node that has prepared to take it; empty for none.
    pub ready: String,
}

/// What a node knows.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Its own URL.
    pub own: &'a str,
    /// The nodes that are there, with this one.
    pub nodes: &'a [Node],
    /// All shards.
    pub shards: &'a [Shard],
}

/// What a node does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes the lease of a shard, and opens it. A wish that another node has it ends by that: it has come too late.
    Take(ShardId),
    /// Prepares to take a shard that another node has, so that the change takes short.
    Prepare(ShardId),
    /// Gives a shard away to the node that has prepared to take it.
    Release(ShardId),
    /// Wishes that the node with this URL takes a shard of this one.
    Wish(ShardId, String),
}

/// The next step of a node, if there is one.
///
/// Each node takes free shards until it has its share. The node with the most shards, as when another one joins, and a node
/// that drains, wish that the node with the fewest takes one, one at a time, until none has two fewer than another. It is the
/// one that they have had for longest, so that what an operator has just moved stays.
pub fn next_step(seen: &Seen<'_>) -> Option<Step> {
    prepared(seen).or_else(|| taken(seen)).or_else(|| moved(seen))
}

/// Whether no node has a step to take. `shards` are as somebody sees them who is no node: they have another owner, or nobody.
pub fn is_steady(nodes: &[Node], shards: &[Shard]) -> bool {
    nodes.iter().all(|Node { url, .. }| {
        let seen = |shard: &Shard| {
            let owner = match &shard.owner {
                Owner::Other(owner) if owner == url => Owner::This(Duration::ZERO),
                Owner::Nobody(_) => Owner::Nobody(WISH_MAX),
                owner => owner.clone(),
            };
            Shard { owner, ..shard.clone() }
        };
        let shards: Vec<Shard> = shards.iter().map(seen).collect();
        next_step(&Seen { own: url, nodes, shards: &shards }).is_none()
    })
}

impl Seen<'_> {
    /// The nodes that may have shards.
    fn takers(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.is_draining)
    }

    fn taker(&self, url: &str) -> Option<&Node> {
        self.takers().find(|node| node.url == url)
    }

    /// Whether a node may have one more shard than it has.
    fn has_room(&self, url: &str) -> bool {
        let Some(node) = self.taker(url) else { return false };
        let count = match url == self.own {
            true => self.own(),
            false => self.count(|owner| matches!(owner, Owner::Other(owner) if owner == url)),
        };
        count < node.shards_max
    }

    /// The shards that each node is to have if it may have as many: as few as are enough for all.
    fn share(&self) -> usize {
        let at_most = |share: usize| {
            self.takers().map(|node| node.shards_max.min(share)).fold(0, usize::saturating_add)
        };
        let all = self.shards.len();
        (0..all).find(|share| at_most(*share) >= all).unwrap_or(all)
    }

    fn own(&self) -> usize {
        self.count(|owner| matches!(owner, Owner::This(_) | Owner::Leaving))
    }

    fn count(&self, is_counted: impl Fn(&Owner) -> bool) -> usize {
        self.shards.iter().filter(|shard| is_counted(&shard.owner)).count()
    }

    /// The shards of another node, with those that it is to have.
    fn shards_of(&self, url: &str) -> usize {
        let has = |shard: &&Shard| match &shard.owner {
            Owner::Other(owner) if owner == url => {
                shard.wanted == url || !self.has_room(&shard.wanted)
            }
            _ => shard.wanted == url && self.has_room(url),
        };
        self.shards.iter().filter(has).count()
    }
}

/// What is wished of this node, by operators and by other nodes.
fn prepared(seen: &Seen<'_>) -> Option<Step> {
    seen.shards.iter().find_map(|shard| match &shard.owner {
        Owner::This(_) if shard.ready == shard.wanted && shard.wanted != seen.own => {
            seen.has_room(&shard.wanted).then_some(Step::Release(shard.id))
        }
        Owner::Other(_) if shard.wanted == seen.own && shard.ready != seen.own => {
            seen.has_room(seen.own).then_some(Step::Prepare(shard.id))
        }
        _ => None,
    })
}

fn taken(seen: &Seen<'_>) -> Option<Step> {
    if !seen.has_room(seen.own) {
        return None;
    }
    let is_below_share = seen.own() < seen.share();
    let free = seen.shards.iter().find(|shard| match shard.owner {
        Owner::Nobody(_) if shard.wanted == seen.own => true,
        Owner::Nobody(since) => {
            is_below_share && (since >= WISH_MAX || !seen.has_room(&shard.wanted))
        }
        _ => false,
    })?;
    Some(Step::Take(free.id))
}

fn moved(seen: &Seen<'_>) -> Option<Step> {
    let is_moving = |shard: &Shard| match shard.owner {
        Owner::Leaving => true,
        Owner::This(_) => shard.wanted != seen.own && seen.has_room(&shard.wanted),
        _ => false,
    };
    let own = seen.own();
    if own == 0 || seen.shards.iter().any(is_moving) {
        return None;
    }
    let others = || seen.takers().filter(|node| node.url != seen.own);
    let has_room =
        |node: &&Node| seen.has_room(&node.url) && seen.shards_of(&node.url) < node.shards_max;
    let with_room = others().filter(has_room);
    let to = with_room.min_by_key(|node| seen.shards_of(&node.url))?;
    if seen.taker(seen.own).is_some() {
        // One node gives at a time: all of them together would give too much.
        let is_before = |node: &Node| {
            let count = seen.shards_of(&node.url);
            count > own || (count == own && &*node.url < seen.own)
        };
        if others().any(is_before) || seen.shards_of(&to.url).saturating_add(2) > own {
            return None;
        }
    }
    let had = seen.shards.iter().filter_map(|shard| match shard.owner {
        Owner::This(since) => Some((since, shard.id)),
        _ => None,
    });
    let (_, shard) = had.min()?;
    Some(Step::Wish(shard, to.url.clone()))
}

#[cfg(test)]
mod tests;
