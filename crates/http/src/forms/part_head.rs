//! The head of one part of a multipart form: the field's name and the file's name (RFC 7578, section 4).
//!
//! | in the head | result |
//! |---|---|
//! | `name` | the field's name: UTF-8, required |
//! | `filename` | the file's name without its folders, for display alone: never a path of this machine |
//! | `filename*` beside `filename` | ignored: RFC 7578 forbids it, and `HttpClient` of .NET sends both |
//! | `filename*` alone, `name*` | an error: ignoring it would turn a file into a text field |
//! | `Content-Type` | kept as sent |
//! | `Content-Transfer-Encoding` | `7bit`, `8bit` and `binary` change nothing; another one is an error |
//! | any other field | ignored, as the RFC asks |
//!
//! `%22`, `%0D` and `%0A`, which browsers write for a quotation mark and line ends in names, are not decoded: a name that
//! contains these characters literally is sent in the same form.

use std::borrow::Cow;

use httparse::EMPTY_HEADER;

use super::multipart_fault::MultipartFault;
use super::parameters;

/// Header fields of one part; RFC 7578 defines three.
const PART_FIELDS_MAX: usize = 16;

/// The content of a part's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartHead {
    /// The name of the field.
    pub name: String,
    /// The name of the file, without folders; `None`: the part is no file. Empty if the client sent no name, or only that of a
    /// folder. Untrusted input: never make a path of it.
    pub file_name: Option<String>,
    /// Its Content-Type as sent.
    pub content_type: Option<String>,
}

/// Reads a head that ends with the empty line.
pub(super) fn parse(head: &[u8], name_bytes_max: usize) -> Result<PartHead, MultipartFault> {
    check_line_ends(head)?;
    let mut fields = [EMPTY_HEADER; PART_FIELDS_MAX];
    let fields = match httparse::parse_headers(head, &mut fields) {
        Ok(httparse::Status::Complete((_, fields))) => fields,
        Ok(httparse::Status::Partial) => return Err(MultipartFault::HeadField),
        Err(httparse::Error::TooManyHeaders) => return Err(MultipartFault::TooManyHeadFields(PART_FIELDS_MAX)),
        Err(_) => return Err(MultipartFault::HeadField),
    };
    let (mut disposition, mut content_type) = (None, None);
    for field in fields {
        if field.name.eq_ignore_ascii_case("Content-Disposition") {
            set_once(&mut disposition, field.value, "Content-Disposition")?;
        } else if field.name.eq_ignore_ascii_case("Content-Type") {
            set_once(&mut content_type, field.value, "Content-Type")?;
        } else if field.name.eq_ignore_ascii_case("Content-Transfer-Encoding") && !is_identity(field.value) {
            return Err(MultipartFault::TransferEncoding);
        }
    }
    let (name, file_name) = read_disposition(disposition.ok_or(MultipartFault::NameMissing)?, name_bytes_max)?;
    let content_type = content_type.map(text).transpose()?;
    Ok(PartHead { name, file_name, content_type })
}

/// httparse accepts a line feed alone as the end of a line; other servers do not.
fn check_line_ends(head: &[u8]) -> Result<(), MultipartFault> {
    for at in memchr::memchr2_iter(b'\r', b'\n', head) {
        let is_pair = match head[at] {
            b'\r' => head.get(at + 1) == Some(&b'\n'),
            _ => at > 0 && head[at - 1] == b'\r',
        };
        if !is_pair {
            return Err(MultipartFault::LineEnd);
        }
    }
    Ok(())
}

fn set_once<T>(place: &mut Option<T>, value: T, what: &'static str) -> Result<(), MultipartFault> {
    if place.replace(value).is_some() { Err(MultipartFault::Repeated(what)) } else { Ok(()) }
}

fn is_identity(encoding: &[u8]) -> bool {
    ["7bit", "8bit", "binary"].iter().any(|identity| encoding.trim_ascii().eq_ignore_ascii_case(identity.as_bytes()))
}

/// The field's name and the file's name of a Content-Disposition.
fn read_disposition(value: &[u8], name_bytes_max: usize) -> Result<(String, Option<String>), MultipartFault> {
    let (kind, parameters) = parameters::split(value);
    if !kind.eq_ignore_ascii_case(b"form-data") {
        return Err(MultipartFault::Disposition);
    }
    let (mut name, mut file_name, mut has_extended_file_name) = (None, None, false);
    for parameter in parameters {
        let (key, value) = parameter.map_err(|_| MultipartFault::Disposition)?;
        if key.eq_ignore_ascii_case(b"name") {
            set_once(&mut name, value, "name")?;
        } else if key.eq_ignore_ascii_case(b"filename") {
            set_once(&mut file_name, value, "filename")?;
        } else if key.eq_ignore_ascii_case(b"filename*") {
            has_extended_file_name = true;
        } else if key.eq_ignore_ascii_case(b"name*") {
            return Err(MultipartFault::ExtendedParameter("name*"));
        }
    }
    if has_extended_file_name && file_name.is_none() {
        return Err(MultipartFault::ExtendedParameter("filename*"));
    }
    let bounded = |value: Cow<'_, [u8]>| {
        let text = text(&value)?;
        if text.len() > name_bytes_max { Err(MultipartFault::NameTooLong(name_bytes_max)) } else { Ok(text) }
    };
    let name = bounded(name.ok_or(MultipartFault::NameMissing)?)?;
    let file_name = file_name.map(bounded).transpose()?;
    Ok((name, file_name.map(|path| last_segment(&path).to_owned())))
}

