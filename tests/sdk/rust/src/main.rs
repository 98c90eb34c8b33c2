//! Drives `posthog-rs` against a server; the twin of python.py, which says what is printed.
//!
//!     drive URL PROJECT_KEY WHO none|gzip|deflate|br|zstd
//!
//! Without the feature `capture-v1` the SDK knows no compression but gzip.

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Duration, SecondsFormat};
use posthog_rs::{CaptureCompression, CaptureExceptionOptions, Client, ClientOptionsBuilder, EvaluateFlagsOptions, Event};
use serde_json::{Value, json};
use uuid::Uuid;

const EVENTS: i64 = 150;
const USERS: i64 = 10;

type Anything = Box<dyn Error>;

fn say(kind: &str, what: Value) {
    let mut line = json!({"kind": kind});
    if let (Some(line), Value::Object(what)) = (line.as_object_mut(), what) {
        line.extend(what);
    }
    println!("{line}");
}

struct Driver {
    client: Client,
    who: String,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Anything> {
    // What the SDK warns of makes the test fail.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, key, who, coding] = &arguments[..] else {
        return Err("drive URL PROJECT_KEY WHO none|gzip|deflate|br|zstd".into());
    };
    let complaints = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&complaints);
    let mut options = ClientOptionsBuilder::default();
    options
        .api_key(key.clone())
        .host(url.as_str())
        .flush_at(40)
        .flush_interval_ms(100)
        .max_capture_attempts(1)
        .feature_flags_request_max_retries(0)
        .on_error(move |error| heard.lock().unwrap().push(format!("{error:?}")));
    match &coding[..] {
        "none" => {}
        "gzip" => {
            options.capture_compression(CaptureCompression::Gzip);
        }
        "deflate" => {
            options.capture_compression(CaptureCompression::Deflate);
        }
        "br" => {
            options.capture_compression(CaptureCompression::Br);
        }
        "zstd" => {
            options.capture_compression(CaptureCompression::Zstd);
        }
        other => return Err(format!("unknown coding {other}").into()),
    }
    let client = posthog_rs::client(options.build()?).await;
    let driver = Driver { client, who: who.clone() };
    say("lib", json!({"name": "posthog-rs", "version": "0.30.0"}));
    driver.ordinary()?;
    driver.sessions()?;
    driver.people()?;
    driver.groups()?;
    driver.exceptions().await?;
    driver.at_once().await?;
    driver.client.flush().await;
    // The server knows the e-mail address only from the events above.
    driver.flags().await?;
    driver.client.shutdown().await;
    let complaints = complaints.lock().unwrap();
    if complaints.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("the SDK complains:\n{}", complaints.join("\n"));
    Ok(ExitCode::FAILURE)
}

