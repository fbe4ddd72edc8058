//! Access to a loop's connections, from a turn of one of them or from a hook of the loop.

use reactor::{ConnectFailure, ConnectionId, Io, LoopContext, Neighbour, Outgoing, Protocol};

/// See the module. Operations on a closed connection have no effect.
pub(crate) trait Connections {
    /// The buffer to which its output is appended.
    fn output(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>>;
    /// Bytes that the kernel has not accepted.
    fn unsent(&mut self, id: ConnectionId) -> usize;
    /// Resumes reading it.
    fn resume(&mut self, id: ConnectionId);
    /// Requests a call of its `writable` once it has room.
    fn notify_writable(&mut self, id: ConnectionId);
    /// Schedules a call of its `input`, whether or not its reading was paused.
    fn wake(&mut self, id: ConnectionId);
    /// Reports what is held for it beside its buffers.
    fn keep(&mut self, id: ConnectionId, bytes: usize);
    /// Closes it once all output is sent.
    fn finish(&mut self, id: ConnectionId);
    /// Closes it at once.
    fn abort(&mut self, id: ConnectionId);
    /// Opens an outgoing connection.
    fn connect(&mut self, to: Outgoing, protocol: Box<dyn Protocol>) -> Result<ConnectionId, ConnectFailure>;
}

impl Connections for Io<'_> {
    fn output(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        if self.id() == id {
            return Some(Io::output(self));
        }
        self.neighbour(id).map(Neighbour::into_output)
    }

    fn unsent(&mut self, id: ConnectionId) -> usize {
        if self.id() == id { Io::unsent(self) } else { self.neighbour(id).map_or(0, |at| at.unsent()) }
    }

    fn resume(&mut self, id: ConnectionId) {
        match self.id() == id {
            true => self.resume_input(),
            false => self.neighbour(id).into_iter().for_each(|mut at| at.resume_input()),
        }
    }

    fn notify_writable(&mut self, id: ConnectionId) {
        match self.id() == id {
            true => Io::notify_writable(self),
            false => self.neighbour(id).into_iter().for_each(|mut at| at.notify_writable()),
        }
    }

    fn wake(&mut self, id: ConnectionId) {
        match self.id() == id {
            true => self.call_input(),
            false => self.neighbour(id).into_iter().for_each(|mut at| at.call_input()),
        }
    }

    fn keep(&mut self, id: ConnectionId, bytes: usize) {
        match self.id() == id {
            true => Io::keep(self, bytes),
            false => self.neighbour(id).into_iter().for_each(|mut at| at.keep(bytes)),
        }
    }

    fn finish(&mut self, id: ConnectionId) {
        match self.id() == id {
            true => Io::finish(self),
            false => self.neighbour(id).into_iter().for_each(|mut at| at.finish()),
        }
    }

    fn abort(&mut self, id: ConnectionId) {
        match self.id() == id {
            true => Io::abort(self),
            false => self.neighbour(id).into_iter().for_each(|mut at| at.abort()),
        }
    }

    fn connect(&mut self, to: Outgoing, protocol: Box<dyn Protocol>) -> Result<ConnectionId, ConnectFailure> {
        Io::connect(self, to, protocol)
    }
}

impl Connections for LoopContext<'_> {
    fn output(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        self.connection(id).map(Neighbour::into_output)
    }

    fn unsent(&mut self, id: ConnectionId) -> usize {
        self.connection(id).map_or(0, |at| at.unsent())
    }

    fn resume(&mut self, id: ConnectionId) {
        self.connection(id).into_iter().for_each(|mut at| at.resume_input());
    }

    fn notify_writable(&mut self, id: ConnectionId) {
        self.connection(id).into_iter().for_each(|mut at| at.notify_writable());
    }

    fn wake(&mut self, id: ConnectionId) {
        self.connection(id).into_iter().for_each(|mut at| at.call_input());
    }

    fn keep(&mut self, id: ConnectionId, bytes: usize) {
        self.connection(id).into_iter().for_each(|mut at| at.keep(bytes));
    }

    fn finish(&mut self, id: ConnectionId) {
        self.connection(id).into_iter().for_each(|mut at| at.finish());
    }

    fn abort(&mut self, id: ConnectionId) {
        self.connection(id).into_iter().for_each(|mut at| at.abort());
    }

    fn connect(&mut self, to: Outgoing, protocol: Box<dyn Protocol>) -> Result<ConnectionId, ConnectFailure> {
        LoopContext::connect(self, to, protocol)
    }
}
