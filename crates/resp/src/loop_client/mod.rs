//! The client on an event loop (feature `reactor`): commands whose replies come to closures of the same loop.
//!
//! A [`LoopClient`] lives on one loop of a [`reactor::Reactor`] and has one connection, which the loop's requests share by
//! pipelining: all commands of one tick are sent in one write. It is made when the loop is set up, and used from turns of other
//! connections ([`reactor::Io::neighbourhood`]) and from hooks ([`reactor::LoopContext::neighbourhood`]).
//!
//! Guarantees:
//!
//! - A completion is called once, later, on the loop's thread, unless the loop ends before. It may send further commands, and
//!   write to any connection of the loop. It is the only allocation of a command; there are no locks.
//! - A command ends within its time: [`LoopClient::within`], or `ClientSettings::timeout`. If a reply is late, the connection is
//!   dropped, so that the reply is never delivered; other commands in flight end with [`Lost::Closed`](crate::Lost::Closed).
//! - While there is no connection, commands wait in a queue of at most `ClientSettings::queue_bytes_max` (or one larger
//!   command). They are sent in order once the session (HELLO or AUTH, SELECT) is open. A command that was given to a connection
//!   is never sent again.
//! - A lost connection is reopened when a command needs it. Attempts are spread by a growing pause with a random part.
//! - Commands in flight and unsent bytes are bounded ([`LoopSettings`]); further commands are refused at once.
//! - A draining loop first answers the commands in flight, then closes the connection.
//!
//! A command that blocks on the server, such as BLPOP, delays those after it: use a separate client for it, with a longer time.
//! Messages of channels are received by a [`LoopSubscriber`].
//!
//! ```
//! # use std::io::{Read, Write};
//! # let redis = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let address = format!("redis://{}", redis.local_addr()?);
//! # let server = std::thread::spawn(move || {
//! #     let mut stream = redis.accept().unwrap().0;
//! #     let mut request = [0; 64];
//! #     let read = stream.read(&mut request).unwrap();
//! #     assert_eq!(&request[..read], b"*2\r\n$4\r\nINCR\r\n$6\r\nvisits\r\n");
//! #     stream.write_all(b":42\r\n").unwrap();
//! # });
//! use resp::{ClientSettings, LoopClient, LoopSettings};
//!
//! /// Counts one visit when the loop starts.
//! struct Visit {
//!     redis: LoopClient,
//!     counted: std::sync::mpsc::Sender<i64>,
//! }
//!
//! impl reactor::LoopState for Visit {
//!     fn started(&mut self, at: &mut reactor::LoopContext<'_>) {
//!         let counted = self.counted.clone();
//!         let sent = self.redis.command(&mut at.neighbourhood(), ("INCR", "visits"), move |visits, _at| {
//!             let visits: i64 = visits.expect("a reply");
//!             counted.send(visits).expect("a receiver");
//!         });
//!         sent.expect("room in the queue");
//!     }
//! }
//!
//! let settings = LoopSettings::resolve(ClientSettings::of(&address)?)?;
//! let (counted, visits) = std::sync::mpsc::channel();
//! let mut reactor = reactor::Reactor::new(reactor::ReactorSettings { loops: 1, ..Default::default() })?;
//! reactor.set_up(move |setup| {
//!     let redis = LoopClient::new(settings.clone(), setup);
//!     setup.add_state(Box::new(Visit { redis, counted: counted.clone() }));
//! });
//! let running = reactor.start()?;
//! assert_eq!(visits.recv()?, 42);
//! running.drain(std::time::Duration::ZERO);
//! running.join()?;
//! # server.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | subject | file |
//! |---|---|
//! | what an application sees | `client`, `subscriber`, `loop_settings` |
//! | commands | `commands`, `in_flight` (sent), `waiting` (for a connection), `append` |
//! | a connection and its session, made again | `managed_connection`, `link` (as the reactor sees it), `failure` |

mod append;
mod client;
mod commands;
mod failure;
mod in_flight;
mod link;
mod loop_settings;
mod managed_connection;
mod subscriber;
mod waiting;

pub use client::LoopClient;
pub use loop_settings::LoopSettings;
pub use subscriber::LoopSubscriber;
