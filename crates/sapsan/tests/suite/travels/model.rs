//! The reference: the travels contract in the plainest code, everything in maps, every answer by looking at all rows.

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Status, and the body where the contract gives one.
pub(crate) type Expected = (u16, Option<Value>);

/// The three kinds of entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Users,
    Locations,
    Visits,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Users, Kind::Locations, Kind::Visits];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Users => "users",
            Kind::Locations => "locations",
            Kind::Visits => "visits",
        }
    }

    fn fields(self) -> &'static [&'static str] {
        match self {
            Kind::Users => &["id", "email", "first_name", "last_name", "gender", "birth_date"],
            Kind::Locations => &["id", "place", "country", "city", "distance"],
            Kind::Visits => &["id", "location", "user", "visited_at", "mark"],
        }
    }
}

type Entity = Map<String, Value>;

/// All data, and "now" for ages.
#[derive(Clone, Default)]
pub(crate) struct Model {
    pub(crate) now: i64,
    pub(crate) users: BTreeMap<u32, Entity>,
    pub(crate) locations: BTreeMap<u32, Entity>,
    pub(crate) visits: BTreeMap<u32, Entity>,
}

impl Model {
    pub(crate) fn table(&self, kind: Kind) -> &BTreeMap<u32, Entity> {
        match kind {
            Kind::Users => &self.users,
            Kind::Locations => &self.locations,
            Kind::Visits => &self.visits,
        }
    }

    pub(crate) fn table_mut(&mut self, kind: Kind) -> &mut BTreeMap<u32, Entity> {
        match kind {
            Kind::Users => &mut self.users,
            Kind::Locations => &mut self.locations,
            Kind::Visits => &mut self.visits,
        }
    }

    /// What the service must answer; POSTs that are accepted change the model.
    pub(crate) fn answer(&mut self, method: &str, target: &str, body: Option<&[u8]>) -> Expected {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let Some(kind) = KINDS.into_iter().find(|kind| parts.first() == Some(&kind.name())) else {
            return (404, None);
        };
        match (method, parts.as_slice()) {
            ("POST", [_, "new"]) => (self.create(kind, body.unwrap_or_default()), None),
            ("POST", [_, id]) => match key(id).filter(|id| self.table(kind).contains_key(id)) {
                Some(id) => (self.update(kind, id, body.unwrap_or_default()), None),
                None => (404, None),
            },
            ("GET", [_, id]) => match key(id).and_then(|id| self.table(kind).get(&id)) {
                Some(entity) => (200, Some(Value::Object(entity.clone()))),
                None => (404, None),
            },
            ("GET", ["users", id, "visits"]) => match key(id).filter(|id| self.users.contains_key(id)) {
                Some(id) => ok_or_400(self.user_visits(id, query)),
                None => (404, None),
            },
            ("GET", ["locations", id, "avg"]) => match key(id).filter(|id| self.locations.contains_key(id)) {
                Some(id) => ok_or_400(self.location_average(id, query)),
                None => (404, None),
            },
            _ => (404, None),
        }
    }

    fn user_visits(&self, user: u32, query: &str) -> Option<Value> {
        let from = integer(query, "fromDate")?;
        let to = integer(query, "toDate")?;
        let country = text(query, "country")?;
        let to_distance = integer(query, "toDistance")?;
        let mut rows: Vec<(i64, u32, Value)> = Vec::new();
        for (id, visit) in &self.visits {
            let location = &self.locations[&(number(visit, "location") as u32)];
            let at = number(visit, "visited_at");
            if number(visit, "user") == i64::from(user)
                && from.is_none_or(|from| at > from)
                && to.is_none_or(|to| at < to)
                && country.as_ref().is_none_or(|country| location["country"] == Value::String(country.clone()))
                && to_distance.is_none_or(|limit| number(location, "distance") < limit)
            {
                let row = json!({"mark": visit["mark"], "visited_at": at, "place": location["place"]});
                rows.push((at, *id, row));
            }
        }
        rows.sort_by_key(|(at, id, _)| (*at, *id));
        Some(json!({"visits": rows.into_iter().map(|(_, _, row)| row).collect::<Vec<_>>()}))
    }

