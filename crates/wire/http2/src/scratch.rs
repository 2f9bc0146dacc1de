//! Memory that the connections of a thread share, so that an idle connection holds none, and that of busy
//! ones stays in the processor's cache.

use std::cell::{Cell, RefCell};

use egret_http1::{RequestHead, ResponseHead};

/// Number of bytes that are received before the streams have their turn, with the rest of a frame before
/// them.
pub(crate) const INPUT_BYTES: usize = 80 << 10;
/// Size of the memory for output that is kept for the next connection.
const OUTPUT_BYTES_MAX: usize = 128 << 10;

thread_local! {
    static INPUT: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static OUTPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static REQUEST: RefCell<RequestHead> = RefCell::default();
    static RESPONSE: RefCell<ResponseHead> = RefCell::default();
}

/// Takes the memory for received bytes.
pub(crate) fn take_input() -> Box<[u8]> {
    INPUT.take().unwrap_or_else(|| vec![0; INPUT_BYTES].into_boxed_slice())
}

/// Gives it back.
pub(crate) fn give_input(input: Box<[u8]>) {
    INPUT.set(Some(input));
}

/// Takes memory for output, which is empty.
pub(crate) fn take_output() -> Vec<u8> {
    OUTPUT.take()
}

/// Gives memory for output back.
pub(crate) fn give_output(mut output: Vec<u8>) {
    if output.capacity() <= OUTPUT_BYTES_MAX {
        output.clear();
        OUTPUT.set(output);
    }
}

/// Calls `act` with the table for the head of a request. It must not do so itself.
pub(crate) fn with_request_head<R>(act: impl FnOnce(&mut RequestHead) -> R) -> R {
    REQUEST.with_borrow_mut(act)
}

/// Calls `act` with the table for the head of a response. It must not do so itself.
pub(crate) fn with_response_head<R>(act: impl FnOnce(&mut ResponseHead) -> R) -> R {
    RESPONSE.with_borrow_mut(act)
}
