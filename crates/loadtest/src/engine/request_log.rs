//! `--log FILE`: each request as one line when it has ended, in NDJSON, or in CSV if the file's name ends in `.csv`.
//!
//! ```text
//! {"at":1.250000,"latency_us":812.4,"service_us":790.1,"status":200,"result":"right","bytes":431,"tag":"GET /users/{int}","request":1250}
//! ```
//!
//! `at` is the planned moment in seconds from the start of the run. The observer's thread writes, so `result` is the final verdict.
//! Its queue is bounded: if the file is slower than the load, requests are left out and counted.

use super::ended::{Ended, Judged};
use crate::source::{ReplyVerdict, TagNames};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

/// The first line of a CSV file.
const COLUMNS: &str = "at,latency_us,service_us,status,result,bytes,tag,request";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    Ndjson,
    Csv,
}

/// A log that is open.
pub struct RequestLog {
    format: LogFormat,
    output: Box<dyn Write + Send>,
    names: Option<Arc<TagNames>>,
    /// Names of tags in the form of the file, by number.
    known: Vec<String>,
    line: String,
    /// Why nothing more is written.
    failure: Option<String>,
}

impl RequestLog {
    /// Opens a file; it replaces an older one.
    pub fn create(path: &Path) -> io::Result<RequestLog> {
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        RequestLog::of(Box::new(BufWriter::new(File::create(path)?)), is_csv)
    }

    /// A log that is written to `output`.
    pub fn of(output: Box<dyn Write + Send>, is_csv: bool) -> io::Result<RequestLog> {
        let format = if is_csv { LogFormat::Csv } else { LogFormat::Ndjson };
        let mut log = RequestLog { format, output, names: None, known: Vec::new(), line: String::new(), failure: None };
        if is_csv {
            writeln!(log.output, "{COLUMNS}")?;
        }
        Ok(log)
    }

    /// Sets the names of the tags.
    pub(super) fn name_tags(&mut self, names: Option<Arc<TagNames>>) {
        self.names = names;
    }

