//! The text of `/_/metrics`: its format, and the rules of `promtool check metrics`.

use crate::dashboard::{promtool, said};
use crate::harness::{COLLECTIONS, TestServer, mistakes};
use std::collections::{BTreeMap, BTreeSet};

/// Units that have a base unit in Prometheus, and names with abbreviated units.
const OTHER_UNITS: [&str; 11] =
    ["minutes", "hours", "days", "weeks", "bits", "s", "ms", "us", "ns", "sec", "milliseconds"];
const MORE_OTHER_UNITS: [&str; 11] =
    ["microseconds", "nanoseconds", "b", "kb", "mb", "gb", "tb", "kilobytes", "m", "h", "d"];

/// A line with a value.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    value: f64,
}

/// A metric: type, help, and samples.
#[derive(Debug, Default)]
pub(crate) struct Family {
    kind: String,
    pub(crate) samples: Vec<Sample>,
}

/// A histogram of one set of labels.
#[derive(Debug, Default)]
struct Histogram {
    /// Upper bound and count of each bucket.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: Option<f64>,
}

/// Reads `name{label="value",…} number`.
fn sample(line: &str) -> Option<Sample> {
    let (left, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, mut rest) = left.split_once('{').unwrap_or((left, "}"));
    let mut labels = BTreeMap::new();
    while rest != "}" {
        let (label, behind) = rest.split_once("=\"")?;
        let mut text = String::new();
        let mut chars = behind.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    _ => return None,
                }),
                (_, other) => text.push(other),
            }
        };
        if labels.insert(label.to_owned(), text).is_some() {
            return None;
        }
        rest = &behind[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The metrics of a text by name, and its faults.
pub(crate) fn read(text: &str) -> (BTreeMap<String, Family>, Vec<String>) {
    let (mut families, mut problems) = (BTreeMap::<String, Family>::new(), Vec::new());
    let (mut helped, mut current) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if help.is_empty() {
                problems.push(format!("{name}: no help text"));
            }
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            if families.insert(name.to_owned(), family).is_some() || helped != name {
                problems.push(format!("{name}: HELP, TYPE and samples of a metric stand together, once"));
            }
            name.clone_into(&mut current);
        } else if let Some(found) = sample(line)
            && let Some(family) = families.get_mut(&current)
        {
            family.samples.push(found);
        } else {
            problems.push(format!("cannot be read: {line}"));
        }
    }
    for (name, family) in &families {
        problems.extend(of_family(name, family).into_iter().map(|problem| format!("{name}: {problem}")));
    }
    (families, problems)
}

/// Faults of one metric.
fn of_family(name: &str, family: &Family) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |is_right: bool, problem: &str| {
        if !is_right {
            problems.push(problem.to_owned());
        }
    };
    let (kind, is_histogram) = (family.kind.as_str(), family.kind == "histogram");
    check(matches!(kind, "counter" | "gauge" | "histogram"), "unknown type");
    check((kind == "counter") == name.ends_with("_total"), "a counter ends in _total, and nothing else does");
    check(
        is_histogram || !["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end)),
        "an ending of histograms",
    );
    check(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "not in snake_case");
    let mut parts = name.split('_');
    check(!parts.any(|part| OTHER_UNITS.contains(&part) || MORE_OTHER_UNITS.contains(&part)), "no base unit");
    let types = ["counter", "gauge", "histogram", "summary"];
    check(!name.split('_').any(|part| types.contains(&part)), "the type is in the name");
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        let suffix = sample.name.strip_prefix(name);
        let is_known =
            if is_histogram { matches!(suffix, Some("_bucket" | "_sum" | "_count")) } else { suffix == Some("") };
        check(is_known, "a sample of another metric");
        check(sample.labels.contains_key("le") == (suffix == Some("_bucket")), "`le` is for buckets");
        check(!sample.labels.contains_key("quantile"), "`quantile` is for summaries");
        check(sample.labels.keys().all(|label| label.chars().all(|c| c.is_ascii_lowercase() || c == '_')), "a label");
        check(seen.insert((&sample.name, &sample.labels)), "two samples with the same labels");
    }
    if is_histogram {
        problems.extend(of_histogram(name, &family.samples));
    }
    problems
}

