//! Looks up names that are not in the cache, with name servers or the system's `getaddrinfo`.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};

use super::{Answer, DnsError};
use crate::config::{DnsConfig, Resolver};

/// The source of names that are not in the cache.
pub(super) trait Lookup: 'static {
    /// Looks up one name. The caller sets the timeout.
    fn lookup(&mut self, host: Arc<str>) -> impl Future<Output = Result<Answer, DnsError>> + 'static;

    /// Applies a new configuration from the next look-up on.
    fn reconfigure(&mut self, config: &DnsConfig);
}

/// Time to wait for the second address family once the first has arrived (RFC 8305 §3). Some name servers
/// never respond for IPv6, and their hosts should not need the whole timeout to resolve.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Lifetime of an address from `/etc/hosts`, so an edit takes effect within seconds.
const HOSTS_TTL: Duration = Duration::from_secs(5);

/// Maximum number of addresses taken from one response.
const ADDRESSES_MAX: usize = 32;

/// Look-ups configured by `gateway.dns`.
pub(super) struct SystemLookup {
    config: DnsConfig,
    /// Built at the first look-up, and again when one of the system's files has changed, as on a laptop that
    /// changes networks.
    dns: Option<(Files, Arc<Dns>)>,
}

/// Modification times of the files that configure the resolver.
#[derive(Debug, PartialEq, Eq)]
struct Files([Option<SystemTime>; 2]);

impl Files {
    fn now() -> Self {
        let modified = |path: &str| std::fs::metadata(Path::new(path)).and_then(|file| file.modified()).ok();
        Self([modified("/etc/resolv.conf"), modified("/etc/hosts")])
    }
}

impl SystemLookup {
    pub(super) fn new(config: &DnsConfig) -> Self {
        Self { config: config.clone(), dns: None }
    }

    fn dns(&mut self) -> Result<Arc<Dns>, DnsError> {
        let files = Files::now();
        if let Some((before, dns)) = &self.dns
            && *before == files
        {
            return Ok(dns.clone());
        }
        let dns = Arc::new(Dns::new(&self.config, Hosts::from_system().unwrap_or_default())?);
        self.dns = Some((files, dns.clone()));
        Ok(dns)
    }
}

impl Lookup for SystemLookup {
    fn lookup(&mut self, host: Arc<str>) -> impl Future<Output = Result<Answer, DnsError>> + 'static {
        let dns = match self.config.resolver {
            Resolver::Dns => Some(self.dns()),
            Resolver::System => None,
        };
        async move {
            match dns {
                Some(dns) => dns?.lookup(&host).await,
                None => getaddrinfo(&host).await,
            }
        }
    }

    fn reconfigure(&mut self, config: &DnsConfig) {
        self.config = config.clone();
        self.dns = None;
    }
}

/// Calls the system's resolver on a thread that may block.
async fn getaddrinfo(host: &str) -> Result<Answer, DnsError> {
    // The errors of `getaddrinfo` do not distinguish a missing name from a failing server.
    let found = tokio::net::lookup_host((host, 0)).await.map_err(|_| DnsError::NotFound)?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()).take(ADDRESSES_MAX) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(Answer { addresses, ttl: None })
}

/// Name servers, with the hosts file before them.
struct Dns {
    resolver: TokioResolver,
    hosts: Hosts,
    search: Vec<Name>,
    /// Names with fewer dots are first tried under the search domains.
    dots_min: usize,
}

impl Dns {
    fn new(config: &DnsConfig, hosts: Hosts) -> Result<Self, DnsError> {
        // Without a readable resolv.conf the name server is this machine, see resolv.conf(5).
        let (system, mut options) = read_system_conf().unwrap_or_else(|_| {
            let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
            (ResolverConfig::from_parts(None, Vec::new(), vec![local]), ResolverOpts::default())
        });
        let (domain, mut search, mut servers) = system.into_parts();
        if !config.servers.is_empty() {
            servers = config.servers.iter().map(name_server).collect();
        }
        if search.is_empty() {
            search.extend(domain);
        }
        // The search domains and the hosts file are handled here, and the results are cached by our own
        // cache.
        let dots_min = options.ndots;
        options.use_hosts_file = ResolveHosts::Never;
        options.cache_size = 0;
        if !config.timeout.is_zero() {
            // Leaves time for a second try within the timeout.
            options.timeout = options.timeout.min(config.timeout.get() / 2);
        }
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        let resolver = builder.build().map_err(|_| DnsError::Failed)?;
        Ok(Self { resolver, hosts, search, dots_min })
    }

