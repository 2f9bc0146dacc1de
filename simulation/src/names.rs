//! The name servers: the gateway's own resolver, on a paused clock of tokio, with answers that are good, bad
//! or late.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use egret_clock::Moment;
use egret_net::config::DnsConfig;
use egret_net::dns::simulated::SimulatedAnswer;
use egret_net::dns::{DnsError, Resolver};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::scenario::{Dice, PROVIDERS};

/// Number of times that tasks of the resolver run, so a question gets as far as it can.
const TURNS: usize = 6;
/// Time by which a timer of the resolver may be late.
const LATE: Duration = Duration::from_millis(1);

/// Time for which a dial may go on with the addresses that it has begun with.
const DIALING: Duration = Duration::from_secs(4);

/// An address at which nobody listens.
pub const DEAD: [u8; 4] = [20, 0, 9, 9];

/// The addresses of a provider.
fn addresses(provider: usize) -> Vec<IpAddr> {
    let number = u8::try_from(provider).unwrap_or_default();
    let v6 = IpAddr::from([0x2600, 0, 0, 0, 0, 0, 0, 0x10 + u16::from(number)]);
    vec![v6, IpAddr::from([20, 0, number, 10]), IpAddr::from([20, 0, number, 11])]
}

/// The provider at an address, if there is one.
pub fn provider_at(address: IpAddr) -> Option<usize> {
    (0..PROVIDERS.len()).find(|provider| addresses(*provider).contains(&address))
}

#[derive(Debug)]
struct Servers {
    dice: Dice,
    trouble: u64,
    ttl: Duration,
    now: Moment,
    /// Times at which look-ups end.
    ends: Vec<Moment>,
    /// Time after which the resolver gives up.
    timeout: Duration,
    /// The time up to which each address is valid, by the last answer that has it.
    valid: BTreeMap<IpAddr, Moment>,
}

impl Servers {
    fn answer(&mut self, name: &str) -> SimulatedAnswer {
        let answer = self.choose(name);
        let end = self.now + answer.after.min(self.timeout);
        self.ends.extend([end, end + LATE, end + LATE + LATE]);
        for address in answer.outcome.iter().flat_map(|(found, _)| found) {
            let until = end + LATE + LATE + self.ttl;
            let valid = self.valid.entry(*address).or_insert(until);
            *valid = until.max(*valid);
        }
        answer
    }

    fn choose(&mut self, name: &str) -> SimulatedAnswer {
        let after = self.dice.pause(40);
        let known = PROVIDERS.iter().position(|known| name.strip_suffix(".example") == Some(*known));
        let Some(provider) = known else {
            return SimulatedAnswer { after, outcome: Err(DnsError::NotFound) };
        };
        let mut found = addresses(provider);
        if self.dice.percent(50) {
            found.remove(0);
        }
        if !self.dice.percent(self.trouble) {
            return SimulatedAnswer { after, outcome: Ok((found, self.ttl)) };
        }
        match self.dice.between(0, 3) {
            0 => SimulatedAnswer { after, outcome: Err(DnsError::NotFound) },
            1 => SimulatedAnswer { after, outcome: Err(DnsError::Failed) },
            2 => SimulatedAnswer { after: Duration::from_secs(3), outcome: Ok((found, self.ttl)) },
            _ => {
                found.insert(0, IpAddr::from(DEAD));
                SimulatedAnswer { after, outcome: Ok((found, self.ttl)) }
            }
        }
    }
}

/// The resolver of a world.
#[derive(Debug)]
pub struct Names {
    resolver: Resolver,
    runtime: LocalRuntime,
    servers: Rc<RefCell<Servers>>,
    /// The time of the runtime's clock.
    now: Moment,
}

impl Names {
    /// Starts a resolver.
    ///
    /// # Errors
    ///
    /// None.
    pub fn start(
        config: &DnsConfig,
        dice: Dice,
        trouble: u64,
        ttl: Duration,
        now: Moment,
    ) -> io::Result<(Self, Resolver)> {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build_local(LocalOptions::default())?;
        let servers = Rc::new(RefCell::new(Servers {
            dice,
            trouble,
            ttl,
            now,
            ends: Vec::new(),
            timeout: config.timeout.get(),
            valid: BTreeMap::new(),
        }));
        let asked = Rc::clone(&servers);
        let (resolver, serving) =
            Resolver::simulated(config, Rc::new(move |name| asked.borrow_mut().answer(name)));
        runtime.spawn_local(serving);
        Ok((Self { resolver: resolver.clone(), runtime, servers, now }, resolver))
    }

    /// Returns `true` if a name has had this address a moment ago: dialling takes a while.
    pub fn is_valid(&self, address: IpAddr, now: Moment) -> bool {
        self.servers.borrow().valid.get(&address).is_some_and(|until| now <= *until + DIALING)
    }

    /// Goes on. Returns the time at which it must go on again, if a look-up is under way.
    pub fn act(&mut self, now: Moment) -> Option<Moment> {
        // A turn of the runtime takes long, and mostly nobody has asked.
        if self.servers.borrow().ends.is_empty() && !self.resolver.is_asked() {
            return None;
        }
        let passed = now.since(self.now);
        self.now = now;
        self.servers.borrow_mut().now = now;
        self.runtime.block_on(async {
            if !passed.is_zero() {
                tokio::time::advance(passed).await;
            }
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
        let mut servers = self.servers.borrow_mut();
        servers.ends.retain(|end| *end > now);
        servers.ends.iter().min().copied()
    }
}
