//! Cutting import files into documents.

use binjson::{Elements, JsonError, JsonErrorKind, split_array, split_lines};

/// Elements as `key:text@offset`, then the error if there is one.
#[track_caller]
fn check_split(text: &str, expected: &[&str]) {
    let show = |element: Result<binjson::Element<'_>, JsonError>| match element {
        Ok(element) => {
            let array = element.array.map_or("-".into(), String::from_utf8_lossy);
            assert_eq!(&text.as_bytes()[element.offset..element.offset + element.text.len()], element.text);
            format!("{array}:{}@{}", String::from_utf8_lossy(element.text), element.offset)
        }
        Err(error) => format!("{:?}@{}", error.kind, error.offset),
    };
    assert_eq!(Elements::new(text.as_bytes()).map(show).collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn an_array_gives_its_elements() {
    check_split("[]", &[]);
    check_split(" [ ] ", &[]);
    check_split(r#"[{"a":1},{"b":[2]}]"#, &[r#"-:{"a":1}@1"#, r#"-:{"b":[2]}@9"#]);
    check_split("[ 1 , \"]\" ,\n[[],{}] ]", &["-:1@2", "-:\"]\"@6", "-:[[],{}]@12"]);
    check_split(r#"["a\"]","\\"]"#, &[r#"-:"a\"]"@1"#, r#"-:"\\"@8"#]);
    check_split("\u{feff}[1]", &["-:1@4"]);
}

#[test]
fn an_object_of_arrays_names_each_elements_array() {
    check_split("{}", &[]);
    check_split(r#"{"users": [{"id":1}, {"id":2}]}"#, &[r#"users:{"id":1}@11"#, r#"users:{"id":2}@21"#]);
    check_split(r#"{"a":[],"b":[1],"c":[2]}"#, &["b:1@13", "c:2@21"]);
}

#[test]
fn a_broken_frame_is_an_error_with_its_place_after_the_elements_before_it() {
    check_split("", &["UnexpectedEnd@0"]);
    check_split("1", &["UnexpectedByte@0"]);
    check_split("[1", &["-:1@1", "UnexpectedEnd@2"]);
    check_split("[1,]", &["-:1@1", "UnexpectedByte@3"]);
    check_split("[1 2]", &["-:1@1", "UnexpectedByte@3"]);
    // The splitter only counts brackets: the encoder reports a bracket of the wrong kind.
    check_split("[{\"a\":1]", &["-:{\"a\":1]@1", "UnexpectedEnd@8"]);
    check_split("[{\"a\":1", &["UnexpectedEnd@1"]);
    check_split("[1]x", &["-:1@1", "TrailingBytes@3"]);
    check_split("{\"a\":1}", &["UnexpectedByte@5"]);
    check_split("{\"a\":[1]", &["a:1@6", "UnexpectedEnd@8"]);
    check_split("{\"a\":[1],}", &["a:1@6", "ExpectedKey@9"]);
    check_split("{a:[1]}", &["ExpectedKey@1"]);
}

#[test]
fn the_callers_error_ends_the_walk() {
    let mut seen = Vec::new();
    let result = split_array(b"[1,2,3]", |text, offset| {
        seen.push((text.to_vec(), offset));
        if offset < 3 { Ok(()) } else { Err(JsonError { kind: JsonErrorKind::BadNumber, offset }) }
    });
    assert_eq!(result, Err(JsonError { kind: JsonErrorKind::BadNumber, offset: 3 }));
    assert_eq!(seen, [(b"1".to_vec(), 1), (b"2".to_vec(), 3)]);
}

#[test]
fn lines_come_with_their_offsets_and_without_their_ends() {
    let found: Vec<_> = split_lines(b"{\"a\":1}\r\n\n  {}  \n \t\n[2]").collect();
    let expected: [(&[u8], usize); 3] = [(b"{\"a\":1}", 0), (b"{}", 12), (b"[2]", 20)];
    assert_eq!(found, expected);
    assert_eq!(split_lines(b"").count(), 0);
    assert_eq!(split_lines(b"\n\n").count(), 0);
}
