//! Insights beside SQL that DuckDB computes over the files of the events table: a second implementation, which shares
//! nothing with the server. `tests/oracle` has the random worlds, the questions and the SQL of each kind.
//!
//! Each test asks about a fixed world and about a fresh one, whose seed it prints. `WEIR_ORACLE_SEED` repeats a run, and
//! `WEIR_ORACLE_QUESTIONS` says how many questions of each kind are asked.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{KEY, TOKEN, TestServer, binary};
use crate::sdk::tools;

/// Questions of each kind about both worlds together.
pub(crate) const QUESTIONS: u64 = 2000;

/// The setting that repeats a fresh world.
pub(crate) const SEED: &str = "WEIR_ORACLE_SEED";

/// Questions of each kind about one world.
const WORLD_QUESTIONS_MAX: u64 = 5000;

/// Smallest percentage of answers that are more than zeros.
const FILLED_MIN_PERCENT: u64 = 25;

/// The same of correlations, which have no rows where nobody or everybody converts, or too few do what is correlated.
const CORRELATIONS_FILLED_MIN_PERCENT: u64 = 8;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var_os(name)?.into_string().ok()?;
    Some(text.parse().expect("a number"))
}

/// How many questions of each kind are asked, so many if the environment does not say it.
pub(crate) fn questions_asked(otherwise: u64) -> u64 {
    setting("WEIR_ORACLE_QUESTIONS").unwrap_or(otherwise)
}

/// The seed of a fresh world.
pub(crate) fn fresh_seed() -> u64 {
    setting(SEED).unwrap_or_else(|| rand::random::<u32>().into())
}

/// A script of `tests/oracle`.
pub(crate) fn script(name: &str) -> Command {
    let mut command = Command::new(tools().join("readers/bin/python"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle").join(name));
    command
}

/// What was found in the world of a seed.
fn compared(kind: &str, seed: u64, questions: u64) -> Value {
    let server = TestServer::start_with(&[("WEIR_LOG", "warn")]);
    let mut command = script("run.py");
    command.args([kind, &server.url(), TOKEN, KEY]).arg(binary());
    command.arg(server.data_dir()).args([seed.to_string(), questions.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().expect("run.py starts");
    assert!(output.status.success(), "{kind} {seed}: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a report")
}

fn check(kind: &str, filled_min_percent: u64) {
    let (mut left, seed) = (questions_asked(QUESTIONS), fresh_seed());
    eprintln!("{SEED}={seed}");
    let half = left.div_ceil(2);
    for seed in [7].into_iter().chain(seed..) {
        if left == 0 {
            break;
        }
        let questions = left.min(half).min(WORLD_QUESTIONS_MAX);
        left -= questions;
        let report = compared(kind, seed, questions);
        let number = |name: &str| report[name].as_u64().expect("a number");
        eprintln!(
            "{kind}, seed {seed}: {} compared in {} s",
            number("compared"),
            report["seconds"]
        );
        let first = serde_json::to_string_pretty(&report["differences"][0]).expect("JSON");
        assert_eq!(number("different"), 0, "{kind}, seed {seed}: {first}");
        assert_eq!(number("compared"), questions, "{kind}");
        let filled = number("filled") * 100 / questions;
        assert!(filled >= filled_min_percent, "{kind}, seed {seed}: {filled} % are not empty");
    }
}

#[test]
fn trends_are_those_of_sql() {
    check("trends", FILLED_MIN_PERCENT);
}

#[test]
fn funnels_are_those_of_sql() {
    check("funnels", FILLED_MIN_PERCENT);
}

#[test]
fn retention_is_that_of_sql() {
    check("retention", FILLED_MIN_PERCENT);
}

#[test]
fn stickiness_is_that_of_sql() {
    check("stickiness", FILLED_MIN_PERCENT);
}

#[test]
fn lifecycles_are_those_of_sql() {
    check("lifecycle", FILLED_MIN_PERCENT);
}

#[test]
fn paths_are_those_of_sql() {
    check("paths", FILLED_MIN_PERCENT);
}

#[test]
fn correlations_are_those_of_sql() {
    check("correlation", CORRELATIONS_FILLED_MIN_PERCENT);
}