    pub(super) fn write(&mut self, ended: &Ended, verdict: ReplyVerdict) {
        if self.failure.is_some() {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        match self.format {
            LogFormat::Ndjson => self.append_object(ended, verdict, &mut line),
            LogFormat::Csv => self.append_row(ended, verdict, &mut line),
        }
        line.push('\n');
        if let Err(error) = self.output.write_all(line.as_bytes()) {
            self.failure = Some(error.to_string());
        }
        self.line = line;
    }

    fn append_object(&mut self, ended: &Ended, verdict: ReplyVerdict, line: &mut String) {
        let (at, latency_us, result) = figures(ended, verdict);
        // Writing into a String does not fail.
        let _ = write!(line, "{{\"at\":{at:.6},\"latency_us\":{latency_us:.1}");
        if let Some((status, _)) = ended.reply {
            let _ = write!(line, ",\"service_us\":{:.1},\"status\":{status}", microseconds(ended.service_ns));
        }
        let _ = write!(line, ",\"result\":\"{result}\",\"bytes\":{}", ended.received_bytes);
        if let Some(tag) = self.tag(ended) {
            let _ = write!(line, ",\"tag\":{tag}");
        }
        if let Some(described) = ended.described {
            let _ = write!(line, ",\"request\":{}", described.index);
        }
        line.push('}');
    }

    fn append_row(&mut self, ended: &Ended, verdict: ReplyVerdict, line: &mut String) {
        let (at, latency_us, result) = figures(ended, verdict);
        let _ = write!(line, "{at:.6},{latency_us:.1},");
        match ended.reply {
            Some((status, _)) => {
                let _ = write!(line, "{:.1},{status},", microseconds(ended.service_ns));
            }
            None => line.push_str(",,"),
        }
        let _ = write!(line, "{result},{},{},", ended.received_bytes, self.tag(ended).unwrap_or_default());
        if let Some(described) = ended.described {
            let _ = write!(line, "{}", described.index);
        }
    }

    /// The name of a request's tag, quoted for the file.
    fn tag(&mut self, ended: &Ended) -> Option<&str> {
        let (names, number) = (self.names.as_ref()?, ended.described?.tag);
        while self.known.len() <= number as usize {
            let name = names.name(self.known.len() as u32);
            self.known.push(match self.format {
                LogFormat::Ndjson => serde_json::Value::from(name).to_string(),
                // RFC 4180.
                LogFormat::Csv => format!("\"{}\"", name.replace('"', "\"\"")),
            });
        }
        self.known.get(number as usize).map(String::as_str)
    }

    /// Ends the log. Returns why it is incomplete, if it is.
    pub(super) fn end(mut self) -> Option<String> {
        self.failure.take().or_else(|| self.output.flush().err().map(|error| error.to_string()))
    }
}

/// The planned moment in seconds, the latency in microseconds, and the result.
fn figures(ended: &Ended, verdict: ReplyVerdict) -> (f64, f64, &'static str) {
    let result = match (ended.reply, verdict) {
        (None, _) => ended.cause,
        (Some((_, Judged::Late)), _) => "late",
        (_, ReplyVerdict::Right) | (Some((_, Judged::Right)), ReplyVerdict::Unknown) => "right",
        (_, ReplyVerdict::Wrong) | (Some((_, Judged::Wrong)), ReplyVerdict::Unknown) => "wrong",
    };
    (ended.planned_ns as f64 / 1e9, microseconds(ended.latency_ns), result)
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Described;
    use std::sync::Mutex;

    /// What was written, and the number of bytes after which writing fails.
    #[derive(Clone)]
    struct Written(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.lock().unwrap();
            if written.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            written.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ended(reply: Option<(u16, Judged)>) -> Ended {
        let described = Some(Described { index: 7, tag: 1, ..Described::default() });
        let (service_ns, received_bytes) = if reply.is_some() { (790_100, 431) } else { (0, 0) };
        let (planned_ns, latency_ns) = (1_250_000_000, 812_400);
        Ended {
            described,
            place: (0, 0),
            planned_ns,
            latency_ns,
            service_ns,
            received_bytes,
            reply,
            cause: "connection closed",
        }
    }

    fn logged(is_csv: bool, bytes_max: usize) -> (String, Option<String>) {
        let written = Written(Arc::default(), bytes_max);
        let names = Arc::new(TagNames::default());
        ["a", "say \"b\", c"].iter().for_each(|name| names.push(name));
        let mut log = RequestLog::of(Box::new(written.clone()), is_csv).unwrap();
        log.name_tags(Some(names));
        for (reply, verdict) in [
            (Some((200, Judged::Right)), ReplyVerdict::Unknown),
            (Some((200, Judged::Right)), ReplyVerdict::Wrong),
            (Some((404, Judged::Late)), ReplyVerdict::Right),
            (None, ReplyVerdict::Unknown),
        ] {
            log.write(&ended(reply), verdict);
        }
        log.write(&Ended { described: None, ..ended(None) }, ReplyVerdict::Unknown);
        let failure = log.end();
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        (text, failure)
    }

    #[test]
    fn each_request_is_an_object_on_one_line() {
        let (text, failure) = logged(false, usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            r#"{"at":1.250000,"latency_us":812.4,"service_us":790.1,"status":200,"result":"right","bytes":431,"tag":"say \"b\", c","request":7}"#
        );
        let objects: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let results: Vec<&str> = objects.iter().map(|object| object["result"].as_str().unwrap()).collect();
        assert_eq!(results, ["right", "wrong", "late", "connection closed", "connection closed"]);
        assert!(objects[3].get("status").is_none() && objects[4].get("request").is_none() && failure.is_none());
    }

    #[test]
    fn a_row_of_csv_has_the_columns_of_its_first_line() {
        let (text, _) = logged(true, usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], COLUMNS);
        assert_eq!(lines[1], r#"1.250000,812.4,790.1,200,right,431,"say ""b"", c",7"#);
        assert_eq!(lines[4], r#"1.250000,812.4,,,connection closed,0,"say ""b"", c",7"#);
        assert_eq!(lines[5], "1.250000,812.4,,,connection closed,0,,");
    }

    #[test]
    fn a_full_disk_ends_the_log_with_its_reason() {
        let (text, failure) = logged(true, 200);
        assert!(text.len() <= 200 && text.ends_with('\n'), "{text}");
        assert!(failure.is_some());
    }
}