    async fn lookup(&self, host: &str) -> Result<Answer, DnsError> {
        let name = Name::from_ascii(host).map_err(|_| DnsError::NotFound)?;
        if let Some(answer) = self.in_hosts(&name) {
            return Ok(answer);
        }
        let mut worst = DnsError::NotFound;
        for name in self.whole_names(name, host) {
            match self.ask(name).await {
                Err(DnsError::NotFound) => {}
                Err(error) => worst = error,
                Ok(answer) => return Ok(answer),
            }
        }
        Err(worst)
    }

    /// Returns `name` itself and under the search domains, in the order to try them (resolv.conf(5),
    /// `ndots`).
    fn whole_names(&self, mut name: Name, host: &str) -> Vec<Name> {
        let mut names: Vec<Name> =
            self.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok()).collect();
        name.set_fqdn(true);
        let has_dots = host.bytes().filter(|byte| *byte == b'.').count() >= self.dots_min;
        names.insert(if has_dots { 0 } else { names.len() }, name);
        names
    }

    /// Returns the addresses from the hosts file. A name found there is not looked up elsewhere, as in the C
    /// library.
    fn in_hosts(&self, name: &Name) -> Option<Answer> {
        let addresses: Vec<IpAddr> = [RecordType::AAAA, RecordType::A]
            .into_iter()
            .filter_map(|family| self.hosts.lookup_static_host(&Query::query(name.clone(), family)))
            .flat_map(|found| {
                found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
            })
            .take(ADDRESSES_MAX)
            .collect();
        (!addresses.is_empty()).then_some(Answer { addresses, ttl: Some(HOSTS_TTL) })
    }

    /// Asks for both address families of one complete name at once.
    async fn ask(&self, name: Name) -> Result<Answer, DnsError> {
        let v6 = self.ask_family(name.clone(), RecordType::AAAA);
        let v4 = self.ask_family(name, RecordType::A);
        let (v6, v4) = both(v6, v4).await;
        let mut answer = Answer { addresses: Vec::new(), ttl: None };
        let mut error = DnsError::NotFound;
        for outcome in [v6, v4].into_iter().flatten() {
            match outcome {
                Ok(family) => {
                    answer.addresses.extend(family.addresses);
                    answer.ttl = answer.ttl.into_iter().chain(family.ttl).min();
                }
                Err(DnsError::NotFound) => {}
                Err(other) => error = other,
            }
        }
        if answer.addresses.is_empty() { Err(error) } else { Ok(answer) }
    }

    async fn ask_family(&self, name: Name, family: RecordType) -> Result<Answer, DnsError> {
        let found = self.resolver.lookup(name, family).await.map_err(|error| match error {
            error if error.is_no_records_found() => DnsError::NotFound,
            NetError::Timeout => DnsError::Timeout,
            NetError::Busy => DnsError::Busy,
            _ => DnsError::Failed,
        })?;
        let addresses: Vec<IpAddr> = found
            .answers()
            .iter()
            .filter_map(|record| record.data.ip_addr())
            .take(ADDRESSES_MAX / 2)
            .collect();
        // The TTLs of the aliases count too.
        let ttl_s = found.answers().iter().map(|record| record.ttl).min();
        if addresses.is_empty() {
            return Err(DnsError::NotFound);
        }
        Ok(Answer { addresses, ttl: ttl_s.map(|ttl_s| Duration::from_secs(ttl_s.into())) })
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
}

