//! A loop with only a client, and a way to hand it jobs from the test's thread.

use reactor::{LoopContext, LoopState, Neighbourhood, Reactor, RunningReactor};
use resp::{ClientSettings, CommandError, FromReply, LoopClient, LoopSettings, ToArguments};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// A test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

type Job = Box<dyn FnOnce(&mut Option<LoopClient>, &mut Neighbourhood<'_>) + Send>;

pub(crate) struct OnLoop {
    running: Option<RunningReactor>,
    jobs: Sender<Job>,
}

/// Runs the jobs.
struct Worker {
    client: Option<LoopClient>,
    jobs: Receiver<Job>,
}

impl LoopState for Worker {
    // After the hooks of the client, which was set up before.
    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        while let Ok(job) = self.jobs.try_recv() {
            job(&mut self.client, &mut at.neighbourhood());
        }
    }
}

pub(crate) fn resolve(settings: ClientSettings) -> LoopSettings {
    LoopSettings::resolve(settings).unwrap()
}

/// A reactor of one loop.
pub(crate) fn one_loop() -> Reactor {
    Reactor::new(reactor::ReactorSettings { loops: 1, ..Default::default() }).unwrap()
}

impl OnLoop {
    pub(crate) fn start(settings: ClientSettings) -> OnLoop {
        OnLoop::start_with(resolve(settings))
    }

    pub(crate) fn start_with(settings: LoopSettings) -> OnLoop {
        let (jobs, received) = mpsc::channel();
        let once = Mutex::new(Some((settings, received)));
        let mut reactor = one_loop();
        reactor.set_up(move |setup| {
            let (settings, jobs) = once.lock().unwrap().take().unwrap();
            let client = Some(LoopClient::new(settings, setup));
            setup.add_state(Box::new(Worker { client, jobs }));
        });
        OnLoop { running: Some(reactor.start().unwrap()), jobs }
    }

    /// Runs a job on the loop, with the client.
    pub(crate) fn run(&self, job: impl FnOnce(&LoopClient, &mut Neighbourhood<'_>) + Send + 'static) {
        self.jobs.send(Box::new(|client, at| job(client.as_ref().unwrap(), at))).unwrap();
        self.wake();
    }

    /// The same, and returns what the job sends back.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&LoopClient, &mut Neighbourhood<'_>, Sender<T>) + Send + 'static,
    ) -> Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        self.run(move |client, at| job(client, at, sender));
        receiver
    }

    /// Drops the only handle of the client.
    pub(crate) fn drop_client(&self) {
        self.jobs.send(Box::new(|client, _| *client = None)).unwrap();
        self.wake();
    }

    fn wake(&self) {
        self.running().loops()[0].run(Box::new(|_| {}));
    }

    pub(crate) fn running(&self) -> &RunningReactor {
        self.running.as_ref().unwrap()
    }

    /// Sends a command; its result can be waited for.
    pub(crate) fn begin<T: FromReply + Send + 'static>(
        &self,
        command: impl ToArguments + Send + 'static,
        within: Duration,
    ) -> Receiver<Result<T, CommandError>> {
        self.ask(move |client, at, sender| {
            let refused = sender.clone();
            let sent = client.within(within).command(at, command, move |result, _| sender.send(result).unwrap());
            if let Err(reason) = sent {
                refused.send(Err(reason.into())).unwrap();
            }
        })
    }

    /// Sends a command and waits for its result.
    pub(crate) fn command<T: FromReply + Send + 'static>(
        &self,
        command: impl ToArguments + Send + 'static,
    ) -> Result<T, CommandError> {
        self.begin(command, PATIENCE).recv_timeout(PATIENCE * 2).expect("an outcome")
    }

    /// Waits until a condition holds on the loop.
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, holds: impl Fn(&LoopClient) -> bool + Clone + Send + 'static) {
        let started = std::time::Instant::now();
        loop {
            let holds = holds.clone();
            if self.ask(move |client, _, sender| sender.send(holds(client)).unwrap()).recv_timeout(PATIENCE).unwrap() {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for OnLoop {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(Duration::ZERO);
            let _ = running.join();
        }
    }
}
