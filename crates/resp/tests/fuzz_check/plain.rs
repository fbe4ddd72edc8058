//! A plain parser of RESP, recursive and on whole texts, with which the codec is compared.

/// A reply as a tree that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Null,
    Text(u8, Vec<u8>),
    Integer(i64),
    Double(u64),
    Boolean(bool),
    Aggregate(u8, Vec<Tree>),
}

/// Why there is no tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Nothing {
    Incomplete,
    Wrong,
}

use Nothing::{Incomplete, Wrong};

/// The line that begins here, and the text after it.
fn line(bytes: &[u8]) -> Result<(&[u8], &[u8]), Nothing> {
    let end = bytes.iter().position(|&byte| byte == b'\r').ok_or(Incomplete)?;
    match bytes.get(end + 1) {
        None => Err(Incomplete),
        Some(b'\n') => Ok((&bytes[..end], &bytes[end + 2..])),
        Some(_) => Err(Wrong),
    }
}

/// An integer in its canonical form.
fn integer(text: &[u8]) -> Result<i64, Nothing> {
    let text = std::str::from_utf8(text).map_err(|_| Wrong)?;
    text.parse::<i64>().ok().filter(|integer| integer.to_string() == text).ok_or(Wrong)
}

fn payload(bytes: &[u8], length: usize) -> Result<(&[u8], &[u8]), Nothing> {
    let end = bytes.get(length..).ok_or(Incomplete)?;
    match end {
        [b'\r', b'\n', rest @ ..] => Ok((&bytes[..length], rest)),
        [] | [b'\r'] => Err(Incomplete),
        _ => Err(Wrong),
    }
}

/// The reply that begins here, and the text after it. Attributes are skipped.
pub(crate) fn reply(bytes: &[u8], depth: usize) -> Result<(Tree, &[u8]), Nothing> {
    let (&kind, behind) = bytes.split_first().ok_or(Incomplete)?;
    if !b"+-(:,#_$!=*~>%|".contains(&kind) {
        return Err(Wrong);
    }
    let (text, rest) = line(behind)?;
    match kind {
        b'+' | b'-' | b'(' => Ok((Tree::Text(kind, text.to_vec()), rest)),
        b':' => Ok((Tree::Integer(integer(text)?), rest)),
        // A limit of the codec.
        b',' if text.len() > 64 => Err(Wrong),
        b',' => {
            let text = std::str::from_utf8(text).map_err(|_| Wrong)?;
            Ok((Tree::Double(text.parse::<f64>().map_err(|_| Wrong)?.to_bits()), rest))
        }
        b'#' if text == b"t" || text == b"f" => Ok((Tree::Boolean(text == b"t"), rest)),
        b'_' if text.is_empty() => Ok((Tree::Null, rest)),
        b'#' | b'_' => Err(Wrong),
        b'$' | b'*' if text == b"-1" => Ok((Tree::Null, rest)),
        b'$' | b'!' | b'=' => {
            let length = usize::try_from(integer(text)?).ok().filter(|&length| length <= 512 << 20).ok_or(Wrong)?;
            if kind == b'=' && length < 4 {
                return Err(Wrong);
            }
            let (text, rest) = payload(rest, length)?;
            Ok((Tree::Text(kind, text.to_vec()), rest))
        }
        _ => aggregate(kind, integer(text)?, rest, depth),
    }
}

fn aggregate(kind: u8, length: i64, bytes: &[u8], depth: usize) -> Result<(Tree, &[u8]), Nothing> {
    let length = u32::try_from(length).map_err(|_| Wrong)?;
    if length > 0 && depth == resp::codec::DEPTH_MAX {
        return Err(Wrong);
    }
    let values = u64::from(length) * if matches!(kind, b'%' | b'|') { 2 } else { 1 };
    let (mut rest, mut trees) = (bytes, Vec::new());
    for _ in 0..values {
        let (tree, behind) = reply(rest, depth + 1)?;
        trees.push(tree);
        rest = behind;
    }
    if kind == b'|' { reply(rest, depth) } else { Ok((Tree::Aggregate(kind, trees), rest)) }
}

/// The arguments of the request that begins here, and the text after it; an inline command as its line.
pub(crate) fn request(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, &[u8]), Nothing> {
    let Some(behind) = bytes.strip_prefix(b"*") else {
        let end = bytes.iter().position(|&byte| byte == b'\n').ok_or(Incomplete)?;
        return Ok((vec![bytes[..end].to_vec()], &bytes[end + 1..]));
    };
    let (text, mut rest) = line(behind)?;
    let count = integer(text)?;
    if count > 1 << 20 {
        return Err(Wrong);
    }
    let mut arguments = Vec::new();
    for _ in 0..count.max(0) {
        let behind = match rest.split_first() {
            None => return Err(Incomplete),
            Some((b'$', behind)) => behind,
            Some(_) => return Err(Wrong),
        };
        let (text, behind) = line(behind)?;
        let length = usize::try_from(integer(text)?).ok().filter(|&length| length <= 512 << 20).ok_or(Wrong)?;
        let (argument, behind) = payload(behind, length)?;
        arguments.push(argument.to_vec());
        rest = behind;
    }
    Ok((arguments, rest))
}
