//! Joined replies: the parts of several nodes are joined to one.

use resp::codec::{FrameLimits, ProtocolVersion, ReplyFramer, ReplyView, ReplyWriter};

use crate::commands::Join;

/// How the parts are joined.
#[derive(Clone, Debug)]
pub(crate) enum Joining {
    /// Replies to the same request.
    All(Join),
    /// Values in the order of keys: for each key the index of the part that has its value.
    Values(Vec<u16>),
    /// The confirmation of a subscription.
    Confirmed(super::client::subscription_state::Confirmation),
    /// A single part, which is the reply: of a request that was redirected to another node.
    Only,
    /// A single part, which is the reply to SELECT of this database.
    Selected(u32),
    /// SCAN's single part, from the node at this position among `places`: see [`scan_cursor`].
    Scan { place: u64, places: u64, mark: u8 },
}

/// One node's part.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) node: u16,
    pub(crate) reply: Vec<u8>,
    pub(crate) is_complete: bool,
}

/// A reply that is joined once all parts have arrived.
#[derive(Debug)]
pub(crate) struct Gather {
    /// Number of the client's reply.
    pub(crate) number: u32,
    pub(crate) joining: Joining,
    pub(crate) parts: Vec<Part>,
    pub(crate) parts_left: usize,
    /// Bytes received in all parts.
    bytes: usize,
    /// Whether the parts exceeded the bound: they are dropped, and the reply is an error.
    pub(crate) is_too_large: bool,
    /// Whether the reply is not wanted.
    pub(crate) is_dropped: bool,
}

impl Gather {
    pub(crate) fn new(number: u32, joining: Joining) -> Gather {
        Gather { number, joining, parts: Vec::new(), parts_left: 0, bytes: 0, is_too_large: false, is_dropped: false }
    }

    /// Adds a node's part, and returns its index.
    pub(crate) fn add_part(&mut self, node: u16) -> u16 {
        self.parts.push(Part { node, ..Part::default() });
        self.parts_left += 1;
        (self.parts.len() - 1) as u16
    }

    /// Bytes that it holds, beside the records of its requests.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.is_too_large { 0 } else { self.bytes }
    }

    /// Appends bytes to a part. `bytes_max`: see [`crate::config::ProxyLimits::joined_bytes_max`].
    pub(crate) fn receive(&mut self, part: u16, bytes: &[u8], is_complete: bool, bytes_max: usize) {
        self.bytes += bytes.len();
        if self.bytes > bytes_max && !std::mem::replace(&mut self.is_too_large, true) {
            self.parts.iter_mut().for_each(|part| part.reply = Vec::new());
        }
        if !self.is_too_large {
            self.parts[usize::from(part)].reply.extend_from_slice(bytes);
        }
        if is_complete {
            self.complete(part);
        }
    }

    /// Replaces a part by an error.
    pub(crate) fn fail(&mut self, part: u16, error: &[u8]) {
        self.parts[usize::from(part)].reply = error.to_vec();
        self.complete(part);
    }

    fn complete(&mut self, part: u16) {
        if !std::mem::replace(&mut self.parts[usize::from(part)].is_complete, true) {
            self.parts_left -= 1;
        }
    }

    /// The joined reply. `name_of` returns a node's name.
    pub(crate) fn joined<'n>(&self, version: ProtocolVersion, name_of: &dyn Fn(u16) -> &'n str) -> Vec<u8> {
        if self.is_too_large {
            return b"-ERR the joined reply is larger than the proxy may hold (see --joined-bytes-max)\r\n".to_vec();
        }
        let joined = Joined { gather: self, version, name_of };
        match &self.joining {
            Joining::Values(parts) => joined.values(parts),
            Joining::Scan { place, places, mark } => joined.scan(*place, *places, *mark),
            Joining::Only | Joining::Selected(_) => self.parts.first().map_or(Vec::new(), |part| part.reply.clone()),
            // Confirmations are written by `Shard::confirmation`.
            Joining::Confirmed(_) => Vec::new(),
            Joining::All(join) => joined.all(*join),
        }
    }
}

/// Number of different marks of nodes in cursors.
const SCAN_MARKS: u64 = 256;

