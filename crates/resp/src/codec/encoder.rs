//! Encodes commands and replies; appends to the caller's buffer.

use super::protocol_error::ProtocolError;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProtocolVersion {
    /// The version of every new connection.
    #[default]
    Resp2,
    /// After `HELLO 3`, from Redis 6 on.
    Resp3,
}

/// Writes a type and a length or number: `*3`, `$5`, `:-1`.
#[inline]
pub(crate) fn write_integer(output: &mut Vec<u8>, kind: u8, integer: i64) {
    let mut digits = itoa::Buffer::new();
    output.push(kind);
    output.extend_from_slice(digits.format(integer).as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// The same for a count, which is never negative. Counts of one or two digits, nearly all, are written without a call.
#[inline]
pub(crate) fn write_count(output: &mut Vec<u8>, kind: u8, count: u64) {
    let digit = |digit: u64| b'0' + digit as u8;
    match count {
        0..=9 => output.extend_from_slice(&[kind, digit(count), b'\r', b'\n']),
        10..=99 => output.extend_from_slice(&[kind, digit(count / 10), digit(count % 10), b'\r', b'\n']),
        _ => write_long_count(output, kind, count),
    }
}

fn write_long_count(output: &mut Vec<u8>, kind: u8, count: u64) {
    let mut digits = itoa::Buffer::new();
    output.push(kind);
    output.extend_from_slice(digits.format(count).as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Writes a bulk string, which is also the form of a command's argument.
#[inline]
pub(crate) fn write_bulk(output: &mut Vec<u8>, bytes: &[u8]) {
    write_count(output, b'$', bytes.len() as u64);
    output.extend_from_slice(bytes);
    output.extend_from_slice(b"\r\n");
}

/// Appends a command as an array of bulk strings.
pub fn write_command<A: AsRef<[u8]>>(output: &mut Vec<u8>, arguments: &[A]) {
    write_count(output, b'*', arguments.len() as u64);
    arguments.iter().for_each(|argument| write_bulk(output, argument.as_ref()));
}

/// Writes replies as a server or a proxy sends them, in the protocol of the connection. Under RESP2 a type of RESP3 is
/// replaced as Redis does.
#[derive(Debug)]
pub struct ReplyWriter<'o> {
    output: &'o mut Vec<u8>,
    version: ProtocolVersion,
}

impl<'o> ReplyWriter<'o> {
    /// Appends to `output`.
    pub fn new(output: &'o mut Vec<u8>, version: ProtocolVersion) -> ReplyWriter<'o> {
        ReplyWriter { output, version }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.output.push(kind);
        // A line end inside would begin a second reply: Redis replaces it by a blank too.
        self.output.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.output.extend_from_slice(b"\r\n");
    }

    fn is_resp3(&self) -> bool {
        self.version == ProtocolVersion::Resp3
    }

    /// A short text; line ends in it are replaced by blanks.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: a code in capitals, a blank, a text. Line ends are replaced by blanks.
    pub fn error(&mut self, text: &[u8]) {
        self.line(b'-', text);
    }

    /// The error for a client whose bytes are not RESP. The caller then closes the connection.
    pub fn protocol_error(&mut self, error: ProtocolError) {
        self.line(b'-', format!("ERR {error}").as_bytes());
    }

    /// A number.
    pub fn integer(&mut self, integer: i64) {
        write_integer(self.output, b':', integer);
    }

    /// A string of bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        write_bulk(self.output, bytes);
    }

    /// No value. RESP2: a null bulk string.
    pub fn null(&mut self) {
        self.output.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// An array; the caller writes its elements next.
    pub fn array(&mut self, elements: u64) {
        write_count(self.output, b'*', elements);
    }

    /// A map; the caller writes its keys and values next, alternating. RESP2: an array of them.
    pub fn map(&mut self, pairs: u64) {
        match self.version {
            ProtocolVersion::Resp3 => write_count(self.output, b'%', pairs),
            ProtocolVersion::Resp2 => write_count(self.output, b'*', pairs * 2),
        }
    }

    /// A set; the caller writes its elements next. RESP2: an array.
    pub fn set(&mut self, elements: u64) {
        write_count(self.output, if self.is_resp3() { b'~' } else { b'*' }, elements);
    }

    /// A push message; the caller writes its elements next. RESP2: an array, which is what subscribers expect.
    pub fn push(&mut self, elements: u64) {
        write_count(self.output, if self.is_resp3() { b'>' } else { b'*' }, elements);
    }

    /// Attributes of the value that follows; the caller writes their keys and values next, alternating.
    ///
    /// # Panics
    /// Under RESP2, which has no attributes.
    pub fn attributes(&mut self, pairs: u64) {
        assert!(self.is_resp3(), "attributes under RESP2");
        write_count(self.output, b'|', pairs);
    }

    /// A floating-point number, in the shortest text that parses back to the same number. RESP2: a bulk string.
    pub fn double(&mut self, double: f64) {
        let mut digits = ryu::Buffer::new();
        let text = match double {
            double if double.is_nan() => "nan",
            f64::INFINITY => "inf",
            f64::NEG_INFINITY => "-inf",
            double => digits.format_finite(double),
        };
        let text = text.strip_suffix(".0").unwrap_or(text).as_bytes();
        if self.is_resp3() { self.line(b',', text) } else { write_bulk(self.output, text) }
    }

    /// True or false. RESP2: 1 or 0.
    pub fn boolean(&mut self, boolean: bool) {
        match self.version {
            ProtocolVersion::Resp3 => self.output.extend_from_slice(if boolean { b"#t\r\n" } else { b"#f\r\n" }),
            ProtocolVersion::Resp2 => self.integer(i64::from(boolean)),
        }
    }

    /// An integer of any size, given in decimal digits. RESP2: a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        if self.is_resp3() { self.line(b'(', digits.as_bytes()) } else { write_bulk(self.output, digits.as_bytes()) }
    }

    /// A text with its format. RESP2: a bulk string of the text alone.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if !self.is_resp3() {
            return write_bulk(self.output, text);
        }
        write_count(self.output, b'=', text.len() as u64 + super::header::VERBATIM_FORMAT_BYTES);
        self.output.extend_from_slice(&format);
        self.output.push(b':');
        self.output.extend_from_slice(text);
        self.output.extend_from_slice(b"\r\n");
    }

    /// An error that may be long and hold line ends. RESP2: a simple error.
    pub fn blob_error(&mut self, text: &[u8]) {
        if !self.is_resp3() {
            return self.error(text);
        }
        write_count(self.output, b'!', text.len() as u64);
        self.output.extend_from_slice(text);
        self.output.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::write_count;

    #[test]
    fn counts_of_every_length_are_written_in_decimal_digits() {
        for count in [0, 7, 9, 10, 42, 99, 100, 12_345, u64::MAX] {
            let mut output = Vec::new();
            write_count(&mut output, b'$', count);
            assert_eq!(output, format!("${count}\r\n").into_bytes());
        }
    }
}
