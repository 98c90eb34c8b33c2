//! Properties of charts: drawn values can be parsed back, and nothing is outside of the chart.

use maud::Markup;
use proptest::prelude::*;

use crate::chart::bars::{Lying, bars, lying};
use crate::chart::line::lines;
use crate::chart::pie::pie;
use crate::chart::plot::TOP_PX;
use crate::chart::scale::Scale;
use crate::chart::series::{Frame, Point, Series, Unit};
use crate::chart::spark::spark;
use crate::chart::ticks::ticks;
use crate::chart::{funnel, heat, sankey, table};

const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}";

/// The values of an attribute, in their order.
fn attributes(markup: &str, tag: &str, name: &str) -> Vec<String> {
    let tags = markup.split('<').filter(|own| own.starts_with(&format!("{tag} ")));
    let value = |own: &str| {
        let (_, rest) = own.split_once(&format!(" {name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    tags.filter_map(value).collect()
}

fn numbers(texts: Vec<String>) -> Vec<f64> {
    texts.iter().map(|text| text.trim_end_matches('%').parse().expect(text)).collect()
}

fn series(values: &[Option<f64>]) -> Series {
    let point = |value: &Option<f64>| Point { value: *value, link: Some("/p?a=1&b=2".to_owned()) };
    Series {
        name: HOSTILE.to_owned(),
        points: values.iter().map(point).collect(),
        ..Series::default()
    }
}

fn frame(places: usize) -> Frame {
    Frame::new(HOSTILE, (0..places).map(|place| format!("day {place}")).collect())
}

/// Asserts that all of it is inside the chart, and that no text is interpreted as markup.
fn check(markup: &Markup, height_px: f64) {
    let text = &markup.0;
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    assert!(!text.contains("<script") && !text.contains("style="), "{text}");
    for (tag, name) in [("circle", "cx"), ("rect", "x"), ("rect", "width"), ("text", "x")] {
        for own in attributes(text, tag, name).into_iter().filter(|own| own.ends_with('%')) {
            let percent: f64 = own.trim_end_matches('%').parse().unwrap();
            assert!((0.0..=100.0).contains(&percent), "{tag} {name} {own}");
        }
    }
    for (tag, name) in [("circle", "cy"), ("rect", "y"), ("rect", "height"), ("line", "y1")] {
        for own in numbers(attributes(text, tag, name)) {
            assert!((0.0..=height_px).contains(&own), "{tag} {name} {own}");
        }
    }
}

fn values() -> impl Strategy<Value = Vec<Option<f64>>> {
    let value = prop_oneof![
        3 => (-1e6..1e6).prop_map(Some),
        3 => (0_i32..50).prop_map(|value| Some(f64::from(value))),
        1 => any::<f64>().prop_map(Some),
        1 => Just(None),
    ];
    prop_oneof![
        4 => prop::collection::vec(value, 0..40),
        1 => (any::<f64>(), 1_usize..20).prop_map(|(value, count)| vec![Some(value); count]),
        1 => (0_usize..20).prop_map(|count| vec![None; count]),
    ]
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    #[test]
    fn ticks_are_round_and_go_up(low in any::<f64>(), high in any::<f64>(), count in 1_u8..12) {
        let (low, high) = (low.clamp(-1e300, 1e300), high.clamp(-1e300, 1e300));
        let ticks = ticks(low, high, count);
        prop_assert!(ticks.len() >= 2 && ticks.len() <= usize::from(count) * 2 + 3, "{ticks:?}");
        prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
        if low.is_finite() && high.is_finite() && low < high && high - low > 1e-290 {
            let rounding = (high / 2.0 - low / 2.0) * 1e-9;
            let (first, last) = (ticks[0], *ticks.last().unwrap());
            prop_assert!(first <= low + rounding && last >= high - rounding, "{low} {high} {ticks:?}");
            // One or two digits, apart from those that all have in common.
            let step = ticks[1] / 2.0 - ticks[0] / 2.0;
            let digit = step * 2.0 / 10_f64.powf((step * 2.0).log10().floor());
            let is_round = [1.0, 2.0, 5.0, 10.0].iter().any(|own| (own - digit).abs() < 1e-3);
            prop_assert!(is_round, "{ticks:?}");
        }
    }

    #[test]
    fn lines_and_dots_have_the_numbers(values in values()) {
        let own = series(&values);
        let markup = lines(std::slice::from_ref(&own), &frame(values.len()), false);
        check(&markup, 300.0);
        let finite: Vec<f64> = own.points.iter().filter_map(Point::finite).collect();
        let scale = Scale::of(finite.iter().copied(), 260);
        let (low, high) = (scale.ticks()[0], *scale.ticks().last().unwrap());
        let drawn = numbers(attributes(&markup.0, "circle", "cy"));
        prop_assert_eq!(drawn.len(), finite.len());
        for (y, value) in drawn.iter().zip(finite) {
            let read = high - (y - TOP_PX) / 260.0 * (high - low);
            let half_a_pixel = (high - low) / 520.0;
            prop_assert!((read - value).abs() <= half_a_pixel, "{} {}", read, value);
        }
        let places = numbers(attributes(&markup.0, "circle", "cx"));
        prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn bars_have_the_numbers(values in values(), is_stacked in any::<bool>()) {
        let own = series(&values);
        let markup = bars(std::slice::from_ref(&own), &frame(values.len()), is_stacked);
        check(&markup, 300.0);
        let finite: Vec<f64> = own.points.iter().filter_map(Point::finite).collect();
        let scale = Scale::of(finite.iter().copied(), 260);
        let zero = scale.y(0.0) + TOP_PX;
        let (low, high) = (scale.ticks()[0], *scale.ticks().last().unwrap());
        let bars: Vec<&str> = markup.0.split('<').filter(|own| own.starts_with("rect class=\"bar")).collect();
        prop_assert_eq!(bars.len(), finite.len());
        for (bar, value) in bars.iter().zip(finite) {
            let bar = format!("<{bar}");
            let y = numbers(attributes(&bar, "rect", "y"))[0];
            let height = numbers(attributes(&bar, "rect", "height"))[0];
            let end = if value >= 0.0 { zero - y } else { y - zero + height };
            let read = end / 260.0 * (high - low);
            prop_assert!((read - value.abs()).abs() <= (high - low) / 520.0, "{} {}", read, value);
        }
    }

    #[test]
    fn several_series_stay_inside(some in prop::collection::vec(values(), 0..13), is_stacked in any::<bool>()) {
        let places = some.iter().map(Vec::len).max().unwrap_or(0);
        let all: Vec<Series> = some.iter().map(|values| series(values)).collect();
        check(&lines(&all, &frame(places), true), 300.0);
        check(&bars(&all, &frame(places), is_stacked), 300.0);
        let table = table::of_series(&all, &frame(places), "Day");
        prop_assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        check(&table::details(&table), 300.0);
    }

    #[test]
    fn bands_are_as_thick_as_many_took_them(
        some in prop::collection::vec((1_usize..6, 0_u8..4, 0_u8..4, 0_u64..1_000_000), 0..60),
    ) {
        let name = |own: u8| format!("{HOSTILE} {own}");
        let links: Vec<sankey::Link> = some.iter().map(|(place, from, to, count)| sankey::Link {
            from: (*place, name(*from)), to: (place + 1, name(*to)), count: *count, link: None,
        }).collect();
        let markup = sankey::sankey(&links, HOSTILE, |_, _| None);
        check(&markup, f64::MAX);
        let thick = numbers(attributes(&markup.0, "path", "stroke-width"));
        prop_assert_eq!(thick.len(), links.len());
        let most = links.iter().zip(&thick).max_by_key(|(link, _)| link.count);
        if let Some((most, most_thick)) = most.filter(|(link, _)| link.count > 0) {
            for (link, own) in links.iter().zip(&thick) {
                let expected = (link.count as f64 / most.count as f64 * most_thick).max(1.0);
                prop_assert!((own - expected).abs() <= 0.5 || *most_thick <= 1.0, "{} {}", own, expected);
            }
        }
    }

    #[test]
    fn other_charts_are_whole(counts in prop::collection::vec(prop::option::of(0_u64..u64::MAX), 0..9),
                              values in prop::collection::vec(any::<f64>(), 0..9)) {
        let row = heat::Row { name: HOSTILE.to_owned(), counts: counts.clone(), ..heat::Row::default() };
        let names: Vec<String> = (0..counts.len()).map(|at| format!("Day {at}")).collect();
        check(&heat::heat(&[row.clone(), row], &names, HOSTILE, true), 300.0);
        let part = |count: &Option<u64>| funnel::Part {
            name: HOSTILE.to_owned(), count: count.unwrap_or(0), median_seconds: Some(12.0), ..funnel::Part::default()
        };
        let step = |count: &Option<u64>| funnel::Step { name: HOSTILE.to_owned(), is_optional: false, parts: vec![part(count)] };
        check(&funnel::funnel(&counts.iter().map(step).collect::<Vec<_>>(), HOSTILE), 300.0);
        check(&spark(&values, HOSTILE), 300.0);
        let bar = |value: &f64| Lying { name: HOSTILE.to_owned(), value: *value, ..Lying::default() };
        let bars: Vec<Lying> = values.iter().map(bar).collect();
        check(&lying(&bars, HOSTILE, Unit::Count), 300.0);
        check(&pie(&bars, HOSTILE, Unit::Count), 300.0);
    }

    #[test]
    fn parts_of_a_ring_are_in_proportion(values in prop::collection::vec(0_u32..1000, 0..14)) {
        let part = |value: &u32| Lying { value: f64::from(*value), ..Lying::default() };
        let ring = pie(&values.iter().map(part).collect::<Vec<_>>(), HOSTILE, Unit::Count).0;
        let whole: u32 = values.iter().sum();
        let (own, rest) = values.split_at(values.len().min(9));
        let expected = own.iter().copied().chain([rest.iter().sum()]).filter(|value| *value > 0);
        let expected: Vec<f64> = expected.map(|value| f64::from(value) / f64::from(whole) * 100.0).collect();
        let drawn = numbers(
            attributes(&ring, "circle", "stroke-dasharray").into_iter().map(|own| own.replace(" 100", "")).collect(),
        );
        prop_assert_eq!(drawn.len(), expected.len());
        let mut from = 0.0;
        for ((drawn, begin), expected) in drawn.iter().zip(numbers(attributes(&ring, "circle", "stroke-dashoffset"))).zip(expected) {
            prop_assert!((drawn - expected).abs() < 0.01 && (begin + from).abs() < 0.01, "{} {}", drawn, begin);
            from += expected;
        }
    }
}

#[test]
fn few_and_many_points_are_drawn() {
    for places in [0, 1, 10_000] {
        let values: Vec<Option<f64>> = (0..places).map(|at| Some((at % 97) as f64)).collect();
        let line = lines(&[series(&values)], &frame(places), false);
        check(&line, 300.0);
        let path = attributes(&line.0, "path", "d");
        assert_eq!(path[0].matches(['M', 'L']).count(), places);
        // A line of many points has no marks, so that the page stays small.
        assert!(line.0.len() < 200_000, "{}", line.0.len());
        check(&bars(&[series(&values)], &frame(places), true), 300.0);
    }
}

#[test]
fn the_time_that_is_not_over_is_dashed() {
    let open = |places| Frame { is_unfinished: true, ..frame(places) };
    let values = [Some(1.0), Some(2.0), Some(3.0)];
    let now = series(&values);
    let before = Series { is_previous: true, ..now.clone() };
    let line = lines(&[now.clone(), before.clone()], &open(3), true).0;
    // The area, the line up to the second place and the dashed rest; the period before is over.
    assert_eq!(line.matches("<path").count(), 5, "{line}");
    assert_eq!(line.matches("line unfinished s0").count(), 1, "{line}");
    assert_eq!(line.matches("(not over yet)").count(), 1, "{line}");
    let bar = bars(&[now.clone(), before], &open(3), false).0;
    assert_eq!(bar.matches("bar unfinished s0").count(), 1, "{bar}");
    for (values, places) in [(vec![Some(1.0)], 1), (vec![None, Some(1.0)], 2), (vec![], 0)] {
        let line = lines(&[series(&values)], &open(places), false).0;
        assert!(!line.contains("unfinished"), "there is no line to it: {line}");
    }
    assert!(!lines(&[now], &frame(3), false).0.contains("unfinished"));
}

#[test]
fn links_are_attributes_and_texts_are_texts() {
    let markup = lines(&[series(&[Some(1.0)])], &frame(1), false).0;
    assert!(markup.contains("href=\"/p?a=1&amp;b=2\""), "{markup}");
    assert!(markup.contains("&lt;script&gt;"), "{markup}");
    assert!(markup.contains("role=\"group\""), "{markup}");
}