/// The parts of SCAN's cursor for clients: the node's own cursor, the node's position, and a mark of the node. A cursor is that of its
/// node alone: of a replica that took over, or of another list's node, the scan begins anew, and may return keys twice. 0 begins with the
/// first node, and is returned after the last.
pub(crate) fn scan_cursor(cursor: u64, places: u64) -> (u64, u64, u8) {
    let (both, mark) = (cursor / SCAN_MARKS, (cursor % SCAN_MARKS) as u8);
    (both / places, both % places, mark)
}

struct Joined<'g, 'n> {
    gather: &'g Gather,
    version: ProtocolVersion,
    name_of: &'g dyn Fn(u16) -> &'n str,
}

fn view(reply: &[u8]) -> ReplyView<'_> {
    match ReplyView::parse(reply, FrameLimits::default()) {
        Ok(Some((view, _))) => view,
        // A framer has found each part complete.
        _ => ReplyView::Null,
    }
}

impl Joined<'_, '_> {
    fn views(&self) -> impl Iterator<Item = ReplyView<'_>> {
        self.gather.parts.iter().map(|part| view(&part.reply))
    }

    fn write(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
        let mut reply = Vec::new();
        write(&mut ReplyWriter::new(&mut reply, self.version));
        reply
    }

    /// The first part that is an error.
    fn error(&self) -> Option<Vec<u8>> {
        self.gather
            .parts
            .iter()
            .find(|part| matches!(view(&part.reply), ReplyView::Error(_)))
            .map(|part| part.reply.clone())
    }

    fn all(&self, join: Join) -> Vec<u8> {
        if join == Join::Same {
            return self.same();
        }
        if let Some(error) = self.error() {
            return error;
        }
        match join {
            Join::Sum => self.integer(|all| all.fold(0, i64::saturating_add)),
            Join::Least => self.integer(|all| all.min().unwrap_or(0)),
            Join::Lists => self.lists(),
            Join::LeastOfEach => self.least_of_each(),
            Join::Texts => self.texts(),
            Join::Counts => self.counts(),
            Join::Any | Join::Same => self.any(),
        }
    }

    fn integer(&self, join: impl FnOnce(&mut dyn Iterator<Item = i64>) -> i64) -> Vec<u8> {
        let mut integers =
            self.views().filter_map(|view| if let ReplyView::Integer(one) = view { Some(one) } else { None });
        let joined = join(&mut integers);
        self.write(|writer| writer.integer(joined))
    }

    fn same(&self) -> Vec<u8> {
        let parts = &self.gather.parts;
        let first = parts.first().map(|part| part.reply.as_slice()).unwrap_or_default();
        if parts.iter().all(|part| part.reply == first) {
            return first.to_vec();
        }
        let mut text = b"ERR the nodes differ".to_vec();
        for part in parts {
            text.extend_from_slice(format!("; {}: ", (self.name_of)(part.node)).as_bytes());
            match view(&part.reply) {
                ReplyView::Error(said) | ReplyView::Simple(said) | ReplyView::Bulk(said) => {
                    text.extend_from_slice(said)
                }
                _ => text.extend_from_slice(part.reply.trim_ascii()),
            }
        }
        self.write(|writer| writer.error(&text))
    }

    fn lists(&self) -> Vec<u8> {
        let lists = || self.gather.parts.iter().filter_map(|part| Some((part, view(&part.reply).elements()?.len())));
        let is_set = self.views().all(|view| matches!(view, ReplyView::Set(_)));
        let count = lists().map(|(_, count)| count as u64).sum();
        let mut reply = self.write(|writer| if is_set { writer.set(count) } else { writer.array(count) });
        for (part, _) in lists() {
            reply.extend_from_slice(behind_line(&part.reply));
        }
        reply
    }

    fn texts(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut is_verbatim = false;
        for part in &self.gather.parts {
            text.extend_from_slice(format!("# Node {}\r\n", (self.name_of)(part.node)).as_bytes());
            let view = view(&part.reply);
            is_verbatim |= matches!(view, ReplyView::Verbatim { .. });
            text.extend_from_slice(view.text().unwrap_or_default());
            text.extend_from_slice(b"\r\n");
        }
        self.write(|writer| if is_verbatim { writer.verbatim(*b"txt", &text) } else { writer.bulk(&text) })
    }

    fn least_of_each(&self) -> Vec<u8> {
        let lists: Vec<Vec<i64>> = self
            .views()
            .filter_map(|view| view.elements())
            .map(|all| all.map(|one| if let ReplyView::Integer(one) = one { one } else { 0 }).collect())
            .collect();
        let count = lists.iter().map(Vec::len).min().unwrap_or(0);
        self.write(|writer| {
            writer.array(count as u64);
            (0..count).for_each(|at| writer.integer(lists.iter().map(|list| list[at]).min().unwrap_or(0)));
        })
    }

    fn counts(&self) -> Vec<u8> {
        let mut sums: Vec<(&[u8], i64)> = Vec::new();
        for (number, list) in self.views().filter_map(|view| view.elements()).enumerate() {
            let mut elements = list.into_iter();
            let pairs = std::iter::from_fn(|| Some((elements.next()?.text()?, elements.next()?)));
            for (at, (name, count)) in pairs.enumerate() {
                let count = if let ReplyView::Integer(count) = count { count } else { 0 };
                match sums.get_mut(at).filter(|_| number > 0) {
                    Some((_, sum)) => *sum += count,
                    None => sums.push((name, count)),
                }
            }
        }
        self.write(|writer| {
            writer.array(2 * sums.len() as u64);
            for (name, sum) in sums {
                writer.bulk(name);
                writer.integer(sum);
            }
        })
    }

    /// One of the parts that are not null; the choice varies from request to request.
    fn any(&self) -> Vec<u8> {
        let present: Vec<_> = self.gather.parts.iter().filter(|part| view(&part.reply) != ReplyView::Null).collect();
        match present.len() {
            0 => self.write(|writer| writer.null()),
            count => present[self.gather.number as usize % count].reply.clone(),
        }
    }

    /// Values in the order of keys; if a part is an error, each of its values is that error.
    fn values(&self, parts: &[u16]) -> Vec<u8> {
        let mut reply = Vec::with_capacity(self.gather.bytes + 16);
        ReplyWriter::new(&mut reply, self.version).array(parts.len() as u64);
        let mut rests: Vec<(&[u8], bool)> = self.gather.parts.iter().map(|part| split_list(&part.reply)).collect();
        let mut framer = ReplyFramer::new(FrameLimits::default());
        for part in parts {
            let (rest, is_error) = &mut rests[usize::from(*part)];
            let bytes = if *is_error { rest.len() } else { framer.advance(rest).map_or(0, |advance| advance.consumed) };
            reply.extend_from_slice(&rest[..bytes]);
            if !*is_error {
                *rest = &rest[bytes..];
            }
        }
        reply
    }

    fn scan(&self, place: u64, places: u64, mark: u8) -> Vec<u8> {
        let Some(part) = self.gather.parts.first() else { return Vec::new() };
        let found = view(&part.reply).elements().and_then(|mut elements| {
            let cursor: u64 = std::str::from_utf8(elements.next()?.text()?).ok()?.parse().ok()?;
            Some((cursor, elements.next()?))
        });
        let Some((cursor, ReplyView::Array(keys))) = found else { return part.reply.clone() };
        let next = match cursor {
            0 if place + 1 == places => Some(0),
            0 => Some((place + 1) * SCAN_MARKS),
            cursor => cursor
                .checked_mul(places)
                .and_then(|cursor| cursor.checked_add(place)?.checked_mul(SCAN_MARKS)?.checked_add(u64::from(mark))),
        };
        let Some(next) = next else {
            return b"-ERR the node's cursor is too large to combine with the node's number\r\n".to_vec();
        };
        self.write(|writer| {
            writer.array(2);
            writer.bulk(next.to_string().as_bytes());
            writer.array(keys.len() as u64);
            keys.for_each(|key| writer.bulk(key.text().unwrap_or_default()));
        })
    }
}

