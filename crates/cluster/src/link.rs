//! The connection to the store, as the tasks beside the leases use it: they come and go with no connection of
//! their own.

use std::sync::Arc;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{broadcast, watch};

use super::connection::{Connection, StoreConnection};

/// Maximum number of messages that wait for a task. A task that is slower misses some, and is told so.
const MESSAGES_MAX: usize = 1_024;
/// Maximum number of bytes of a message and of its channel, which are no longer among Egret's.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

/// A message that was published.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// The channel.
    pub channel: Arc<[u8]>,
    /// The content.
    pub content: Arc<[u8]>,
}

/// The side of the task that connects.
#[derive(Debug)]
pub(super) struct LinkSender {
    connection: watch::Sender<Option<Connection>>,
    /// The messages of all channels.
    pub messages: broadcast::Sender<Message>,
}

/// The side of a task that sends commands of its own and receives messages. Messages of all channels arrive,
/// so look at the channel. After a change of the connection, subscribe again: messages may have been missed.
#[derive(Debug)]
pub(super) struct Link {
    /// The connection; `None` while there is none.
    pub connection: watch::Receiver<Option<Connection>>,
    /// The messages of all channels.
    pub messages: broadcast::Receiver<Message>,
}

/// Creates the sender of the messages of all channels of all servers.
pub(super) fn messages() -> broadcast::Sender<Message> {
    broadcast::Sender::new(MESSAGES_MAX)
}

impl LinkSender {
    /// Creates the link of a shard, without a connection.
    pub(super) fn new(messages: &broadcast::Sender<Message>) -> Self {
        Self { connection: watch::Sender::new(None), messages: messages.clone() }
    }

    /// Returns the side of a task.
    pub(super) fn subscribe(&self) -> Link {
        Link { connection: self.connection.subscribe(), messages: self.messages.subscribe() }
    }

    /// Offers another connection to the tasks, or takes it away.
    pub(super) fn set(&self, connection: Option<&StoreConnection>) {
        self.connection.send_replace(connection.map(StoreConnection::connection).cloned());
    }
}

/// Returns the message in a push; `None` if it is another push, or is none of Egret's.
pub(super) fn message(push: PushInfo) -> Option<Message> {
    let PushInfo { kind: PushKind::Message, data } = push else { return None };
    let [Value::BulkString(channel), Value::BulkString(content)] = data.as_slice() else { return None };
    let is_short = channel.len() + content.len() <= MESSAGE_BYTES_MAX;
    is_short.then(|| Message { channel: channel.as_slice().into(), content: content.as_slice().into() })
}
