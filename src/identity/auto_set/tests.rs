//! Auto-set properties for the tests of this module, and of the rest of `identity`.

use std::hash::{BuildHasherDefault, DefaultHasher};

use arrow::buffer::Buffer;
use serde_json::{Value, json};

use super::{AutoSet, AutoSetProperty, SETTLED_MAX, Settled};
use crate::decide::is_noise;
use weir_event::auto_set::Names;

/// As ingest builds it: keys, whether they are set and set once, value.
pub(crate) fn auto_set(properties: &[(&'static Names, bool, bool, Value)]) -> Option<AutoSet> {
    let mut text = Vec::new();
    let auto_sets = properties.iter().map(|(names, sets, sets_once, value)| {
        let start = u32::try_from(text.len()).unwrap();
        serde_json::to_writer(&mut text, value).unwrap();
        let (sets, sets_once, is_noise) = (*sets, *sets_once, is_noise(names.0));
        let value = start..u32::try_from(text.len()).unwrap();
        // The keys in the tests have different lengths.
        let number = u8::try_from(names.0.len()).unwrap();
        AutoSetProperty { names, number, sets, sets_once, fills: false, is_noise, value }
    });
    let auto_sets: Box<[AutoSetProperty]> = auto_sets.collect();
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    (!auto_sets.is_empty()).then(|| AutoSet::new(Buffer::from_vec(text), auto_sets, &hasher))
}

#[test]
fn a_digest_is_of_keys_and_of_values_that_are_not_noise() {
    const OS: Names = ("$os", "$initial_os");
    const UTM: Names = ("utm_source", "$initial_utm_source");
    let of = |properties: &[(&'static Names, bool, bool, Value)]| {
        auto_set(properties).expect("some").digest()
    };
    let one = of(&[(&OS, true, true, json!("a")), (&UTM, true, true, json!("b"))]);
    let same = [of(&[(&OS, true, true, json!(7)), (&UTM, true, true, json!("b"))])];
    let others = [
        of(&[(&OS, true, true, json!("a")), (&UTM, true, true, json!("c"))]),
        of(&[(&OS, true, false, json!("a")), (&UTM, true, true, json!("b"))]),
        of(&[(&OS, false, true, json!("a")), (&UTM, true, true, json!("b"))]),
        of(&[(&UTM, true, true, json!("b"))]),
        of(&[(&OS, true, true, json!("a"))]),
        of(&[(&OS, true, true, json!("a")), (&UTM, true, true, json!(["b"]))]),
    ];
    assert!(same.iter().all(|other| *other == one));
    assert!(others.iter().all(|other| *other != one));
}

#[test]
fn the_oldest_digest_is_evicted() {
    const UTM: Names = ("utm_source", "$initial_utm_source");
    let told: Vec<AutoSet> = (0..=SETTLED_MAX)
        .map(|value| auto_set(&[(&UTM, true, true, json!(value))]).expect("some"))
        .collect();
    let mut settled = Settled::default();
    assert!(settled.is_empty());
    for one in told.iter().chain(told.last()) {
        settled.add(one);
        assert!(settled.has(one));
    }
    let kept: Vec<bool> = told.iter().map(|one| settled.has(one)).collect();
    assert_eq!(kept, [false, true, true, true, true]);
}
