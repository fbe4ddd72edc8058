//! Parameters of the path as arguments.

use super::extract::Extract;
use crate::dispatch::Request;
use crate::reply::Error;

/// The parameters of the route's path, in their order: one value, or a tuple of up to four. If a value does not fit its type, the
/// reply is 404, because no such path exists.
///
/// ```
/// # use sapsan::Path;
/// fn comment(Path((post, number)): Path<(&str, u32)>) -> String {
///     format!("comment {number} of {post}")
/// }
/// # sapsan::App::new().get("/posts/{post}/comments/{number}", comment);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<T>(pub T);

/// The types that parameters of a path can be extracted as.
pub trait PathParts {
    /// The type itself, with the request's lifetime.
    type Item<'r>;
    /// Number of parameters extracted.
    const COUNT: usize;
    /// Extracts them, from the parameter at index `place` on.
    fn take<'r>(request: &'r Request<'_>, place: usize) -> Result<Self::Item<'r>, Error>;
}

impl<T: PathParts> Extract for Path<T> {
    type Item<'r> = Path<T::Item<'r>>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Self::Item<'r>, Error> {
        T::take(request, 0).map(Path)
    }

    fn needs(needs: &mut crate::Needs<'_>) {
        needs.path_parameters(T::COUNT);
    }
}

impl PathParts for &str {
    type Item<'r> = &'r str;
    const COUNT: usize = 1;

    fn take<'r>(request: &'r Request<'_>, place: usize) -> Result<&'r str, Error> {
        request.path_parameter(place)
    }
}

macro_rules! parsed {
    ($($parsed:ty),*) => {$(
        impl PathParts for $parsed {
            type Item<'r> = $parsed;
            const COUNT: usize = 1;

            fn take(request: &Request<'_>, place: usize) -> Result<$parsed, Error> {
                request.path_parameter(place)?.parse().map_err(|_| Error::not_found())
            }
        }
    )*};
}

parsed!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, bool, char, String, std::net::IpAddr);

macro_rules! tuples {
    ($($part:ident),*) => {
        impl<$($part: PathParts),*> PathParts for ($($part,)*) {
            type Item<'r> = ($($part::Item<'r>,)*);
            const COUNT: usize = 0 $(+ $part::COUNT)*;

            #[allow(unused_assignments)]
            fn take<'r>(request: &'r Request<'_>, mut place: usize) -> Result<Self::Item<'r>, Error> {
                Ok(($({
                    let part = $part::take(request, place)?;
                    place += $part::COUNT;
                    part
                },)*))
            }
        }
    };
}

tuples!(A);
tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
