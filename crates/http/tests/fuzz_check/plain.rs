//! A slow and plain parser of requests, by the letter of RFC 9112: requests that the fast parser accepts, this one must accept
//! with the same meaning. It is laxer than the fast parser (names, hosts, limits), never stricter.

/// A request, and where the next begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) body: Vec<u8>,
    pub(super) end: usize,
}

fn find(bytes: &[u8], what: &[u8], from: usize) -> Option<usize> {
    bytes.get(from..)?.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

/// The first request of the bytes; `None` if it is incomplete or invalid.
pub(super) fn request(bytes: &[u8]) -> Option<Plain> {
    let mut start = 0;
    while bytes[start..].starts_with(b"\r\n") {
        start += 2;
    }
    let head_end = find(bytes, b"\r\n\r\n", start)?;
    let head: String = bytes[start..head_end].iter().map(|&byte| char::from(byte)).collect();
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next()?.split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else { return None };
    let (mut lengths, mut codings) = (Vec::new(), Vec::new());
    for line in lines {
        if line.contains(['\r', '\n', '\0']) {
            return None;
        }
        let (name, value) = line.split_once(':')?;
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            "content-length" => lengths.push(value),
            "transfer-encoding" => codings.push(value.to_ascii_lowercase()),
            _ => {}
        }
    }
    let body_start = head_end + 4;
    let (body, end) = match (&lengths[..], &codings[..]) {
        ([], []) => (Vec::new(), body_start),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let end = body_start.checked_add(length.parse().ok()?)?;
            (bytes.get(body_start..end)?.to_vec(), end)
        }
        ([], [coding]) if coding == "chunked" => chunks(bytes, body_start)?,
        _ => return None,
    };
    Some(Plain { method: method.to_owned(), target: target.to_owned(), body, end })
}

/// The data of each part of a multipart form, by a split at the delimiters. Heads are not parsed.
pub(super) fn multipart(body: &[u8], boundary: &str) -> Option<Vec<Vec<u8>>> {
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    // The first delimiter needs no line end before it.
    let text = if body.starts_with(b"\r\n") { body.to_vec() } else { [b"\r\n", body].concat() };
    let (mut parts, mut at) = (Vec::new(), 0);
    if !text.starts_with(&delimiter) {
        return None;
    }
    loop {
        at += delimiter.len();
        if text[at..].starts_with(b"--") {
            return text[at + 2..].iter().all(|byte| b" \t\r\n".contains(byte)).then_some(parts);
        }
        let head = find(&text, b"\r\n", at)? + 2;
        if !text[at..head - 2].iter().all(|byte| b" \t".contains(byte)) {
            return None;
        }
        let data = find(&text, b"\r\n\r\n", head)? + 4;
        // The empty line may belong to the delimiter.
        let end = find(&text, &delimiter, data - 2)?;
        parts.push(text[data..end.max(data)].to_vec());
        at = end;
    }
}

/// A chunked body that begins at `at`: its data, and its end. `None` if it is incomplete or invalid.
pub(super) fn chunks(bytes: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    loop {
        let line_end = find(bytes, b"\r\n", at)?;
        let line = &bytes[at..line_end];
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
        let is_extension = matches!(line.get(digits), None | Some(b';' | b' ' | b'\t'));
        if !is_extension || line.contains(&b'\n') {
            return None;
        }
        at = line_end + 2;
        if size == 0 {
            break;
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        body.extend_from_slice(bytes.get(at..end)?);
        if bytes.get(end..end.checked_add(2)?)? != b"\r\n" {
            return None;
        }
        at = end + 2;
    }
    loop {
        let line_end = find(bytes, b"\r\n", at)?;
        let is_last = line_end == at;
        if !is_last && !bytes[at..line_end].contains(&b':') {
            return None;
        }
        at = line_end + 2;
        if is_last {
            return Some((body, at));
        }
    }
}
