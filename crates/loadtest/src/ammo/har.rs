//! HAR, the archive of requests that browsers export (`log.entries`, HAR 1.2).
//!
//! Entries are read one at a time; their responses are skipped. Requests to other hosts than that of the first entry are left out
//! and counted: a page loads scripts and pictures from other servers, but the load is for one. Header fields are sent as the
//! browser sent them, except those of HTTP/2 (`:path`) and those that frame the body.

use super::error::{AmmoError, AmmoPlace};
use super::request::{Defaults, Draft, PreparedRequest, form_encoded};
use super::template::Values;
use super::{Records, SkippedRecords};
use crate::json_cursor::JsonCursor;
use serde::Deserialize;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reads entries of `reader`.
pub(crate) struct Har<R> {
    name: String,
    defaults: Defaults,
    counts: Arc<SkippedRecords>,
    cursor: JsonCursor<R>,
    entered: bool,
    /// Number of the entry read last, from 1.
    number: u64,
    element: Vec<u8>,
    /// Host of the first entry.
    host: Option<String>,
}

impl<R: BufRead> Har<R> {
    pub(crate) fn new(name: &str, reader: R, defaults: Defaults, counts: Arc<SkippedRecords>) -> Har<R> {
        Har {
            name: name.to_owned(),
            defaults,
            counts,
            cursor: JsonCursor::new(reader),
            entered: false,
            number: 0,
            element: Vec::new(),
            host: None,
        }
    }

    fn next_entry(&mut self) -> io::Result<bool> {
        if !self.entered {
            self.entered = true;
            enter(&mut self.cursor, "log")?;
            enter(&mut self.cursor, "entries")?;
            self.cursor.enter_array()?;
        }
        self.number += 1;
        self.cursor.next_element(&mut self.element)
    }

    /// Whether the entry is for the host of the first one.
    fn is_wanted(&mut self, draft: &Draft) -> bool {
        let Some(host) = &draft.host else { return false };
        self.host.get_or_insert_with(|| host.clone()).eq_ignore_ascii_case(host)
    }
}

/// Enters the next object and moves to the value of `wanted`.
fn enter<R: BufRead>(cursor: &mut JsonCursor<R>, wanted: &str) -> io::Result<()> {
    cursor.enter_object()?;
    while let Some(key) = cursor.next_key()? {
        if key == wanted {
            return Ok(());
        }
        cursor.skip_value()?;
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("no HAR: it lacks the key {wanted:?}")))
}

impl<R: BufRead + Send> Records for Har<R> {
    fn next(&mut self, _values: &mut Values, request: &mut PreparedRequest) -> Result<bool, AmmoError> {
        loop {
            let more = self.next_entry();
            let place = AmmoPlace::Record(self.number);
            if !more.map_err(|error| AmmoError::input(&self.name, place, error.to_string()))? {
                return Ok(false);
            }
            let draft = draft(&self.element).map_err(|reason| self.fault(reason))?;
            if self.is_wanted(&draft) {
                let made = draft.encode(&self.defaults, request);
                return made.map(|()| true).map_err(|problem| self.fault(problem.into()));
            }
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn fault(&self, reason: String) -> AmmoError {
        AmmoError::record(&self.name, AmmoPlace::Record(self.number), reason)
    }
}

#[derive(Deserialize)]
struct Entry {
    request: EntryRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct PostData {
    text: Option<String>,
    #[serde(default)]
    params: Vec<Pair>,
}

/// The request of one entry. Its host is `None` if the URL's scheme is not HTTP (`data:`, `ws:`).
pub(crate) fn draft(entry: &[u8]) -> Result<Draft, String> {
    let Entry { request } = serde_json::from_slice(entry).map_err(|error| error.to_string())?;
    let sent = |pair: &Pair| !pair.name.starts_with(':');
    let headers = request.headers.into_iter().filter(sent).map(|pair| (pair.name, pair.value)).collect();
    let body = request.post_data.map(body).unwrap_or_default();
    Ok(Draft { headers, body, ..Draft::of_url(&request.method, &request.url) })
}

/// The body's text. If a browser records only the fields of a form, they are encoded as a form.
fn body(data: PostData) -> Vec<u8> {
    match data.text {
        Some(text) if !text.is_empty() || data.params.is_empty() => text.into_bytes(),
        _ => {
            let field = |pair: &Pair| format!("{}={}", form_encoded(&pair.name), form_encoded(&pair.value));
            data.params.iter().map(field).collect::<Vec<_>>().join("&").into_bytes()
        }
    }
}

#[cfg(test)]
mod entries {
    use super::{Defaults, Har, PreparedRequest, Records, SkippedRecords, Values};
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn all(text: &str) -> Result<(Vec<String>, u64), String> {
        let counts = Arc::new(SkippedRecords::default());
        let mut har = Har::new("a.har", text.as_bytes(), Defaults::default(), Arc::clone(&counts));
        let (mut all, mut request) = (Vec::new(), PreparedRequest::default());
        while har.next(&mut Values::new(1), &mut request).map_err(|error| error.to_string())? {
            all.push(String::from_utf8_lossy(&request.bytes).into_owned());
        }
        Ok((all, counts.left_out.load(Ordering::Relaxed)))
    }

    #[test]
    fn requests_for_the_first_host_are_sent_as_the_browser_sent_them() {
        let text = r#"{"log": {"version": "1.2", "pages": [{}], "entries": [
            {"request": {"method": "GET", "url": "https://a.example/x?y=1#z", "headers": [
                {"name": ":path", "value": "/x"}, {"name": "Host", "value": "a.example"}, {"name": "Accept", "value": "*/*"}]},
             "response": {"content": {"text": "}]"}}},
            {"request": {"method": "GET", "url": "https://b.example/ad.js", "headers": []}},
            {"request": {"method": "GET", "url": "data:image/png;base64,AA==", "headers": []}},
            {"request": {"method": "POST", "url": "https://a.example/login", "headers": [],
                "postData": {"mimeType": "x", "params": [{"name": "a b", "value": "п"}, {"name": "c"}]}}},
            {"request": {"method": "PUT", "url": "https://A.example/", "postData": {"text": "{}"}}}]}}"#;
        let (all, left_out) = all(text).expect("a HAR");
        assert_eq!(left_out, 2);
        assert_eq!(
            all,
            [
                "GET /x?y=1 HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n",
                "POST /login HTTP/1.1\r\nHost: a.example\r\nContent-Length: 13\r\n\r\na+b=%D0%BF&c=",
                "PUT / HTTP/1.1\r\nHost: A.example\r\nContent-Length: 2\r\n\r\n{}",
            ]
        );
    }

    #[test]
    fn a_broken_entry_is_an_error_with_its_number() {
        let good = r#"{"request": {"method": "GET", "url": "http://a/"}}"#;
        let error = all(&format!(r#"{{"log": {{"entries": [{good}, {{}}]}}}}"#)).expect_err("broken");
        assert!(error.starts_with("a.har, record 2: missing field `request`"), "{error}");
        assert!(all(r#"{"log": {"entries": ["#).expect_err("cut").contains("ends too early"));
        assert!(all(r#"{"log": {}}"#).expect_err("no entries").contains("lacks the key \"entries\""));
    }

    proptest! {
        #[test]
        fn any_text_is_a_har_or_an_error(rest in "[\\[\\]{}\",:a1 ]{0,30}") {
            let _ = all(&format!(r#"{{"log":{{"entries":[{rest}"#));
        }
    }
}