/// Text without control characters. httparse lets a tab through.
fn text(value: &[u8]) -> Result<String, MultipartFault> {
    let text = std::str::from_utf8(value).map_err(|_| MultipartFault::NotUtf8)?;
    if text.chars().any(char::is_control) { Err(MultipartFault::ControlCharacter) } else { Ok(text.to_owned()) }
}

/// The part after the last slash or backslash; empty if that is a folder.
fn last_segment(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    if matches!(name, "." | "..") { "" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME_BYTES_MAX: usize = 40;

    fn read(lines: &str) -> Result<String, MultipartFault> {
        let head = parse(format!("{lines}\r\n\r\n").as_bytes(), NAME_BYTES_MAX)?;
        let PartHead { name, file_name, content_type } = head;
        let file_name = file_name.map_or_else(String::new, |name| format!(" file <{name}>"));
        Ok(format!("<{name}>{file_name}{}", content_type.map_or_else(String::new, |media| format!(" {media}"))))
    }

    #[track_caller]
    fn check(lines: &str, expected: Result<&str, MultipartFault>) {
        assert_eq!(read(lines), expected.map(str::to_owned), "{lines}");
    }

    #[track_caller]
    fn check_parameters(parameters: &str, expected: Result<&str, MultipartFault>) {
        check(&format!("Content-Disposition: form-data; {parameters}"), expected);
    }

    #[test]
    fn a_head_names_its_field_its_file_and_its_type() {
        check_parameters("name=\"a b\"", Ok("<a b>"));
        check_parameters("name=a; filename=b.txt", Ok("<a> file <b.txt>"));
        check_parameters("name=\"\"", Ok("<>"));
        check_parameters("name=\"\u{44f}\\\"\"; filename=\"\u{20ac}.txt\"", Ok("<\u{44f}\"> file <\u{20ac}.txt>"));
        check_parameters("name=\"a%22b\"", Ok("<a%22b>"));
        let lines = "content-type: text/plain; charset=utf-8\r\nX-Other: y\r\ncontent-disposition: Form-Data;name=a";
        check(lines, Ok("<a> text/plain; charset=utf-8"));
    }

    #[test]
    fn a_file_name_is_never_a_path() {
        for (sent, kept) in [
            ("../../etc/passwd", "passwd"),
            ("/etc/passwd", "passwd"),
            (r"C:\Users\x\photo.jpg", "photo.jpg"),
            (r"..\..\boot.ini", "boot.ini"),
            ("a/b\\c", "c"),
            ("folder/", ""),
            ("..", ""),
            ("x/..", ""),
            (".", ""),
            ("", ""),
            (".htaccess", ".htaccess"),
            ("%2e%2e%2fpasswd", "%2e%2e%2fpasswd"),
        ] {
            check_parameters(&format!("name=f; filename=\"{sent}\""), Ok(&format!("<f> file <{kept}>")));
        }
    }

    #[test]
    fn control_characters_and_other_encodings_are_refused() {
        check_parameters("name=\"a\tb\"", Err(MultipartFault::ControlCharacter));
        check_parameters("name=f; filename=\"a\u{85}\"", Err(MultipartFault::ControlCharacter));
        check_parameters("name=\"a\0b\"", Err(MultipartFault::HeadField));
        let latin = b"Content-Disposition: form-data; name=\"\xe9\"\r\n\r\n";
        assert_eq!(parse(latin, NAME_BYTES_MAX), Err(MultipartFault::NotUtf8));
    }

    #[test]
    fn extended_parameters_count_for_nothing() {
        check_parameters("name=f; filename=a.txt; filename*=utf-8''b.txt", Ok("<f> file <a.txt>"));
        check_parameters("name=f; filename*=utf-8''b.txt", Err(MultipartFault::ExtendedParameter("filename*")));
        check_parameters("name=f; name*=utf-8''b", Err(MultipartFault::ExtendedParameter("name*")));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        check_parameters("name=a; name=b", Err(MultipartFault::Repeated("name")));
        check_parameters("name=a; filename=b; FileName=c", Err(MultipartFault::Repeated("filename")));
        check_parameters("filename=b", Err(MultipartFault::NameMissing));
        check_parameters("name=a b", Err(MultipartFault::Disposition));
        check("Content-Disposition: attachment; name=a", Err(MultipartFault::Disposition));
        check("Content-Type: text/plain", Err(MultipartFault::NameMissing));
        let twice = "Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b";
        check(twice, Err(MultipartFault::Repeated("Content-Disposition")));
        let disposition = "Content-Disposition: form-data; name=a";
        for (line, fault) in [
            ("Content-Type: a/b\r\nContent-Type: a/b", MultipartFault::Repeated("Content-Type")),
            ("Content-Transfer-Encoding: base64", MultipartFault::TransferEncoding),
            (" folded", MultipartFault::HeadField),
            ("no colon", MultipartFault::HeadField),
            ("A: b\nC: d", MultipartFault::LineEnd),
            ("A: b\rC: d", MultipartFault::LineEnd),
        ] {
            check(&format!("{disposition}\r\n{line}"), Err(fault));
        }
        check(&format!("{disposition}\r\nContent-Transfer-Encoding: 8BIT"), Ok("<a>"));
    }

    #[test]
    fn names_and_fields_have_limits() {
        check_parameters(&format!("name={}", "n".repeat(41)), Err(MultipartFault::NameTooLong(40)));
        check_parameters(&format!("name=f; filename={}", "n".repeat(41)), Err(MultipartFault::NameTooLong(40)));
        let fields = vec!["A: b"; PART_FIELDS_MAX].join("\r\n");
        let lines = format!("Content-Disposition: form-data; name=a\r\n{fields}");
        check(&lines, Err(MultipartFault::TooManyHeadFields(PART_FIELDS_MAX)));
    }
}
