//! A table of cases, and a simulation of many nodes that step over the same rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Node, Owner, Seen, Shard, Step, is_steady, next_step};
use weir_event::id::ShardId;

const NONE: &str = "";

fn node(url: &str) -> Node {
    Node { url: url.to_owned(), is_draining: false, shards_max: 4 }
}

fn draining(url: &str) -> Node {
    Node { is_draining: true, ..node(url) }
}

fn small(url: &str, shards_max: usize) -> Node {
    Node { shards_max, ..node(url) }
}

fn this(seconds: u64) -> Owner {
    Owner::This(Duration::from_secs(seconds))
}

fn free(seconds: u64) -> Owner {
    Owner::Nobody(Duration::from_secs(seconds))
}

fn at(url: &str) -> Owner {
    Owner::Other(url.to_owned())
}

/// The step of the node `a`, where shards are `(owner, wanted, ready)` and numbered from 0.
fn step(nodes: &[Node], shards: &[(Owner, &str, &str)]) -> Option<Step> {
    let shard = |(id, (owner, wanted, ready)): (u16, &(Owner, &str, &str))| Shard {
        id: ShardId(id),
        owner: owner.clone(),
        wanted: (*wanted).to_owned(),
        ready: (*ready).to_owned(),
    };
    let shards: Vec<Shard> = (0..).zip(shards).map(shard).collect();
    next_step(&Seen { own: "a", nodes, shards: &shards })
}

#[test]
fn free_shards_are_taken_up_to_the_share() {
    let take = |id| Some(Step::Take(ShardId(id)));
    let pair = [node("a"), node("b")];
    for (what, nodes, shards, expected) in [
        ("alone", &[node("a")][..], &[(free(0), NONE, NONE)][..], take(0)),
        ("not there", &[node("b")], &[(free(0), NONE, NONE)], None),
        ("it drains", &[draining("a"), node("b")], &[(free(0), NONE, NONE)], None),
        ("all drain", &[draining("a")], &[(free(60), NONE, NONE)], None),
        ("it has its share", &pair, &[(this(0), NONE, NONE), (free(60), NONE, NONE)], None),
        (
            "more than can be divided",
            &pair,
            &[(this(0), NONE, NONE), (at("b"), NONE, NONE), (free(0), NONE, NONE)],
            take(2),
        ),
        (
            "the other one is full",
            &[node("a"), small("b", 1)],
            &[(at("b"), NONE, NONE), (this(0), NONE, NONE), (free(0), NONE, NONE)],
            take(2),
        ),
        (
            "it is full",
            &[small("a", 1), node("b")],
            &[(this(0), NONE, NONE), (free(60), NONE, NONE), (free(60), "a", NONE)],
            None,
        ),
        ("it is wanted here", &pair, &[(this(0), NONE, NONE), (free(0), "a", NONE)], take(1)),
        ("it waits for b", &pair, &[(free(9), "b", "b"), (at("b"), NONE, NONE)], None),
        ("b does not come", &pair, &[(free(10), "b", "b"), (at("b"), NONE, NONE)], take(0)),
        ("b is gone", &[node("a")], &[(free(0), "b", "b")], take(0)),
        ("b drains", &[node("a"), draining("b")], &[(free(0), "b", "b")], take(0)),
    ] {
        assert_eq!(step(nodes, shards), expected, "{what}");
    }
}

