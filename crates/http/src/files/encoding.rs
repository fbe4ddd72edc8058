//! Content codings: the representation of a file that a client gets (RFC 9110, section 12.5.3).

/// Coding of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Coding {
    Brotli,
    Gzip,
    Identity,
}

impl Coding {
    pub(super) const COUNT: usize = 3;
    /// The codings that have files of their own, better first.
    pub(super) const SIBLINGS: [Coding; 2] = [Coding::Brotli, Coding::Gzip];

    /// Its name on the wire; empty for the plain file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
            Coding::Identity => "",
        }
    }

    /// Suffix of such a file's name, after the plain file's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Gzip => ".gz",
            Coding::Identity => "",
        }
    }
}

/// The content of an Accept-Encoding field: weights in thousandths, by coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts([u16; Coding::COUNT]);

/// The weight of a coding named without one.
const WHOLE: u16 = 1000;

impl Accepts {
    /// Only the plain file, for a request without the field: its client may not decode.
    pub(super) const PLAIN: Accepts = Accepts([0, 0, 1]);

    /// Reads a field's value.
    pub(super) fn read(value: &[u8]) -> Accepts {
        let (mut named, mut others) = ([None; Coding::COUNT], None);
        for item in value.split(|byte| *byte == b',') {
            let mut parts = item.split(|byte| *byte == b';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let weight = parts.find_map(weight_of).unwrap_or(WHOLE);
            let place = match name {
                b"*" => &mut others,
                name if is_any(name, &[b"br"]) => &mut named[Coding::Brotli as usize],
                name if is_any(name, &[b"gzip", b"x-gzip"]) => &mut named[Coding::Gzip as usize],
                name if is_any(name, &[b"identity"]) => &mut named[Coding::Identity as usize],
                _ => continue,
            };
            *place = Some(weight);
        }
        let mut weights = named.map(|weight| weight.or(others).unwrap_or(0));
        // The plain file is acceptable unless it is excluded; a named coding goes before it.
        let plain = named[Coding::Identity as usize].or(others.filter(|weight| *weight == 0));
        weights[Coding::Identity as usize] = plain.unwrap_or(1);
        Accepts(weights)
    }

    /// The acceptable codings that go before the plain file, best first.
    pub(super) fn before_plain(self) -> impl Iterator<Item = Coding> {
        let weight = move |coding: Coding| self.0[coding as usize];
        let mut order = Coding::SIBLINGS;
        if weight(Coding::Gzip) > weight(Coding::Brotli) {
            order.reverse();
        }
        let is_better = move |coding: &Coding| weight(*coding) > 0 && weight(*coding) >= weight(Coding::Identity);
        order.into_iter().filter(is_better)
    }
}

fn is_any(name: &[u8], known: &[&[u8]]) -> bool {
    known.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// `q=0.5` in thousandths; an invalid weight counts as 0.
fn weight_of(parameter: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(parameter.trim_ascii()).ok()?;
    let value = text.strip_prefix("q=").or_else(|| text.strip_prefix("Q="))?;
    let weight: f32 = value.parse().unwrap_or(0.0);
    Some(if (0.0..=1.0).contains(&weight) { (weight * f32::from(WHOLE)) as u16 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &str, expected: &[Coding]) {
        let order: Vec<Coding> = Accepts::read(field.as_bytes()).before_plain().collect();
        assert_eq!(order, expected, "{field:?}");
    }

    #[test]
    fn the_better_coding_goes_first_unless_the_weights_say_otherwise() {
        let (br, gzip) = (Coding::Brotli, Coding::Gzip);
        check("gzip, deflate, br, zstd", &[br, gzip]);
        check("GZIP", &[gzip]);
        check("x-gzip", &[gzip]);
        check("br;q=0.5, gzip;q=0.8", &[gzip, br]);
        check("br;q=0, gzip", &[gzip]);
        check("*", &[br, gzip]);
        check("*;q=0.1, br;q=0", &[gzip]);
        check("gzip;q=1.0", &[gzip]);
    }

    #[test]
    fn the_plain_file_is_sent_where_nothing_else_is_named_or_it_weighs_more() {
        for field in ["", "deflate", "identity", "identity, br;q=0.5", "br;q=0", "gzip;q=x", "br;q=2", "gzip;q=-1"] {
            check(field, &[]);
        }
        assert_eq!(Accepts::PLAIN.before_plain().count(), 0);
        check("gzip, identity;q=0", &[Coding::Gzip]);
        check("gzip, *;q=0", &[Coding::Gzip]);
    }

    #[test]
    fn odd_fields_are_no_panic() {
        for field in ["q=1", ";;;", ",,;q=", "br;q=nan", "br; Q=0.5;q=1", "\u{44f}"] {
            let _ = Accepts::read(field.as_bytes()).before_plain().count();
        }
    }
}
