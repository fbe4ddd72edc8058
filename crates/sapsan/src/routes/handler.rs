//! Functions as handlers: their arguments are extracted from the request, their result is the reply.
//!
//! An argument may borrow from the request, and its lifetime may be elided: `fn page(Path(name): Path<&str>, Db(..): Db<'_>)`. Such a
//! function accepts every lifetime, so it has no single list of argument types. The implementations below therefore require two things:
//! that the function takes arguments of some types `A`, `B`, … (from which the compiler infers the types apart from their lifetimes),
//! and that it takes `A::Item<'r>`, `B::Item<'r>`, … for every `'r`. (Bevy's systems declare their parameters in this way.)

use crate::arguments::Extract;
use crate::dispatch::{Endpoint, Needs, Request, Respond, Response};
use std::marker::PhantomData;

/// A function of 0 to 8 arguments that implement [`Extract`], with a result that implements [`Respond`]. `Args` is the function's type
/// without its lifetimes; it keeps the implementations apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler",
    label = "no handler",
    note = "a handler is a function of at most 8 arguments that each implement `sapsan::Extract`, such as `Path<u32>` or `Db<'_>`",
    note = "and its result implements `sapsan::Respond` and borrows nothing from the request"
)]
pub trait Handler<Args>: Send + Sync + 'static {
    /// Answers a request.
    fn call(&self, request: &Request<'_>) -> Response;
    /// Checks that the application has what the handler needs.
    fn needs(&self, needs: &mut Needs<'_>);
    /// Whether the handler receives a request's body in pieces as they arrive ([`crate::upload()`]).
    fn takes_pieces(&self) -> bool {
        false
    }
}

/// Makes a handler of a known type an [`Endpoint`].
pub(crate) struct Erased<H, Args> {
    handler: H,
    args: PhantomData<fn(Args)>,
}

impl<H, Args> Erased<H, Args> {
    pub(crate) fn new(handler: H) -> Self {
        Erased { handler, args: PhantomData }
    }
}

impl<H: Handler<Args>, Args> Endpoint for Erased<H, Args> {
    fn call(&self, request: &Request<'_>) -> Response {
        self.handler.call(request)
    }

    fn needs(&self, needs: &mut Needs<'_>) {
        self.handler.needs(needs);
    }

    fn takes_pieces(&self) -> bool {
        self.handler.takes_pieces()
    }
}

macro_rules! handlers {
    ($($argument:ident $value:ident),*) => {
        #[allow(non_snake_case, unused_variables)]
        impl<F, R, $($argument),*> Handler<fn($($argument),*) -> R> for F
        where
            F: Send + Sync + 'static,
            for<'f> &'f F: Fn($($argument),*) -> R + Fn($($argument::Item<'_>),*) -> R,
            R: Respond,
            $($argument: Extract),*
        {
            fn call(&self, request: &Request<'_>) -> Response {
                // Calling through a parameter of a known type tells the compiler which of the two bounds is meant.
                #[allow(clippy::too_many_arguments)]
                fn call<R, $($argument),*>(f: impl Fn($($argument),*) -> R, $($value: $argument),*) -> R {
                    f($($value),*)
                }
                $(let $value = match $argument::extract(request) {
                    Ok(value) => value,
                    Err(error) => return error.respond(),
                };)*
                call(self, $($value),*).respond()
            }

            fn needs(&self, needs: &mut Needs<'_>) {
                $($argument::needs(needs);)*
            }
        }
    };
}

handlers!();
handlers!(A a);
handlers!(A a, B b);
handlers!(A a, B b, C c);
handlers!(A a, B b, C c, D d);
handlers!(A a, B b, C c, D d, E e);
handlers!(A a, B b, C c, D d, E e, G g);
handlers!(A a, B b, C c, D d, E e, G g, H h);
handlers!(A a, B b, C c, D d, E e, G g, H h, I i);