#[test]
fn shards_move_in_steps() {
    let release = Some(Step::Release(ShardId(0)));
    let prepare = Some(Step::Prepare(ShardId(0)));
    let wish = |id, to: &str| Some(Step::Wish(ShardId(id), to.to_owned()));
    let (pair, has) = ([node("a"), node("b")], |seconds| (this(seconds), NONE, NONE));
    let three = [node("a"), node("b"), node("c")];
    let others = |count| vec![(at("b"), NONE, NONE); count];
    for (what, nodes, shards, expected) in [
        ("wanted here", &pair[..], vec![(at("b"), "a", NONE)], prepare),
        ("wanted here, ready", &pair, vec![(at("b"), "a", "a")], None),
        ("wanted here, no room", &[small("a", 0), node("b")], vec![(at("b"), "a", NONE)], None),
        ("b is not ready", &pair, vec![(this(0), "b", NONE)], None),
        ("b is ready", &pair, vec![(this(0), "b", "b")], release),
        ("b was ready, and is gone", &[node("a")], vec![(this(0), "b", "b")], None),
        ("b was ready, and drains", &[node("a"), draining("b")], vec![(this(0), "b", "b")], None),
        ("b was ready, and is full", &[node("a"), small("b", 0)], vec![(this(0), "b", "b")], None),
        ("somebody else is ready", &three, vec![(this(0), "b", "c")], None),
        ("the one it had longest", &pair, vec![has(3), has(1), has(2)], wish(1, "b")),
        ("one more than b", &pair, [vec![has(0), has(0)], others(1)].concat(), None),
        ("one at a time", &pair, vec![has(0), has(0), (this(0), "b", NONE), has(0)], None),
        (
            "one at a time, to the end",
            &pair,
            vec![has(0), has(0), (Owner::Leaving, "b", "b")],
            None,
        ),
        (
            "a wish that nobody fulfils",
            &pair,
            vec![has(0), has(1), (this(2), "x", NONE)],
            wish(0, "b"),
        ),
        ("to the fewest", &three, [vec![has(0), has(0), has(0)], others(1)].concat(), wish(0, "c")),
        ("not to a full one", &[node("a"), small("b", 0)], vec![has(0), has(0)], None),
        ("others have more", &three, [vec![has(0), has(0)], others(3)].concat(), None),
        (
            "the first of two with most",
            &three,
            [vec![has(0), has(0)], others(2)].concat(),
            wish(0, "c"),
        ),
        ("all, to drain", &[draining("a"), node("b")], vec![has(0)], wish(0, "b")),
        ("drains, and nobody is there", &[draining("a")], vec![has(0)], None),
        ("drains, and nobody has room", &[draining("a"), small("b", 0)], vec![has(0)], None),
    ] {
        assert_eq!(step(nodes, &shards), expected, "{what}");
    }
}

/// A time that a node looks at the rows.
const LOOK: Duration = Duration::from_millis(250);

/// Looks until a lease that nobody renews is free.
const DEAD_LOOKS: u64 = 16;

/// The row of a shard, and its lease.
#[derive(Clone, Debug, Default)]
struct Row {
    wanted: String,
    ready: String,
    holder: String,
    /// When the holder died, or the lease became free.
    since: u64,
}

/// What a node does with a shard, and when it has done it.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Preparing(u64),
    Opening(u64),
    Open(u64),
    Leaving(u64),
}

#[derive(Debug)]
struct Member {
    node: Node,
    is_alive: bool,
    doing: BTreeMap<u16, Doing>,
}

