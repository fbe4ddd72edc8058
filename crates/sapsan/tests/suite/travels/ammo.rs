//! The contest's files: ammo (requests in phantom format) and answers.

use std::path::Path;

/// Reads ammo: `LENGTH TAG`, a line feed, then LENGTH bytes of raw HTTP, and so on without a separator.
pub(crate) fn requests(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("the ammo is readable");
    let mut rest = bytes.as_slice();
    let mut requests = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        let length: usize = line.split(' ').next().and_then(|length| length.parse().ok()).expect("a length first");
        requests.push(rest[end + 1..end + 1 + length].to_vec());
        rest = &rest[end + 1 + length..];
    }
    requests
}

/// One line of an answers file.
pub(crate) struct Line {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) status: u16,
    pub(crate) body: Option<serde_json::Value>,
}

/// Reads answers: method, target, status and, for some, the JSON body, separated by tabs.
pub(crate) fn answers(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).expect("the answers are readable");
    text.lines()
        .map(|line| {
            let mut parts = line.splitn(4, '\t');
            let mut next = || parts.next().unwrap_or_default();
            Line {
                method: next().to_owned(),
                target: next().to_owned(),
                status: next().parse().expect("a status"),
                body: serde_json::from_str(next()).ok(),
            }
        })
        .collect()
}

/// The body of a raw request by its Content-Length; bytes behind it are stray.
pub(crate) fn body_of(request: &[u8]) -> Option<&[u8]> {
    let head_end = request.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&request[..head_end]).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?.trim().parse::<usize>().ok()?;
    request.get(head_end..head_end + length)
}
