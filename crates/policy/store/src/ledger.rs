//! The ledger, which accepts requests for units without waiting, and the clerk, which delivers the results.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use egret_items::opaque;

use crate::store::{Loan, LoanRequest, Store, StoreError};

/// Maximum number of pending requests. If there are more, the store is too slow, which counts as its failure.
const WAITING_MAX: usize = 4_096;
/// Maximum number of requests in one commit.
const BATCH_MAX: usize = 512;

/// A borrower of units.
pub trait Borrower: Send + Sync {
    /// Receives the result. It is called on the clerk's thread, so it must be quick.
    fn lent(&self, loan: Result<Loan, StoreError>);
}

/// A request with the recipient of its result.
pub struct PendingLoan {
    /// The request.
    pub request: LoanRequest,
    /// The borrower; `None` if no result is needed.
    pub borrower: Option<Arc<dyn Borrower>>,
}

/// Accepts requests. Cheap to clone; asking takes no lock and never waits.
#[derive(Clone)]
pub struct Ledger {
    /// `None` closes the ledger.
    sender: SyncSender<Option<PendingLoan>>,
}

opaque!(Ledger);

impl Ledger {
    /// Submits a request. Returns it if too many requests are pending, or if the clerk has stopped.
    pub fn ask(&self, ask: PendingLoan) -> Result<(), PendingLoan> {
        match self.sender.try_send(Some(ask)) {
            Err(TrySendError::Full(Some(ask)) | TrySendError::Disconnected(Some(ask))) => Err(ask),
            _ => Ok(()),
        }
    }

    /// Makes the clerk finish all earlier requests, and stop. Waits while too many requests are pending.
    pub fn close(&self) {
        // Without a clerk there is nothing to stop.
        let _ = self.sender.send(None);
    }
}

/// Sends requests to a store, and delivers the results.
pub struct Clerk {
    receiver: Receiver<Option<PendingLoan>>,
}

/// Creates a ledger and its clerk.
pub fn ledger() -> (Ledger, Clerk) {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    (Ledger { sender }, Clerk { receiver })
}

impl Clerk {
    /// Handles requests until the ledger is closed, or all its clones are dropped. Blocks, so it needs its
    /// own thread.
    pub fn run(self, store: &mut dyn Store) {
        while let Ok(Some(ask)) = self.receiver.recv() {
            if self.work_on(ask, store).is_break() {
                break;
            }
        }
        // Borrowers return units whose result arrives after the end.
        self.work_off(store);
    }

    /// Handles the pending requests, without waiting for more.
    pub fn work_off(&self, store: &mut dyn Store) {
        while let Ok(Some(ask)) = self.receiver.try_recv() {
            if self.work_on(ask, store).is_break() {
                return;
            }
        }
    }

    /// Handles a request together with other pending ones. Breaks if the ledger was closed after them.
    fn work_on(&self, first: PendingLoan, store: &mut dyn Store) -> ControlFlow<()> {
        let mut asks = vec![first];
        let mut flow = ControlFlow::Continue(());
        while asks.len() < BATCH_MAX
            && let Ok(next) = self.receiver.try_recv()
        {
            let Some(ask) = next else {
                flow = ControlFlow::Break(());
                break;
            };
            asks.push(ask);
        }
        let (requests, borrowers): (Vec<_>, Vec<_>) =
            asks.into_iter().map(|ask| (ask.request, ask.borrower)).unzip();
        let mut loans = Vec::with_capacity(requests.len());
        let result = store.apply(&requests, &mut loans);
        for (at, borrower) in borrowers.into_iter().enumerate() {
            let Some(borrower) = borrower else { continue };
            borrower.lent(match (&result, loans.get(at)) {
                (Ok(()), Some(loan)) => Ok(*loan),
                (Ok(()), None) => Err(StoreError::Failed("the store returned no result".to_owned())),
                (Err(error), _) => Err(error.clone()),
            });
        }
        flow
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::Window;

    const WINDOW: Window = Window { begin: 10, end: 20, before: 0, limit: 5, spillover: 0 };

    fn request(wanted: u64) -> LoanRequest {
        LoanRequest { key: b"key".as_slice().into(), window: WINDOW, owed: 0, wanted, returned: 0 }
    }

    #[derive(Default)]
    struct Results(Mutex<Vec<Result<Loan, StoreError>>>);

    impl Borrower for Results {
        fn lent(&self, loan: Result<Loan, StoreError>) {
            self.0.lock().unwrap().push(loan);
        }
    }

    /// Counts batches, and fails every second one.
    #[derive(Default)]
    struct Flaky(Vec<usize>);

    impl Store for Flaky {
        fn apply(&mut self, requests: &[LoanRequest], loans: &mut Vec<Loan>) -> Result<(), StoreError> {
            self.0.push(requests.len());
            if self.0.len().is_multiple_of(2) {
                return Err(StoreError::Failed("disk full".to_owned()));
            }
            let lend = |request: &LoanRequest| Loan {
                begin: 10,
                units: request.wanted,
                used: 0,
                spilled: 0,
                until: 20,
            };
            loans.extend(requests.iter().map(lend));
            Ok(())
        }
    }

    #[test]
    fn waiting_requests_are_stored_together_before_closing() {
        let (ledger, clerk) = ledger();
        let results = Arc::new(Results::default());
        for units in 0..1_000 {
            let borrower: Arc<dyn Borrower> = results.clone();
            assert!(ledger.ask(PendingLoan { request: request(units), borrower: Some(borrower) }).is_ok());
        }
        ledger.close();
        let mut store = Flaky::default();
        clerk.run(&mut store);
        assert_eq!(store.0, [512, 488]);
        let results = results.0.lock().unwrap();
        assert_eq!(results.len(), 1_000);
        assert_eq!(results[511].as_ref().unwrap().units, 511);
        assert_eq!(results[512], Err(StoreError::Failed("disk full".to_owned())));
        assert!(
            ledger.ask(PendingLoan { request: request(1), borrower: None }).is_err(),
            "the clerk has stopped"
        );
    }

    #[test]
    fn a_store_that_gives_no_response_has_failed() {
        struct Silent;
        impl Store for Silent {
            fn apply(&mut self, _: &[LoanRequest], _: &mut Vec<Loan>) -> Result<(), StoreError> {
                Ok(())
            }
        }
        let (ledger, clerk) = ledger();
        let results = Arc::new(Results::default());
        let borrower: Arc<dyn Borrower> = results.clone();
        assert!(ledger.ask(PendingLoan { request: request(1), borrower: Some(borrower) }).is_ok());
        clerk.work_off(&mut Silent);
        assert!(results.0.lock().unwrap()[0].is_err());
    }

    #[test]
    fn asking_never_waits() {
        let (ledger, clerk) = ledger();
        let asked = (0..10_000)
            .take_while(|_| ledger.ask(PendingLoan { request: request(1), borrower: None }).is_ok());
        assert_eq!(asked.count(), WAITING_MAX);
        drop(clerk);
    }
}