/// The bytes after the first line.
fn behind_line(reply: &[u8]) -> &[u8] {
    memchr::memchr(b'\n', reply).map_or(reply, |line_feed| &reply[line_feed + 1..])
}

/// The elements of a list, or the whole error reply; the flag tells which.
fn split_list(reply: &[u8]) -> (&[u8], bool) {
    if reply.first() == Some(&b'*') { (behind_line(reply), false) } else { (reply, true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(joining: Joining, replies: &[&str], joined: &str) {
        let mut gather = Gather::new(0, joining);
        for (node, reply) in replies.iter().enumerate() {
            let part = gather.add_part(node as u16);
            let (front, back) = reply.as_bytes().split_at(reply.len() / 2);
            gather.receive(part, front, false, 1000);
            gather.receive(part, back, true, 1000);
        }
        assert_eq!(gather.parts_left, 0);
        let reply = gather.joined(ProtocolVersion::Resp2, &|node| ["a", "b", "c"][usize::from(node)]);
        assert_eq!(String::from_utf8_lossy(&reply), joined);
    }

    #[test]
    fn replies_of_nodes_become_one() {
        check(Joining::All(Join::Sum), &[":1\r\n", ":2\r\n"], ":3\r\n");
        check(Joining::All(Join::Sum), &[":1\r\n", "-ERR x\r\n"], "-ERR x\r\n");
        check(Joining::All(Join::Same), &["+OK\r\n", "+OK\r\n"], "+OK\r\n");
        check(
            Joining::All(Join::Same),
            &["+OK\r\n", "-ERR x\r\n", ":7\r\n"],
            "-ERR the nodes differ; a: OK; b: ERR x; c: :7\r\n",
        );
        check(Joining::All(Join::Lists), &["*1\r\n$1\r\nx\r\n", "*0\r\n"], "*1\r\n$1\r\nx\r\n");
        check(Joining::All(Join::Any), &["$-1\r\n", "$1\r\nk\r\n"], "$1\r\nk\r\n");
        check(Joining::All(Join::Any), &["$-1\r\n", "$-1\r\n"], "$-1\r\n");
        check(
            Joining::All(Join::Texts),
            &["$1\r\nx\r\n", "$0\r\n\r\n"],
            "$25\r\n# Node a\r\nx\r\n# Node b\r\n\r\n\r\n",
        );
        check(
            Joining::All(Join::Counts),
            &["*4\r\n$1\r\nx\r\n:1\r\n$1\r\ny\r\n:0\r\n", "*4\r\n$1\r\nx\r\n:2\r\n$1\r\ny\r\n:5\r\n"],
            "*4\r\n$1\r\nx\r\n:3\r\n$1\r\ny\r\n:5\r\n",
        );
        check(Joining::All(Join::LeastOfEach), &["*2\r\n:1\r\n:0\r\n", "*2\r\n:1\r\n:1\r\n"], "*2\r\n:1\r\n:0\r\n");
    }

    #[test]
    fn values_stand_in_the_order_of_keys_and_an_error_is_that_of_its_keys() {
        let joining = || Joining::Values(vec![1, 0, 1]);
        check(joining(), &["*1\r\n$1\r\na\r\n", "*2\r\n$-1\r\n$1\r\nb\r\n"], "*3\r\n$-1\r\n$1\r\na\r\n$1\r\nb\r\n");
        check(joining(), &["*1\r\n$1\r\na\r\n", "-ERR x\r\n"], "*3\r\n-ERR x\r\n$1\r\na\r\n-ERR x\r\n");
    }

    #[test]
    fn a_cursor_leads_through_all_nodes() {
        let scan = |place| Joining::Scan { place, places: 3, mark: 7 };
        check(scan(1), &["*2\r\n$2\r\n10\r\n*0\r\n"], "*2\r\n$4\r\n7943\r\n*0\r\n");
        check(scan(1), &["*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n"], "*2\r\n$3\r\n512\r\n*1\r\n$1\r\nk\r\n");
        check(scan(2), &["*2\r\n$1\r\n0\r\n*0\r\n"], "*2\r\n$1\r\n0\r\n*0\r\n");
        assert_eq!((scan_cursor(7943, 3), scan_cursor(512, 3)), ((10, 1, 7), (0, 2, 0)));
        check(scan(0), &["-ERR x\r\n"], "-ERR x\r\n");
    }

    #[test]
    fn more_than_may_be_joined_is_an_error() {
        let mut gather = Gather::new(0, Joining::All(Join::Lists));
        let part = gather.add_part(0);
        gather.receive(part, &[b'x'; 100], false, 150);
        gather.receive(part, &[b'x'; 100], true, 150);
        assert!(gather.joined(ProtocolVersion::Resp2, &|_| "a").starts_with(b"-ERR"));
        assert!(gather.parts[0].reply.is_empty());
    }
}
