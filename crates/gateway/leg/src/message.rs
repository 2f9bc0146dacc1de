//! The messages that a leg receives and sends, and the reasons why there are none.

use std::io;

use egret_http1::{HeadError, HeadLimits, Rendering, Span};
use egret_net::buffer::BufferPool;
use egret_net::socks::SocksError;

/// The peer's connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// The outcome of receiving.
#[derive(Debug)]
pub enum Received {
    /// This number of bytes has been added to the buffer.
    Data(usize),
    /// The peer has closed its sending side.
    End,
    /// The connection is gone.
    Gone(io::Error),
}

/// The reason why no head has been received.
#[derive(Debug)]
pub enum NoHead {
    /// It breaks a rule.
    Malformed(HeadError),
    /// A client's handshake of SOCKS is refused.
    Socks(SocksError),
    /// The peer has closed its sending side.
    End,
    /// The connection is gone.
    Gone(io::Error),
}

/// The bounds of a head, and the memory for it.
#[derive(Debug, Clone, Copy)]
pub struct HeadRoom<'a> {
    /// Maximum sizes.
    pub limits: &'a HeadLimits,
    /// Memory for the buffer.
    pub buffers: &'a BufferPool,
}

/// Part of a message to send: an optional head, data of its body, and its end.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'m> {
    /// The head, unless it has been sent.
    pub head: OutgoingHead<'m>,
    /// Received bytes, with the data among them.
    pub input: &'m [u8],
    /// The positions of the data in `input`.
    pub spans: &'m [Span],
    /// The lines of the trailers, if the message ends.
    pub end: Option<&'m [u8]>,
}

/// The head of a message to send.
#[derive(Debug, Clone, Copy)]
pub enum OutgoingHead<'m> {
    /// It has been sent before.
    Sent,
    /// A received head with edits.
    Edited(&'m Rendering<'m>),
    /// A head, or a whole message, that the gateway has written.
    Written(&'m [u8]),
}

impl<'m> Outgoing<'m> {
    /// A head alone.
    pub fn head(head: OutgoingHead<'m>) -> Self {
        Self { head, input: &[], spans: &[], end: None }
    }
}
