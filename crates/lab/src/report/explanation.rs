//! A description of each model and of its timeline, for students.

use executor::Model;

/// How a model works, and what its chart shows.
pub(super) fn explain(model: Model) -> &'static str {
    match model {
        Model::Inline => {
            "One thread takes the requests one after the other. While a request waits, the thread waits with it, and nothing else happens: \
             the total is all computing plus all waits. The chart is mostly a flat line of one waiting request. This is the simplest \
             program, the easiest to debug, and the measure for all others."
        }
        Model::ThreadPerTask => {
            "Each request gets a thread of its own, which ends with it. A request that waits holds up nobody, so the total comes close to \
             the longest wait. The price is the start of a thread for each request: look at the system time and at the \
             context switches. The number of threads follows the number of requests that wait, and nothing but the system's limit \
             stops it."
        }
        Model::Semaphore { .. } => {
            "A thread for each request, but only so many at a time: a counter (semaphore) lets the next one start when one ends. Memory \
             and threads are bounded. While fewer requests wait than there are places, it is as good as unbounded threads; once all places \
             are taken by waiting requests, the cores idle."
        }
        Model::Waves { .. } => {
            "A group of threads starts, and the next group starts when the last thread of this one has ended. It is the first idea \
             of many programs, because waiting for a list of threads is easy to write. Each wave takes as long as its slowest request: the \
             chart shows valleys in which one request waits and every core is idle. The smaller the wave, the more often that happens."
        }
        Model::Pool { .. } => {
            "A fixed number of threads take requests from a queue. No thread is started for a request, so the overhead is small. But a \
             waiting request keeps its thread. With few threads all of them wait at the same time now and then, and the cores idle; with \
             many, more threads want to compute than there are cores, and the kernel switches between them. The right number depends on \
             the waits, which nobody knows beforehand."
        }
        Model::IoAware { .. } => {
            "There are many threads, but only as many may compute as there are cores. A thread says when it is about to wait, and \
             another one takes its place among the computing ones; when the wait is over it queues for a place again. The chart's \
             upper curve stays at P as long as there is work. The number of threads bounds only how many requests may wait at a time: \
             when all threads wait, the cores idle here too."
        }
        Model::WorkStealing { .. } => {
            "Each thread has a list of its own and takes from another's list when its own is empty. That spreads tasks which create \
             further tasks, as in sorting or rendering. Requests come from outside and create none, so it behaves as the fixed pool \
             of the same size: it knows nothing of waits."
        }
        Model::EventLoop { .. } => {
            "One thread for each core, and no thread ever waits. A request that has to wait is set aside with the time at which it goes on, \
             and the thread takes the next one. A hundred thousand waiting requests cost memory, but no threads. The price is in the program: each request must be written in pieces, from wait to wait, and one piece that blocks \
             after all holds up every request of its loop."
        }
        Model::Hybrid { .. } => {
            "Event loops compute, and a pool of threads does what cannot be set aside: a call into a library that blocks, a file. A wait \
             costs a trip to another thread and back, which is cheap beside a wait of milliseconds. The database server of this project \
             works like this. The pool's threads bound how many requests may wait at a time."
        }
    }
}
