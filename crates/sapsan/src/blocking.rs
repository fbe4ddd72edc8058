//! Handlers that may wait: they run on an executor of the application.
//!
//! Their arguments are extracted on the event loop and move to another thread, so they must own their data: `Path<u32>`, `Query`,
//! `Json`, [`crate::Shared`] and [`crate::Database`] do; types with a lifetime do not.

use crate::build::Needs;
use crate::error::Error;
use crate::extract::Extract;
use crate::handler::Handler;
use crate::late::{Responder, later};
use crate::request::Request;
use crate::respond::Respond;
use crate::response::Response;
use executor::{Pool, Refused, Settings};
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

/// Threads of an executor.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Number of threads, 1 to [`executor::THREADS_MAX`]. All start with the application.
    pub count: usize,
    /// Number of requests that may wait for a thread; more are answered 503.
    pub queue_max: usize,
}

/// The executors of an application.
#[derive(Default)]
pub(crate) struct Pools(Vec<(String, Pool)>);

impl Pools {
    /// Starts the threads.
    pub(crate) fn start(wanted: Vec<(String, Threads)>) -> Result<Pools, executor::StartError> {
        let mut pools = Pools::default();
        for (name, Threads { count, queue_max }) in wanted {
            let pool = Pool::new(Settings { threads: count, queue_max, second_max: 0, name: name.clone() })?;
            pools.0.push((name, pool));
        }
        Ok(pools)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn get(&self, name: &str) -> Option<&Pool> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, pool)| pool)
    }

    /// Waits for the accepted jobs, until the deadline.
    pub(crate) fn drain(&self, deadline: std::time::Instant) {
        for (name, pool) in &self.0 {
            if let executor::Drained::Left { queued, running } = pool.drain(deadline) {
                tracing::warn!(executor = name, queued, running, "requests were left unanswered at the end");
            }
        }
    }

    /// Runs `work` on an executor and sends its result as the reply.
    pub(crate) fn run<R: Respond>(&self, name: &str, responder: Responder, work: impl FnOnce() -> R + Send + 'static) {
        // The job takes the responder; if the executor refuses the job, the refusal takes it.
        let Some(pool) = self.get(name) else {
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
            responder.send(Error::busy(reason(&refused)));
        }
    }

    /// Submits a job to an executor, or returns why it is refused.
    pub(crate) fn submit(&self, name: &str, job: impl FnOnce() + Send + 'static) -> Result<(), &'static str> {
        let pool = self.get(name).ok_or("the application has no such executor")?;
        pool.try_submit(Box::new(job)).map_err(|refused| reason(&refused))
    }
}

fn reason<J>(refused: &Refused<J>) -> &'static str {
    match refused {
        Refused::Full(_) => "too many requests wait for a thread",
        Refused::Draining(_) => "the server ends",
    }
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
                    let built = Arc::clone(&responder.built);
                    built.pools.run(executor, responder, move || handler($($value),*));
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
