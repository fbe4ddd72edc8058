//! Arguments of commands, written straight into the buffer that is sent.
//!
//! A tuple is a command; its elements are arguments or lists of arguments: `("SET", "key", 5)`, `("MGET", &keys[..])`,
//! `("SET", key, value, ("EX", 60))`. Texts and bytes are sent as they are, integers in decimal digits, floating-point
//! numbers in the shortest digits that parse back to the same number. `None` is no argument at all.

use crate::codec::{write_bulk, write_count};

/// Appends arguments to the output buffer.
#[derive(Debug)]
pub struct ArgumentWriter<'o> {
    output: &'o mut Vec<u8>,
}

impl ArgumentWriter<'_> {
    /// Writes one argument.
    #[inline]
    pub fn argument(&mut self, bytes: &[u8]) {
        write_bulk(self.output, bytes);
    }
}

/// One argument, several, or none.
pub trait ToArguments {
    /// How many arguments [`ToArguments::write_to`] writes.
    fn count(&self) -> usize;

    /// Writes exactly that many arguments. With a wrong number the server would wait, or read arguments as commands.
    fn write_to(&self, writer: &mut ArgumentWriter<'_>);
}

/// Appends a command to `output`.
#[inline]
pub(crate) fn write(output: &mut Vec<u8>, arguments: &(impl ToArguments + ?Sized)) {
    write_count(output, b'*', arguments.count() as u64);
    arguments.write_to(&mut ArgumentWriter { output });
}

/// Types that are one argument, with the expression that yields their bytes.
macro_rules! single {
    ($($type:ty: |$value:ident| $bytes:expr;)*) => {$(
        impl ToArguments for $type {
            #[inline]
            fn count(&self) -> usize {
                1
            }
            #[inline]
            fn write_to(&self, writer: &mut ArgumentWriter<'_>) {
                let $value = self;
                writer.argument($bytes);
            }
        }
    )*};
}

single! {
    str: |text| text.as_bytes();
    String: |text| text.as_bytes();
    [u8]: |bytes| bytes;
    f32: |number| float(f64::from(*number), &mut ryu::Buffer::new()).as_bytes();
    f64: |number| float(*number, &mut ryu::Buffer::new()).as_bytes();
    i8: |number| itoa::Buffer::new().format(*number).as_bytes();
    i16: |number| itoa::Buffer::new().format(*number).as_bytes();
    u16: |number| itoa::Buffer::new().format(*number).as_bytes();
    i32: |number| itoa::Buffer::new().format(*number).as_bytes();
    u32: |number| itoa::Buffer::new().format(*number).as_bytes();
    i64: |number| itoa::Buffer::new().format(*number).as_bytes();
    u64: |number| itoa::Buffer::new().format(*number).as_bytes();
    isize: |number| itoa::Buffer::new().format(*number).as_bytes();
    usize: |number| itoa::Buffer::new().format(*number).as_bytes();
}

/// Formats numbers as Redis does: whole ones without a fraction, and `inf`, `-inf`, `nan`.
fn float(number: f64, digits: &mut ryu::Buffer) -> &str {
    match number {
        number if number.is_nan() => "nan",
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        number => {
            let text = digits.format_finite(number);
            text.strip_suffix(".0").unwrap_or(text)
        }
    }
}

/// A list of arguments. `u8` is not an argument, so `[u8]` means bytes, not a list.
impl<A: ToArguments> ToArguments for [A] {
    #[inline]
    fn count(&self) -> usize {
        self.iter().map(ToArguments::count).sum()
    }
    #[inline]
    fn write_to(&self, writer: &mut ArgumentWriter<'_>) {
        self.iter().for_each(|argument| argument.write_to(writer));
    }
}

impl<A, const N: usize> ToArguments for [A; N]
where
    [A]: ToArguments,
{
    #[inline]
    fn count(&self) -> usize {
        self.as_slice().count()
    }
    #[inline]
    fn write_to(&self, writer: &mut ArgumentWriter<'_>) {
        self.as_slice().write_to(writer);
    }
}

impl<A> ToArguments for Vec<A>
where
    [A]: ToArguments,
{
    #[inline]
    fn count(&self) -> usize {
        self.as_slice().count()
    }
    #[inline]
    fn write_to(&self, writer: &mut ArgumentWriter<'_>) {
        self.as_slice().write_to(writer);
    }
}

impl<A: ToArguments + ?Sized> ToArguments for &A {
    #[inline]
    fn count(&self) -> usize {
        (**self).count()
    }
    #[inline]
    fn write_to(&self, writer: &mut ArgumentWriter<'_>) {
        (**self).write_to(writer);
    }
}

impl<A: ToArguments> ToArguments for Option<A> {
    fn count(&self) -> usize {
        self.as_ref().map_or(0, ToArguments::count)
    }
    fn write_to(&self, writer: &mut ArgumentWriter<'_>) {
        self.iter().for_each(|argument| argument.write_to(writer));
    }
}

macro_rules! tuple {
    ($($name:ident $index:tt),*) => {
        impl<$($name: ToArguments),*> ToArguments for ($($name,)*) {
            #[inline]
            fn count(&self) -> usize {
                0 $(+ self.$index.count())*
            }
            #[inline]
            fn write_to(&self, writer: &mut ArgumentWriter<'_>) {
                $(self.$index.write_to(writer);)*
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Arguments;

    #[track_caller]
    fn check(command: impl ToArguments, expected: &[&str]) {
        let mut output = Vec::new();
        write(&mut output, &command);
        let arguments: Vec<_> = Arguments::of(&output).map(String::from_utf8_lossy).collect();
        assert_eq!(arguments, expected);
        assert!(output.starts_with(format!("*{}\r\n", expected.len()).as_bytes()));
    }

    #[test]
    fn tuples_lists_and_numbers_become_arguments() {
        check(("SET", "k", 5), &["SET", "k", "5"]);
        check(["GET", "k"], &["GET", "k"]);
        check(("MGET", &["a".to_owned(), "b".to_owned()][..]), &["MGET", "a", "b"]);
        check(("SET", b"k", vec![0x76u8], ("EX", 60u64)), &["SET", "k", "v", "EX", "60"]);
        check(("MSET", vec![("a", 1), ("b", -2)]), &["MSET", "a", "1", "b", "-2"]);
        check(("X", None::<&str>, Some("y")), &["X", "y"]);
        check((&"PING",), &["PING"]);
        check("PING", &["PING"]);
        check(("Z", 1.5, 3.0f32, 1e300, f64::INFINITY, -0.5), &["Z", "1.5", "3", "1e300", "inf", "-0.5"]);
    }
}
