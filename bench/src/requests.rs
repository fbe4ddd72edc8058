//! What is sent: seeded random requests, written straight into the write queue.

use std::io::Write;

/// A source of requests.
#[derive(Debug)]
pub(crate) struct Requests {
    kind: Kind,
    max_id: u32,
    state: u64,
}

#[derive(Debug)]
enum Kind {
    Get { before: String, after: String, step: u32 },
    PostVisits,
}

impl Requests {
    /// GETs of a target in which `{id}` becomes a random one of the ids 1, 1 + `step`, and so on.
    pub(crate) fn get(path: &str, max_id: u32, step: u32, seed: u64) -> Requests {
        let (before, after) = path.split_once("{id}").unwrap_or((path, ""));
        let kind = Kind::Get { before: before.to_owned(), after: after.to_owned(), step: step.max(1) };
        Requests { kind, max_id, state: seed }
    }

    /// Changes of random visits' marks.
    pub(crate) fn post_visits(max_id: u32, seed: u64) -> Requests {
        Requests { kind: Kind::PostVisits, max_id, state: seed }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): one multiplication chain, good enough to spread ids.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Appends the next request.
    pub(crate) fn append(&mut self, out: &mut Vec<u8>) {
        let random = self.random();
        let id = random % u64::from(self.max_id.max(1)) + 1;
        // Writing into a Vec does not fail.
        let _ = match &self.kind {
            Kind::Get { before, after, step } => {
                let id = id - (id - 1) % u64::from(*step);
                write!(out, "GET {before}{id}{after} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            }
            Kind::PostVisits => {
                let mark = (random >> 32) % 6;
                write!(
                    out,
                    "POST /visits/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                     Content-Length: 10\r\n\r\n{{\"mark\":{mark}}}"
                )
            }
        };
    }
}

#[cfg(test)]
mod shape {
    use super::Requests;

    #[test]
    fn ids_keep_their_step() {
        let mut requests = Requests::get("/{id}", 100, 12, 1);
        for _ in 0..50 {
            let mut out = Vec::new();
            requests.append(&mut out);
            let text = String::from_utf8(out).expect("ASCII");
            let id: u32 = text[5..].split(' ').next().and_then(|id| id.parse().ok()).expect("an id");
            assert!(id % 12 == 1 && id <= 100, "{text}");
        }
    }

    #[test]
    fn the_content_length_of_a_post_is_its_bodys() {
        let mut out = Vec::new();
        Requests::post_visits(10, 1).append(&mut out);
        let text = String::from_utf8(out).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
    }
}
