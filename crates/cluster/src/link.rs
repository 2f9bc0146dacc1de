//! The connection to the store, as the tasks beside the leases use it: they come and go with no connection of
//! their own.

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{broadcast, watch};

use super::connection::StoreConnection;

/// Maximum number of messages that wait for a task. A task that is slower misses some, and is told so.
const PUSHES_MAX: usize = 1_024;

/// The side of the task that connects.
#[derive(Debug)]
pub(super) struct LinkSender {
    connection: watch::Sender<Option<MultiplexedConnection>>,
    pushes: broadcast::Sender<PushInfo>,
}

/// The side of a task that sends commands of its own and receives messages. Messages of all channels arrive,
/// so look at the channel. After a change of the connection, subscribe again: messages may have been missed.
#[derive(Debug)]
pub(super) struct Link {
    /// The connection; `None` while there is none.
    pub connection: watch::Receiver<Option<MultiplexedConnection>>,
    /// The messages of all channels.
    pub pushes: broadcast::Receiver<PushInfo>,
}

impl LinkSender {
    /// Creates a link without a connection.
    pub(super) fn new() -> Self {
        Self { connection: watch::Sender::new(None), pushes: broadcast::Sender::new(PUSHES_MAX) }
    }

    /// Returns the side of a task.
    pub(super) fn subscribe(&self) -> Link {
        Link { connection: self.connection.subscribe(), pushes: self.pushes.subscribe() }
    }

    /// The sender that a connection delivers its messages to.
    pub(super) fn pushes(&self) -> &broadcast::Sender<PushInfo> {
        &self.pushes
    }

    /// Offers another connection to the tasks, or takes it away.
    pub(super) fn set(&self, connection: Option<&StoreConnection>) {
        self.connection.send_replace(connection.map(StoreConnection::redis));
    }
}

/// Returns the channel and the content of a message that was published.
pub(super) fn message(push: &PushInfo) -> Option<(&[u8], &[u8])> {
    let PushInfo { kind: PushKind::Message, data } = push else { return None };
    match data.as_slice() {
        [Value::BulkString(channel), Value::BulkString(message)] => Some((channel, message)),
        _ => None,
    }
}