/// Waits for both. Once one has succeeded, waits for the other only for [`RESOLUTION_DELAY`].
async fn both<T, E>(
    a: impl Future<Output = Result<T, E>>,
    b: impl Future<Output = Result<T, E>>,
) -> (Option<Result<T, E>>, Option<Result<T, E>>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    let mut delay = pin!(None);
    poll_fn(|cx| {
        if a_done.is_none()
            && let Poll::Ready(outcome) = a.as_mut().poll(cx)
        {
            a_done = Some(outcome);
        }
        if b_done.is_none()
            && let Poll::Ready(outcome) = b.as_mut().poll(cx)
        {
            b_done = Some(outcome);
        }
        let is_over = match (&a_done, &b_done) {
            (Some(_), Some(_)) => true,
            (Some(Ok(_)), None) | (None, Some(Ok(_))) => {
                if delay.is_none() {
                    delay.set(Some(tokio::time::sleep(RESOLUTION_DELAY)));
                }
                delay.as_mut().as_pin_mut().is_some_and(|delay| delay.poll(cx).is_ready())
            }
            _ => false,
        };
        if is_over { Poll::Ready((a_done.take(), b_done.take())) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn dns(hosts: &str, search: &[&str]) -> Dns {
        let mut parsed = Hosts::default();
        parsed.read_hosts_conf(hosts.as_bytes()).unwrap();
        let config = DnsConfig { servers: vec![([127, 0, 0, 1], 1).into()], ..DnsConfig::default() };
        let dns = Dns::new(&config, parsed).unwrap();
        Dns { search: search.iter().map(|name| name.parse().unwrap()).collect(), dots_min: 2, ..dns }
    }

    #[tokio::test(flavor = "local")]
    async fn a_name_of_the_hosts_file_is_asked_of_nobody() {
        let dns = dns(
            "192.0.2.1 one.example One\n2001:db8::1 one.example # not two.example\nbad three.example\n",
            &[],
        );
        let addresses =
            |host: &str| dns.in_hosts(&Name::from_ascii(host).unwrap()).map(|answer| answer.addresses);
        let both: Vec<IpAddr> = vec!["2001:db8::1".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        assert_eq!(dns.lookup("one.example").await, Ok(Answer { addresses: both, ttl: Some(HOSTS_TTL) }));
        assert_eq!(addresses("one"), Some(vec!["192.0.2.1".parse().unwrap()]));
        assert_eq!(
            (addresses("two.example"), addresses("three.example"), addresses("example")),
            (None, None, None)
        );
    }

    #[tokio::test(flavor = "local")]
    async fn short_names_try_the_search_domains_first() {
        let dns = dns("", &["ns.svc.cluster.local", "cluster.local"]);
        let names = |host: &str| {
            let names = dns.whole_names(Name::from_ascii(host).unwrap(), host);
            assert!(names.iter().all(Name::is_fqdn), "{names:?}");
            names.iter().map(|name| name.to_ascii().trim_end_matches('.').to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("db"), ["db.ns.svc.cluster.local", "db.cluster.local", "db"]);
        assert_eq!(
            names("a.b.example"),
            ["a.b.example", "a.b.example.ns.svc.cluster.local", "a.b.example.cluster.local"]
        );
        assert_eq!(names("my_bucket.s3.example")[0], "my_bucket.s3.example");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn the_second_family_is_waited_for_only_once_the_first_has_answered() {
        async fn after(millis: u64, outcome: Result<u8, ()>) -> Result<u8, ()> {
            sleep(Duration::from_millis(millis)).await;
            outcome
        }
        let start = Instant::now();
        assert_eq!(both(after(10, Ok(6)), after(40, Ok(4))).await, (Some(Ok(6)), Some(Ok(4))));
        assert_eq!(start.elapsed().as_millis(), 40);
        assert_eq!(both(pending(), after(10, Ok(4))).await, (None::<Result<u8, ()>>, Some(Ok(4))));
        assert_eq!(start.elapsed().as_millis(), 100);
        // A failure does not shorten the wait for the other.
        assert_eq!(both(after(10, Err(())), after(1_000, Ok(4))).await, (Some(Err(())), Some(Ok(4))));
        assert_eq!(start.elapsed().as_millis(), 1_100);
    }
}