/// Nodes and rows.
#[derive(Debug)]
struct World {
    random: StdRng,
    now: u64,
    rows: Vec<Row>,
    members: Vec<Member>,
    steps: Vec<Step>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let rows = vec![Row::default(); random.random_range(1..24)];
        Self { random, now: 0, rows, members: Vec::new(), steps: Vec::new() }
    }

    fn join(&mut self) {
        let url = format!("node {}", self.members.len());
        let shards_max = self.random.random_range(1..12);
        let node = Node { url, is_draining: false, shards_max };
        self.members.push(Member { node, is_alive: true, doing: BTreeMap::new() });
    }

    fn nodes(&self) -> Vec<Node> {
        self.members
            .iter()
            .filter(|member| member.is_alive)
            .map(|member| member.node.clone())
            .collect()
    }

    fn die(&mut self, at: usize) {
        let (now, member) = (self.now, &mut self.members[at]);
        member.is_alive = false;
        member.doing.clear();
        for row in self.rows.iter_mut().filter(|row| row.holder == member.node.url) {
            row.since = now;
        }
    }

    /// What operators and faults do now and then.
    fn disturb(&mut self) {
        let at = self.random.random_range(0..self.members.len());
        match self.random.random_range(0..12) {
            0 if self.members.len() < 9 => self.join(),
            1 if self.nodes().len() > 1 => self.die(at),
            2 => self.members[at].node.is_draining ^= true,
            3..8 => {
                let url = self.members[at].node.url.clone();
                let shard = self.random.random_range(0..self.rows.len());
                let row = &mut self.rows[shard];
                (row.wanted, row.ready) = (url, String::new());
            }
            _ => {}
        }
    }

    /// What a node sees of a shard in rows that it has read.
    fn seen(&self, member: &Member, id: u16, row: &Row) -> Shard {
        let is_there = |url: &str| self.nodes().iter().any(|node| node.url == url);
        let still = self.now.saturating_sub(row.since);
        let owner = match member.doing.get(&id) {
            Some(Doing::Open(since)) => Owner::This(LOOK * u32::try_from(*since).unwrap()),
            Some(Doing::Opening(_)) => Owner::This(LOOK * u32::try_from(self.now).unwrap()),
            Some(Doing::Leaving(_)) => Owner::Leaving,
            _ if is_there(&row.holder) => Owner::Other(row.holder.clone()),
            _ if !row.holder.is_empty() && still < DEAD_LOOKS => Owner::Other(row.holder.clone()),
            Some(Doing::Preparing(_)) => Owner::Other(String::new()),
            None => Owner::Nobody(LOOK * u32::try_from(still).unwrap()),
        };
        Shard { id: ShardId(id), owner, wanted: row.wanted.clone(), ready: row.ready.clone() }
    }

    /// All nodes look at the rows as they are before any of them acts.
    fn look(&mut self) {
        self.now += 1;
        let (rows, nodes) = (self.rows.clone(), self.nodes());
        for at in 0..self.members.len() {
            if !self.members[at].is_alive {
                continue;
            }
            self.finish(at);
            let member = &self.members[at];
            let seen = |(id, row)| self.seen(member, id, row);
            let shards: Vec<Shard> = (0..).zip(&rows).map(seen).collect();
            let own = member.node.url.clone();
            let step = next_step(&Seen { own: &own, nodes: &nodes, shards: &shards });
            if let Some(step) = step {
                self.act(at, &own, step, &rows);
            }
        }
    }

    fn act(&mut self, at: usize, own: &str, step: Step, seen: &[Row]) {
        let (soon, doing) =
            (self.now + self.random.random_range(1..12), &mut self.members[at].doing);
        match &step {
            Step::Take(id) => {
                let (row, seen) = (&mut self.rows[usize::from(id.0)], &seen[usize::from(id.0)]);
                if row.holder == seen.holder && row.since == seen.since {
                    own.clone_into(&mut row.holder);
                    if row.wanted != own {
                        (row.wanted, row.ready) = (String::new(), String::new());
                    }
                    doing.insert(id.0, Doing::Opening(soon));
                }
            }
            Step::Prepare(id) => drop(doing.entry(id.0).or_insert(Doing::Preparing(soon))),
            Step::Release(id) => drop(doing.insert(id.0, Doing::Leaving(soon))),
            Step::Wish(id, to) => {
                let row = &mut self.rows[usize::from(id.0)];
                (row.wanted, row.ready) = (to.clone(), String::new());
            }
        }
        self.steps.push(step);
    }

    /// Ends what has taken its time, and forgets wishes that have come true.
    fn finish(&mut self, at: usize) {
        let (now, member) = (self.now, &mut self.members[at]);
        let own = &member.node.url;
        for (id, row) in (0..).zip(&mut self.rows) {
            match member.doing.get(&id).copied() {
                Some(Doing::Preparing(ends)) if ends <= now => {
                    member.doing.remove(&id);
                    if row.wanted == *own {
                        row.ready.clone_from(own);
                    }
                }
                Some(Doing::Opening(ends)) if ends <= now => {
                    member.doing.insert(id, Doing::Open(now));
                }
                Some(Doing::Leaving(ends)) if ends <= now => {
                    member.doing.remove(&id);
                    (row.holder, row.since) = (String::new(), now);
                }
                Some(Doing::Open(_)) if row.wanted == *own => {
                    (row.wanted, row.ready) = (String::new(), String::new());
                }
                _ => {}
            }
        }
    }

    /// Whether it is steady for somebody who reads the rows, and nobody is about to do anything.
    fn is_steady(&self) -> bool {
        let nodes = self.nodes();
        let seen = |(id, row): (u16, &Row)| Shard {
            id: ShardId(id),
            owner: match nodes.iter().any(|node| node.url == row.holder) {
                true => Owner::Other(row.holder.clone()),
                false => Owner::Nobody(Duration::ZERO),
            },
            wanted: row.wanted.clone(),
            ready: row.ready.clone(),
        };
        let shards: Vec<Shard> = (0..).zip(&self.rows).map(seen).collect();
        let doing = self.members.iter().filter(|member| member.is_alive);
        let mut doing = doing.flat_map(|member| member.doing.values());
        doing.all(|doing| matches!(doing, Doing::Open(_))) && is_steady(&nodes, &shards)
    }

    /// How many shards each node has that may have some.
    fn counts(&self) -> BTreeMap<String, usize> {
        let takers = self.nodes().into_iter().filter(|node| !node.is_draining);
        let count = |url: &str| self.rows.iter().filter(|row| row.holder == url).count();
        takers.map(|node| (node.url.clone(), count(&node.url))).collect()
    }
}