    fn location_average(&self, location: u32, query: &str) -> Option<Value> {
        let from = integer(query, "fromDate")?;
        let to = integer(query, "toDate")?;
        let from_age = age(query, "fromAge")?;
        let to_age = age(query, "toAge")?;
        let gender = text(query, "gender")?;
        if gender.as_ref().is_some_and(|gender| gender != "m" && gender != "f") {
            return None;
        }
        let (mut sum, mut count) = (0, 0);
        for visit in self.visits.values() {
            let user = &self.users[&(number(visit, "user") as u32)];
            let (at, born) = (number(visit, "visited_at"), number(user, "birth_date"));
            if number(visit, "location") == i64::from(location)
                && from.is_none_or(|from| at > from)
                && to.is_none_or(|to| at < to)
                && from_age.is_none_or(|years| born < years_before(self.now, years))
                && to_age.is_none_or(|years| born > years_before(self.now, years))
                && gender.as_ref().is_none_or(|gender| user["gender"] == Value::String(gender.clone()))
            {
                sum += number(visit, "mark");
                count += 1;
            }
        }
        // Half up at the fifth decimal, in whole numbers: floor(sum / count × 10^5 + 1/2).
        let rounded = if count == 0 { 0 } else { (2 * sum * 100_000 + count) / (2 * count) };
        Some(json!({"avg": rounded as f64 / 100_000.0}))
    }

    fn create(&mut self, kind: Kind, body: &[u8]) -> u16 {
        let Some(entity) = object(body) else { return 400 };
        let Some(id) = entity.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok()) else {
            return 400;
        };
        let complete = kind.fields().iter().all(|field| entity.contains_key(*field));
        if !complete || self.table(kind).contains_key(&id) || !self.is_valid(kind, id, &entity) {
            return 400;
        }
        self.table_mut(kind).insert(id, entity);
        200
    }

    fn update(&mut self, kind: Kind, id: u32, body: &[u8]) -> u16 {
        let Some(patch) = object(body) else { return 400 };
        if patch.contains_key("id") || !self.is_valid(kind, id, &patch) {
            return 400;
        }
        if let Some(entity) = self.table_mut(kind).get_mut(&id) {
            entity.extend(patch);
        }
        200
    }

    /// Whether every field given is one of the kind's, of its type and range, and breaks no rule between entities.
    fn is_valid(&self, kind: Kind, id: u32, given: &Entity) -> bool {
        given.iter().all(|(field, value)| self.is_valid_field(kind, id, field, value))
    }

    fn is_valid_field(&self, kind: Kind, id: u32, field: &str, value: &Value) -> bool {
        let within = |low: i64, high: i64| value.as_i64().is_some_and(|number| (low..=high).contains(&number));
        let at_most = |limit: usize| value.as_str().is_some_and(|text| text.chars().count() <= limit);
        let u32_range = || within(0, i64::from(u32::MAX));
        match (kind, field) {
            (_, "id") => u32_range(),
            (Kind::Users, "email") => {
                at_most(100) && !self.users.iter().any(|(other, user)| *other != id && user["email"] == *value)
            }
            (Kind::Users, "first_name" | "last_name") | (Kind::Locations, "country" | "city") => at_most(50),
            (Kind::Users, "gender") => value == "m" || value == "f",
            (Kind::Users, "birth_date") | (Kind::Visits, "visited_at") => value.as_i64().is_some(),
            (Kind::Locations, "place") => value.is_string(),
            (Kind::Locations, "distance") => u32_range(),
            (Kind::Visits, "mark") => within(0, 5),
            (Kind::Visits, "user") => u32_range() && self.users.contains_key(&(value.as_i64().unwrap_or(-1) as u32)),
            (Kind::Visits, "location") => {
                u32_range() && self.locations.contains_key(&(value.as_i64().unwrap_or(-1) as u32))
            }
            _ => false,
        }
    }
}

