//! Handlers that may wait: they run on an executor of the application.
//!
//! Their arguments are extracted on the event loop and move to another thread, so they must own their data: `Path<u32>`, `Query`,
//! `Json`, [`crate::Shared`] and [`crate::Database`] do; types with a lifetime do not.

use super::handler::Handler;
use crate::arguments::Extract;
use crate::dispatch::{Needs, Pools, Request, Respond, Responder, Response, later, refusal_reason};
use crate::reply::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handler that runs on an executor: see [`blocking`].
pub struct Blocking<F> {
    executor: &'static str,
    handler: Arc<F>,
}

/// Makes a handler that runs on the executor of this name ([`crate::App::executor`]), where it may wait for files, other servers,
/// or long computations. It takes at most six arguments. If the executor's queue is full, the reply is 503 with `Retry-After`.
///
/// ```
/// # use sapsan::{App, Path, Threads, blocking};
/// fn report(Path(year): Path<u16>) -> std::io::Result<String> {
///     std::fs::read_to_string(format!("reports/{year}.txt"))
/// }
///
/// App::new()
///     .executor("reports", Threads { count: 4, queue_max: 64 })
///     .get("/reports/{year}", blocking("reports", report));
/// ```
pub fn blocking<F>(executor: &'static str, handler: F) -> Blocking<F> {
    Blocking { executor, handler: Arc::new(handler) }
}

/// A responder with two owners; the first that takes it gets it.
struct Kept(Arc<std::sync::Mutex<Option<Responder>>>);

impl Kept {
    fn new(responder: Responder) -> (Kept, Kept) {
        let kept = Arc::new(std::sync::Mutex::new(Some(responder)));
        (Kept(Arc::clone(&kept)), Kept(kept))
    }

    fn take(&self) -> Option<Responder> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

/// Runs `work` on an executor and sends its result as the reply.
fn run<R: Respond>(pools: &Pools, name: &str, responder: Responder, work: impl FnOnce() -> R + Send + 'static) {
    // The job takes the responder; if the executor refuses the job, the refusal takes it.
    let Some(pool) = pools.get(name) else {
        return responder.send(Error::internal(format!("the application has no executor \"{name}\"")));
    };
    let (kept, taken) = Kept::new(responder);
    let job = Box::new(move || {
        let Some(responder) = taken.take() else { return };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(reply) => responder.send(reply),
            Err(_) => responder.send(Error::internal("a handler panicked on an executor")),
        }
    });
    if let Err(refused) = pool.try_submit(job)
        && let Some(responder) = kept.take()
    {
        responder.send(Error::busy(refusal_reason(&refused)));
    }
}

/// Marker that keeps apart the implementations for functions of different argument lists.
#[doc(hidden)]
pub struct Owning<Args>(std::marker::PhantomData<fn(Args)>);

macro_rules! blocking_handlers {
    ($($argument:ident $value:ident),*) => {
        #[allow(non_snake_case, unused_variables)]
        impl<F, R, $($argument),*> Handler<Owning<fn($($argument),*) -> R>> for Blocking<F>
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: Respond + 'static,
            $($argument: for<'r> Extract<Item<'r> = $argument> + Send + 'static),*
        {
            fn call(&self, request: &Request<'_>) -> Response {
                $(let $value = match $argument::extract(request) {
                    Ok(value) => value,
                    Err(error) => return error.respond(),
                };)*
                let (handler, executor) = (Arc::clone(&self.handler), self.executor);
                later(move |responder| {
                    let environment = Arc::clone(&responder.environment);
                    run(&environment.resources.pools, executor, responder, move || handler($($value),*));
                })
                .respond()
            }

            fn needs(&self, needs: &mut Needs<'_>) {
                needs.executor(self.executor);
                $($argument::needs(needs);)*
            }
        }
    };
}

blocking_handlers!();
blocking_handlers!(A a);
blocking_handlers!(A a, B b);
blocking_handlers!(A a, B b, C c);
blocking_handlers!(A a, B b, C c, D d);
blocking_handlers!(A a, B b, C c, D d, E e);
blocking_handlers!(A a, B b, C c, D d, E e, G g);
