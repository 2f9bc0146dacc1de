//! Calls that the gateway makes for itself: revalidations of stored responses, and tokens of accounts.

mod internal_call;
mod revalidate;
mod token;

use std::rc::Rc;

use egret_net::event_loop::spawn;
use tokio::sync::mpsc;

use crate::state::follow_up::FollowUp;
use crate::worker::Worker;

/// Makes the calls that the exchanges of `worker` order, each in its own task.
pub(crate) async fn run(worker: Rc<Worker>, mut orders: mpsc::UnboundedReceiver<FollowUp>) {
    while let Some(order) = orders.recv().await {
        let worker = Rc::clone(&worker);
        match order {
            FollowUp::Revalidation(order) => spawn(revalidate::revalidate(*order, worker)),
            FollowUp::Token { fetch, view, listener } => {
                spawn(token::fetch_token(fetch, worker, view, listener));
            }
        }
    }
}
