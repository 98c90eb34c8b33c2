//! Queries that the page generates are valid for insights.

use weir_insights::insight::Insight;
use weir_web::state::insight::{Kind, Question};
use weir_web::state::node::node;
use weir_web::state::point::Point;

#[test]
fn the_api_reads_what_is_asked() {
    for (kind, query) in [
        (
            Kind::Trends,
            "a=x&a.math=sum&a.property=p&b=*&b.f1.key=k&b.f1.value=1&formula=A/B&compare=-1w&show=totals",
        ),
        (
            Kind::Trends,
            "a=action:3&by1.key=k&by1.of=group1&by.limit=4&by.hide_other=1&f1.of=cohort&f1.key=7",
        ),
        (
            Kind::Funnel,
            "a=x&b=y&show=trends&order=strict&window=2&window.unit=week&attribution=last_touch",
        ),
        (
            Kind::Retention,
            "a=x&b=y&interval=week&intervals=4&type=first_time&cumulative=1&occurrences=2",
        ),
        (Kind::Retention, ""),
        (
            Kind::Paths,
            "include=$pageview&start=/a&end=/b&steps=4&edges=9&least=2&pattern=/p/*&exclude=/x",
        ),
        (Kind::Lifecycle, "a=x&only=new&interval=week"),
        (
            Kind::Stickiness,
            "a=x&interval.count=2&cumulative=1&criteria=lte&criteria.value=3&compare=previous",
        ),
    ] {
        let question = Question::parse(kind, query).unwrap();
        let asked = node(&question);
        Insight::parse(&asked).unwrap_or_else(|error| panic!("{query}: {asked}: {error:?}"));
        let point = Point { day: Some("1".to_owned()), step: Some(2), ..Point::default() };
        let actors = point.node(&question);
        let insight = Insight::parse(&actors["source"]).unwrap();
        insight.actors_of(&actors, "").unwrap();
    }
}