/// Goal: after joins, deaths, drains and wishes of operators, the nodes come to rest: every shard has an owner if anybody may
/// take it, the shards are divided evenly, no node has more than it may, and nothing moves any more. Before that, nobody does
/// anything while nobody has a step to take.
#[test]
fn nodes_come_to_rest() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        (0..world.random.random_range(1..5)).for_each(|_| world.join());
        for _ in 0..400 {
            if world.random.random_ratio(1, 20) {
                world.disturb();
            }
            let (is_steady, steps) = (world.is_steady(), world.steps.len());
            world.look();
            assert!(!is_steady || world.steps.len() == steps, "seed {seed}: {world:?}");
        }
        world.steps.clear();
        (0..1000).for_each(|_| world.look());
        let moves = world.steps.iter().filter(|step| matches!(step, Step::Wish(..))).count();
        let (counts, all) = (world.counts(), world.rows.len());
        assert!(moves <= all * 2, "seed {seed}: {moves} moves of {all} shards: {counts:?}");
        let nodes = world.nodes();
        let takers: Vec<&Node> = nodes.iter().filter(|node| !node.is_draining).collect();
        let room: usize = takers.iter().map(|node| node.shards_max).sum();
        let owners: BTreeSet<&str> = nodes.iter().map(|node| &*node.url).collect();
        let owned = world.rows.iter().filter(|row| owners.contains(&*row.holder)).count();
        assert!(takers.is_empty() || owned >= all.min(room), "seed {seed}: {counts:?}: {world:?}");
        for node in &takers {
            let own = counts[&node.url];
            assert!(own <= node.shards_max, "seed {seed}: {counts:?}");
            let most = counts.values().max().unwrap();
            let is_full = own == node.shards_max;
            assert!(is_full || own + 1 >= *most, "seed {seed}: {}: {counts:?}", node.url);
        }
        world.steps.clear();
        (0..200).for_each(|_| world.look());
        assert_eq!(world.steps, [], "seed {seed}: {world:?}");
        assert!(world.is_steady(), "seed {seed}: {world:?}");
    }
}