/// Buckets are cumulative and in order, and the last one has the total count.
fn of_histogram(name: &str, samples: &[Sample]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut by_labels = BTreeMap::<BTreeMap<String, String>, Histogram>::new();
    for sample in samples {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le");
        let histogram = by_labels.entry(labels).or_default();
        match (bound, sample.name.strip_prefix(name)) {
            (Some(bound), _) => histogram.buckets.push((bound.parse().unwrap_or(f64::NAN), sample.value)),
            (None, Some("_count")) => histogram.count = Some(sample.value),
            (None, _) => histogram.sum = Some(sample.value),
        }
    }
    for (labels, Histogram { buckets, count, sum }) in by_labels {
        let is_ascending = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let last = buckets.last().copied();
        if !is_ascending || last.is_none_or(|(bound, _)| bound != f64::INFINITY) || last.map(|(_, n)| n) != count {
            problems.push(format!("buckets of {labels:?}"));
        }
        if sum.is_none() {
            problems.push(format!("no sum of {labels:?}"));
        }
    }
    problems
}

#[test]
fn the_rules_find_what_promtool_finds() {
    let text = "# HELP a_total x\n# TYPE a_total counter\na_total{l=\"a\\\"\\\\b, c\"} 1\n";
    let (families, problems) = read(text);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(families["a_total"].samples[0].labels["l"], "a\"\\b, c");
    let histogram = "# HELP wait_seconds x\n# TYPE wait_seconds histogram\nwait_seconds_bucket{le=\"0.5\"} 1\n\
                     wait_seconds_bucket{le=\"+Inf\"} 2\nwait_seconds_sum 1.5\nwait_seconds_count 2\n";
    assert!(read(histogram).1.is_empty(), "{:?}", read(histogram).1);
    for wrong in [
        "# HELP a x\n# TYPE a counter\na 1\n",
        "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n",
        "# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n",
        "# HELP a_milliseconds x\n# TYPE a_milliseconds gauge\na_milliseconds 1\n",
        "# HELP a_gauge x\n# TYPE a_gauge gauge\na_gauge 1\n",
        "# HELP a_count x\n# TYPE a_count gauge\na_count 1\n",
        "# HELP aB x\n# TYPE aB gauge\naB 1\n",
        "# HELP a\n# TYPE a gauge\na 1\n",
        "# HELP b x\n# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\nb 1\n",
        "# HELP a x\n# TYPE a gauge\na{l=\"1\"} 1\na{l=\"1\"} 2\n",
        "# HELP a x\n# TYPE a gauge\na{le=\"1\"} 1\n",
        "# HELP a x\n# TYPE a gauge\na one\n",
        &histogram.replace("_count 2", "_count 3"),
        &histogram.replace("\"0.5\"} 1", "\"0.5\"} 3"),
        &histogram.replace("wait_seconds_sum 1.5\n", ""),
    ] {
        assert_eq!(read(wrong).1.len(), 1, "{wrong}{:?}", read(wrong).1);
    }
}