impl Driver {
    fn id(&self, name: &str) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{}/{name}", self.who).as_bytes())
    }

    /// An event with an id of ours, and what to say of it.
    fn event(
        &self,
        id: &str,
        name: &str,
        distinct_id: &str,
        properties: Value,
    ) -> Result<(Event, Value), Anything> {
        let uuid = self.id(id);
        let mut event = Event::new(name, distinct_id);
        event.set_uuid(uuid);
        for (key, value) in properties.as_object().into_iter().flatten() {
            event.insert_prop(key, value)?;
        }
        let said = json!({"uuid": uuid, "event": name, "distinct_id": distinct_id, "properties": properties});
        Ok((event, said))
    }

    fn capture(
        &self,
        id: &str,
        name: &str,
        distinct_id: &str,
        properties: Value,
    ) -> Result<(), Anything> {
        let (event, said) = self.event(id, name, distinct_id, properties)?;
        self.client.capture(event);
        say("event", said);
        Ok(())
    }

    fn ordinary(&self) -> Result<(), Anything> {
        let who = &self.who;
        let moment = DateTime::from_timestamp_millis(1_770_091_506_789).ok_or("a moment")?;
        for number in 0..EVENTS {
            let mut properties = match number % 3 {
                0 => values(),
                _ => json!({"pad": "x".repeat(usize::try_from(number)? * 50)}),
            };
            properties["number"] = json!(number);
            properties["who"] = json!(who);
            let user = format!("{who}-user-{}", number % USERS);
            let (mut event, mut said) =
                self.event(&number.to_string(), "ordinary", &user, properties)?;
            if number % 2 == 0 {
                let timestamp = moment - Duration::days(number);
                event.set_timestamp(timestamp)?;
                said["timestamp"] = json!(timestamp.to_rfc3339_opts(SecondsFormat::Millis, true));
            }
            if number % 5 == 0 {
                event.add_group("company", &format!("{who}-acme"));
                said["group_0"] = json!(format!("{who}-acme"));
                said["properties"]["$groups"] = json!({"company": format!("{who}-acme")});
            }
            self.client.capture(event);
            say("event", said);
        }
        Ok(())
    }

    fn sessions(&self) -> Result<(), Anything> {
        let properties =
            json!({"$session_id": self.id("a session"), "$window_id": self.id("a window")});
        self.capture("session", "in a session", &format!("{}-user-0", self.who), properties)?;
        let nobody = format!("{}-nobody", self.who);
        let properties = json!({"$process_person_profile": false, "step": 0});
        self.capture("nobody", "without a person", &nobody, properties)?;
        say("nobody", json!({"distinct_id": nobody}));
        Ok(())
    }

    /// The SDK has no calls for these events; its users send them so.
    fn people(&self) -> Result<(), Anything> {
        let who = &self.who;
        let (person, anonymous, old) =
            (format!("{who}-member"), format!("{who}-anonymous"), format!("{who}-old"));
        self.capture(
            "before",
            "before identify",
            &anonymous,
            json!({"step": 1, "$set": {"plan": "free", "seen": true}}),
        )?;
        let identify = json!({
            "$set": {"email": format!("{who}@shop.example"), "age": 41, "address": {"city": "Bern"}, "plan": "pro"},
            "$set_once": {"first": 1, "age": 7},
            "$anon_distinct_id": anonymous,
        });
        self.capture("identify", "$identify", &person, identify)?;
        let set = json!({"$set": {"age": 42}, "$set_once": {"first": 2}, "$unset": ["seen"]});
        self.capture("set", "$set", &person, set)?;
        self.client.alias(&*old, &*person);
        let properties = json!({"distinct_id": old, "alias": person});
        say(
            "event",
            json!({"event": "$create_alias", "distinct_id": old, "properties": properties}),
        );
        let properties = json!({
            "first": 1, "plan": "pro", "email": format!("{who}@shop.example"), "age": 42, "address": {"city": "Bern"},
        });
        let ids = [&anonymous, &person, &old];
        say("person", json!({"distinct_ids": ids, "properties": properties, "absent": ["seen"]}));
        Ok(())
    }

    fn groups(&self) -> Result<(), Anything> {
        let key = format!("{}-acme", self.who);
        let properties = json!({"name": "Acme", "size": 7, "tags": ["a", "b"]});
        self.client.group_identify("company", &*key, &properties)?;
        let given = json!({"$group_type": "company", "$group_key": key, "$group_set": properties});
        let distinct_id = format!("$company_{key}");
        say(
            "event",
            json!({"event": "$groupidentify", "distinct_id": distinct_id, "properties": given}),
        );
        say("group", json!({"group_type": "company", "key": key, "properties": properties}));
        Ok(())
    }

    async fn exceptions(&self) -> Result<(), Anything> {
        let distinct_id = format!("{}-user-1", self.who);
        let options = CaptureExceptionOptions::new()
            .distinct_id(&*distinct_id)
            .property("step", "failing")?;
        self.client.capture_exception_with(&std::io::Error::other("no such cart"), options).await?;
        let properties = json!({"step": "failing"});
        say(
            "event",
            json!({"event": "$exception", "distinct_id": distinct_id, "properties": properties}),
        );
        Ok(())
    }

    /// Calls that wait for the server's answer, and one that marks old events.
    async fn at_once(&self) -> Result<(), Anything> {
        let user = format!("{}-user-2", self.who);
        let (event, said) = self.event("immediate", "at once", &user, json!({"step": 1}))?;
        let summary = self.client.capture_immediate(event).await?;
        if summary.submitted() != 1 || !summary.all_persisted() {
            return Err(format!("captured at once: {summary:?}").into());
        }
        say("event", said);
        let mut events = Vec::new();
        for number in 0..3 {
            let id = format!("historical {number}");
            let (mut event, mut said) =
                self.event(&id, "historical", &user, json!({"number": number}))?;
            let timestamp =
                DateTime::from_timestamp(1_600_000_000 + number, 0).ok_or("a moment")?;
            event.set_timestamp(timestamp)?;
            said["timestamp"] = json!(timestamp.to_rfc3339_opts(SecondsFormat::Millis, true));
            events.push(event);
            say("event", said);
        }
        self.client.capture_batch(events, true);
        Ok(())
    }

    async fn flags(&self) -> Result<(), Anything> {
        let who = &self.who;
        let (person, user) = (format!("{who}-member"), format!("{who}-user-0"));
        let groups = HashMap::from([("company".to_owned(), format!("{who}-acme"))]);
        let options = EvaluateFlagsOptions { groups: Some(groups), ..Default::default() };
        let of_person = self.client.evaluate_flags(&*person, options).await?;
        let of_user = self.client.evaluate_flags(&*user, EvaluateFlagsOptions::default()).await?;
        for (key, distinct_id, flags) in [
            ("everyone", &person, &of_person),
            ("nobody", &person, &of_person),
            ("colour", &person, &of_person),
            ("by-email", &person, &of_person),
            ("by-email", &user, &of_user),
            ("by-group", &person, &of_person),
        ] {
            let value = serde_json::to_value(flags.get_flag(key))?;
            say("flag", json!({"key": key, "distinct_id": distinct_id, "value": value}));
            let mut properties = json!({"$feature_flag": key, "$feature_flag_response": value});
            let mut said = json!({"event": "$feature_flag_called", "distinct_id": distinct_id});
            if distinct_id == &person {
                properties["$groups"] = json!({"company": format!("{who}-acme")});
                said["group_0"] = json!(format!("{who}-acme"));
            }
            said["properties"] = properties;
            say("event", said);
        }
        say("payload", json!({"value": of_person.get_flag_payload("colour")}));
        let (mut event, mut said) =
            self.event("flags", "with flags", &person, json!({"step": 2}))?;
        event.with_flags(&of_person);
        for (name, value) in
            [("everyone", json!(true)), ("nobody", json!(false)), ("colour", json!("blue"))]
        {
            said["properties"][format!("$feature/{name}")] = value;
        }
        for name in ["by-email", "by-group"] {
            said["properties"][format!("$feature/{name}")] = json!(true);
        }
        said["properties"]["$active_feature_flags"] =
            json!(["by-email", "by-group", "colour", "everyone"]);
        self.client.capture(event);
        say("event", said);
        Ok(())
    }
}

fn values() -> Value {
    json!({
        "text": "naïve \"quoted\" \\ \u{2028} 😀",
        "empty": "",
        "integer": -42,
        "large": u64::MAX,
        "float": 0.1,
        "exponent": 1e-7,
        "huge": 1e21,
        "true": true,
        "false": false,
        "nothing": null,
        "list": [1, "two", [3.5, null], {}],
        "object": {"a": {"b": {"c": [true]}}, "": 0},
        "$current_url": "https://shop.example/cart?x=1#y",
        "$screen_width": 1440,
    })
}