fn ok_or_400(body: Option<Value>) -> Expected {
    body.map_or((400, None), |body| (200, Some(body)))
}

fn number(entity: &Entity, field: &str) -> i64 {
    entity[field].as_i64().expect("the model holds valid entities only")
}

/// A key in a path: digits without leading zeros, within u32.
fn key(part: &str) -> Option<u32> {
    let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (digits && (part == "0" || !part.starts_with('0'))).then(|| part.parse().ok()).flatten()
}

/// The first parameter of that name, decoded. Outer `None`: badly escaped or no UTF-8; inner: absent.
fn parameter(query: &str, name: &str) -> Option<Option<String>> {
    for pair in query.split('&') {
        let (raw_name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
        if decoded(raw_name).as_deref() == Some(name) {
            return decoded(raw_value).map(Some);
        }
    }
    Some(None)
}

fn decoded(raw: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = raw.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = behind.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = &behind[2..];
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

/// A text parameter: present means not empty.
fn text(query: &str, name: &str) -> Option<Option<String>> {
    match parameter(query, name)? {
        Some(value) if value.is_empty() => None,
        other => Some(other),
    }
}

/// `-?[0-9]+` within 64 bits.
fn integer(query: &str, name: &str) -> Option<Option<i64>> {
    let Some(value) = text(query, name)? else { return Some(None) };
    let digits = value.strip_prefix('-').unwrap_or(&value);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| value.parse().ok()).flatten().map(Some)
}

fn age(query: &str, name: &str) -> Option<Option<i64>> {
    match integer(query, name)? {
        Some(years) if !(0..=1000).contains(&years) => None,
        other => Some(other),
    }
}

/// The same moment so many calendar years earlier; 29 February becomes 1 March where there is none.
pub(crate) fn years_before(now: i64, years: i64) -> i64 {
    let (days, seconds) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    days_to(year - years, month, day) * 86_400 + seconds
}

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01, counted year by year and month by month.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let whole_years: i64 = if year >= 1970 {
        (1970..year).map(|year| 365 + i64::from(is_leap(year))).sum()
    } else {
        -(year..1970).map(|year| 365 + i64::from(is_leap(year))).sum::<i64>()
    };
    whole_years + (1..month).map(|month| month_days(year, month)).sum::<i64>() + day - 1
}

fn civil(mut days: i64) -> (i64, i64, i64) {
    let mut year = 1970;
    while days < 0 {
        year -= 1;
        days += 365 + i64::from(is_leap(year));
    }
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    while days >= month_days(year, month) {
        days -= month_days(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

/// A JSON object without duplicate keys at its top level; anything else is no body of this contract.
pub(crate) fn object(body: &[u8]) -> Option<Entity> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let entity = deserializer.deserialize_map(UniqueKeys).ok()?;
    deserializer.end().ok()?;
    Some(entity)
}

struct UniqueKeys;

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Entity;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Entity, A::Error> {
        let mut entity = Entity::new();
        while let Some((key, value)) = access.next_entry::<String, Value>()? {
            if entity.insert(key, value).is_some() {
                return Err(de::Error::custom("duplicate key"));
            }
        }
        Ok(entity)
    }
}

#[test]
fn the_reference_counts_calendar_years_as_sqlite_does() {
    let leap_day = 951_782_400 + 3_600; // 2000-02-29 01:00
    assert_eq!(years_before(leap_day, 1), 920_250_000); // 1999-03-01 01:00
    assert_eq!(years_before(leap_day, 4), 825_555_600); // 1996-02-29 01:00
    assert_eq!(years_before(0, 1), -31_536_000);
}