#[test]
fn metrics_are_as_promtool_wants_them() {
    let view = "[views.groups]\nquery = \"SELECT \\\"group\\\", COUNT(*) AS n FROM items GROUP BY \\\"group\\\"\"\n";
    let server = TestServer::start("", view);
    let answer = server.get("/_/metrics");
    assert_eq!(answer.field("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let (families, problems) = read(answer.text());
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(families.len() >= 40 && families.contains_key("sapsan_view_ready"), "{}", families.len());
    assert!(families.values().all(|family| !family.samples.is_empty()));
}

#[test]
fn a_page_larger_than_the_memory_for_large_replies_is_answered_whole() {
    const ROUTES: usize = 250;
    let name = "n".repeat(420);
    let endpoint =
        |number: usize| format!("[[endpoints]]\nroute = \"GET /{name}{number}/{{id}}\"\nget = \"items/{{id}}\"\n");
    let server = TestServer::start("memory = \"48MB\"", &(0..ROUTES).map(endpoint).collect::<String>());
    let mut client = server.connect();
    for number in 0..ROUTES {
        client.send("GET", &format!("/{name}{number}/1"), "", b"");
        assert_eq!(client.answer(false).status, 404);
    }
    let answer = server.get("/_/metrics");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (families, problems) = read(answer.text());
    assert!(problems.is_empty(), "{problems:#?}");
    let bounds = &families["sapsan_memory_bound_bytes"].samples;
    let replies = bounds.iter().find(|sample| sample.labels["part"] == "large_replies").expect("a part");
    assert!(answer.text().len() as f64 > replies.value, "{} of {}", answer.text().len(), replies.value);
    for (family, ending) in [("sapsan_http_requests_total", ""), ("sapsan_http_request_duration_seconds", "_count")] {
        let counted = families[family].samples.iter().filter(|sample| sample.name.ends_with(ending));
        let counted = counted.filter(|sample| sample.labels["route"].contains(&name) && sample.value == 1.0);
        assert_eq!(counted.count(), ROUTES, "{family}");
    }
}

/// One number of a server's page.
fn number(server: &TestServer, name: &str) -> f64 {
    let answer = server.get("/_/metrics");
    let (families, problems) = read(answer.text());
    assert!(problems.is_empty(), "{problems:#?}");
    families.get(name).unwrap_or_else(|| panic!("no {name}")).samples[0].value
}

/// Server and tests are one process here, so its numbers are the tests' too.
#[test]
fn the_process_is_measured_by_the_names_that_every_process_has() {
    let server = TestServer::start("", "");
    let before = number(&server, "process_cpu_seconds_total");
    let began = std::time::Instant::now();
    while number(&server, "process_cpu_seconds_total") < before + 0.05 {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "no processor time is counted");
    }
    let files: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null").expect("a file")).collect();
    let (open, most) = (number(&server, "process_open_fds"), number(&server, "process_max_fds"));
    assert!(open >= files.len() as f64 && open <= most, "{open} of {most}");
    let resident = number(&server, "process_resident_memory_bytes");
    let anonymous = number(&server, "sapsan_memory_anonymous_bytes");
    assert!(anonymous >= 1e6 && resident >= anonymous, "{anonymous} of {resident}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let started = number(&server, "process_start_time_seconds");
    // The kernel rounds the machine's own start to a second.
    let age = now - started;
    assert!(age >= number(&server, "sapsan_uptime_seconds") - 2.0 && age < 86_400.0, "{age} s old");
    assert_eq!(started, number(&server, "process_start_time_seconds"), "it does not change");
}

#[test]
fn promtool_finds_nothing_to_say() {
    let Some(promtool) = promtool() else { return };
    let view = "[views.groups]\nquery = \"SELECT \\\"group\\\", COUNT(*) AS n FROM items GROUP BY \\\"group\\\"\"\n";
    let server = TestServer::start("", &format!("{view}{ENDPOINTS}"));
    server.get("/items/1");
    server.get("/sums");
    assert_eq!(said(&promtool, &["check", "metrics"], server.get("/_/metrics").text()), None);
    let wrong = "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n";
    assert!(said(&promtool, &["check", "metrics"], wrong).is_some(), "promtool takes anything");
}

const ENDPOINTS: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n\
                         [[endpoints]]\nroute = \"POST /items\"\ninsert = \"items\"\n\
                         [[endpoints]]\nroute = \"GET /sums\"\nquery = \"SELECT SUM(price) AS sum FROM items\"\n";

/// Requests by route and code.
fn requests(server: &TestServer) -> BTreeMap<(String, String), f64> {
    let answer = server.get("/_/metrics");
    let (families, problems) = read(answer.text());
    assert!(problems.is_empty(), "{problems:#?}");
    let counted = families["sapsan_http_requests_total"].samples.iter().map(|sample| {
        let label = |name: &str| sample.labels[name].clone();
        ((label("route"), label("code")), sample.value)
    });
    let counted: BTreeMap<_, _> = counted.collect();
    let durations = &families["sapsan_http_request_duration_seconds"].samples;
    for sample in durations.iter().filter(|sample| sample.name.ends_with("_count")) {
        let route = &sample.labels["route"];
        let all = counted.iter().filter(|((counted, _), _)| counted == route).map(|(_, count)| count);
        assert_eq!(sample.value, all.sum::<f64>(), "{route}");
    }
    counted
}

/// `requests` without those of the general API, which this test makes itself.
fn of_routes(server: &TestServer) -> Vec<(String, f64)> {
    let counted = requests(server).into_iter().filter(|((route, _), _)| route != "/_/");
    counted.map(|((route, code), count)| (format!("{route} {code}"), count)).collect()
}

#[test]
fn requests_are_counted_by_route_and_code() {
    let server = TestServer::start("threads = 2", ENDPOINTS);
    let item = |id: u32| format!("{{\"id\":{id},\"group\":\"g\",\"price\":1}}").into_bytes();
    for id in [1, 2, 2] {
        server.ask("POST", "/items", "", &item(id));
    }
    for target in ["/items/1", "/items/2", "/items/3", "/items/1?a=b", "/sums", "/none", "/items"] {
        server.get(target);
    }
    server.ask("HEAD", "/items/1", "", b"");
    let counts = of_routes(&server);
    let counts: Vec<(&str, f64)> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    let expected = [
        ("GET /items/{id} 200", 4.0),
        ("GET /items/{id} 404", 1.0),
        ("GET /sums 200", 1.0),
        ("POST /items 201", 2.0),
        ("POST /items 409", 1.0),
        ("other 404", 1.0),
        ("other 405", 1.0),
    ];
    assert_eq!(counts, expected);
    assert!(requests(&server)[&("/_/".to_owned(), "200".to_owned())] >= 1.0);
    let answer = server.get("/_/metrics");
    let (families, _) = read(answer.text());
    let durations = families["sapsan_http_request_duration_seconds"].samples.iter();
    let bounds: Vec<&str> = durations.map_while(|sample| sample.labels.get("le").map(String::as_str)).collect();
    let told = include_str!("../../../docs/operations.md");
    assert!(told.contains(&format!("\n    {}\n", bounds.join(", "))), "the document tells the buckets: {bounds:?}");
}

#[test]
fn counts_stay_when_the_configuration_is_read_again() {
    let file =
        |endpoints: &str| format!("{}\n[server]\n{}{endpoints}", crate::harness::COLLECTIONS, crate::harness::SERVER);
    let server = TestServer::of_file(&file(ENDPOINTS)).unwrap();
    server.get("/sums");
    let others = ENDPOINTS.replace("GET /sums", "GET /total");
    assert_eq!(server.reload(&file(&others)).status, 200);
    server.get("/total");
    server.get("/sums");
    let first = [("GET /sums 200", 1.0), ("GET /total 200", 1.0), ("other 404", 1.0)];
    let counts = of_routes(&server);
    assert_eq!(counts.iter().map(|(name, count)| (name.as_str(), *count)).collect::<Vec<_>>(), first);
    assert_eq!(server.reload(&file(ENDPOINTS)).status, 200);
    server.get("/sums");
    assert_eq!(of_routes(&server)[0], ("GET /sums 200".to_owned(), 2.0));
}

/// `http::SERIES_MAX` with the three fixed ones.
#[test]
fn routes_beyond_the_bound_count_as_others() {
    let routes = (0..300).map(|n| format!("[[endpoints]]\nroute = \"GET /{n}\"\nget = \"items/{{id}}\"\n"));
    let routes: String = routes.map(|route| route.replace("\"\nget", "/{id}\"\nget")).collect();
    let server = TestServer::start("", &routes);
    for n in 0..300 {
        assert_eq!(server.get(&format!("/{n}/1")).status, 404);
    }
    let counts: BTreeMap<_, _> = of_routes(&server).into_iter().collect();
    assert_eq!((counts.len(), counts["GET /252/{id} 404"], counts["other 404"]), (254, 1.0, 47.0));
}

#[test]
fn metrics_of_many_endpoints_are_told_with_the_least_memory() {
    let endpoint = |n| format!("[[endpoints]]\nroute = \"GET /q{n}/{{id}}\"\nget = \"items/{{id}}\"\n");
    let endpoints: String = (0..253).map(endpoint).collect();
    let settings = |megabytes: u32| format!("threads = 2\nmemory = \"{megabytes}MB\"");
    let file = |megabytes| format!("{}[server]\n{}\n{endpoints}", COLLECTIONS, settings(megabytes));
    let least = (34..100).find(|megabytes| mistakes(&file(*megabytes)).is_empty()).expect("enough memory");
    let server = TestServer::start(&settings(least), &endpoints);
    let mut client = server.connect();
    for number in 0..253 {
        client.send("GET", &format!("/q{number}/1"), "", b"");
        assert_eq!(client.answer(false).status, 404);
    }
    for _ in 0..8 {
        let told = server.get("/_/metrics");
        assert_eq!(told.status, 200);
        assert!(told.body.len() > 100_000 && told.text().contains("/q252/"), "{} bytes", told.body.len());
    }
    assert_eq!(server.metric("sapsan_http_hoarders_total"), 0.0);
}
