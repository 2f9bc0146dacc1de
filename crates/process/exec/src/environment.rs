//! The variables of the command: what each runtime reads.
//!
//! A variable that the user has set stays, with two exceptions. Lists are extended: `NO_PROXY` and
//! `JAVA_TOOL_OPTIONS`. And a file of authorities is replaced by one that also has Egret's root, because the
//! program would otherwise refuse every intercepted call.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use egret_match::providers::ProviderUrl;
use egret_message::authority::Host;

use super::base_urls::base_urls;
use super::find::Gateway;
use super::inherited::{ISOLATED, Inherited, JAVA, JAVA_PROPERTY, MARK, word};
use super::interception::Wanted;
use super::no_proxy::NoProxy;
use super::trust::{Trust, TrustError};

/// The variables that hold the proxy's URL. Names in one row mean the same, and a user who has set one of
/// them has decided for all. There is no `ALL_PROXY`: curl would send its calls to FTP and mail servers
/// through it too.
const PROXY: [&[&str]; 5] = [
    &["http_proxy", "HTTP_PROXY"],
    &["https_proxy", "HTTPS_PROXY"],
    &["ws_proxy", "WS_PROXY"],
    &["wss_proxy", "WSS_PROXY"],
    &["grpc_proxy"],
];

/// Both names of the list of hosts without a proxy.
const NO_PROXY: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// Makes Node (22.21, 24.5 and newer) use the proxy.
const NODE_USE_ENV_PROXY: &str = "NODE_USE_ENV_PROXY";

/// The variables that name a file of all authorities to trust.
const BUNDLES: [&str; 12] = [
    "SSL_CERT_FILE",                      // OpenSSL, Go, rustls, httpx, uv
    "CURL_CA_BUNDLE",                     // curl
    "REQUESTS_CA_BUNDLE",                 // requests
    "GIT_SSL_CAINFO",                     // git
    "PIP_CERT",                           // pip
    "CARGO_HTTP_CAINFO",                  // cargo
    "AWS_CA_BUNDLE",                      // AWS CLI, boto3
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", // gcloud
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",   // gRPC
    "PERL_LWP_SSL_CA_FILE",               // libwww-perl
    "HTTPLIB2_CA_CERTS",                  // httplib2
    "NIX_SSL_CERT_FILE",                  // Nix
];

/// The variables that name a file of authorities to trust besides the usual ones.
const ADDITIONS: [&str; 2] = [
    "NODE_EXTRA_CA_CERTS", // Node, Bun, npm
    "DENO_CERT",           // Deno
];

/// Directories with settings of PHP.
const PHP: &str = "PHP_INI_SCAN_DIR";

/// A variable to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: OsString,
    /// `true` if the value before is part of this one.
    pub extends: bool,
}

impl Change {
    /// Sets a variable.
    pub fn new(name: &str, value: impl Into<OsString>) -> Self {
        Self { name: name.to_owned(), value: value.into(), extends: false }
    }
}

/// The environment of the command: the inherited one, and changes.
#[derive(Debug)]
pub struct Environment {
    inherited: Inherited,
    changes: Vec<Change>,
    /// The options with properties that were added to those of Java.
    properties: Vec<String>,
    kept: Vec<String>,
}

impl Environment {
    /// Returns the inherited environment.
    pub const fn new(inherited: Inherited) -> Self {
        Self { inherited, changes: Vec::new(), properties: Vec::new(), kept: Vec::new() }
    }

    /// The variables to set.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The variables that the command must not see.
    pub fn withheld(&self) -> impl Iterator<Item = &str> {
        self.inherited.withheld()
    }

    /// A sentence for each variable that keeps its value, which is not shown: it may be a secret.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(String::as_str)
    }

    /// Sends the calls of all clients to the gateway.
    pub fn send_to(&mut self, gateway: &Gateway, wanted: Option<&Wanted>) {
        let url = gateway.proxy_url();
        for names in PROXY {
            self.set(names, &url);
        }
        let called = called(gateway, wanted);
        let no_proxy = self.no_proxy(&called);
        let extends = NO_PROXY.iter().any(|name| self.inherited.partly_own(name).is_some());
        for name in NO_PROXY {
            let value = no_proxy.value().into();
            self.changes.push(Change { name: name.to_owned(), value, extends });
        }
        self.set(&[NODE_USE_ENV_PROXY], "1");
        let (host, port) = (gateway.proxy.ip().to_string(), gateway.proxy.port().to_string());
        self.add_java(&[
            ("http.proxyHost", &host),
            ("http.proxyPort", &port),
            ("https.proxyHost", &host),
            ("https.proxyPort", &port),
            ("http.nonProxyHosts", &no_proxy.for_java()),
        ]);
    }

    /// Makes all clients trust the authority of the gateway.
    pub fn trust(&mut self, trust: &Trust) -> Result<(), TrustError> {
        // What a program trusts without a variable: the file for OpenSSL, else the system's.
        let usual = self.inherited.get("SSL_CERT_FILE").map(Path::new).map(Path::to_owned);
        for name in BUNDLES {
            self.set_file(name, usual.as_deref(), |source| trust.bundle(source))?;
        }
        for name in ADDITIONS {
            self.set_file(name, None, |source| match source {
                Some(_) => trust.bundle(source),
                None => trust.root(),
            })?;
        }
        let (store, password) = (trust.java(usual.as_deref())?, egret_ca::jks::PASSWORD);
        self.add_java(&[
            ("javax.net.ssl.trustStore", &store.display().to_string()),
            ("javax.net.ssl.trustStoreType", "JKS"),
            ("javax.net.ssl.trustStorePassword", password),
        ]);
        let directory = trust.php(usual.as_deref())?;
        // Without a value before it, the colon stands for the directory that PHP uses anyway.
        let mut value = self.inherited.partly_own(PHP).map(OsStr::to_owned).unwrap_or_default();
        let extends = !value.is_empty();
        value.push(":");
        value.push(directory);
        self.changes.push(Change { name: PHP.to_owned(), value, extends });
        Ok(())
    }

    /// Sets the variables of SDKs for the providers of the gateway.
    pub fn set_base_urls(&mut self, gateway: &Gateway) {
        for base in base_urls(gateway.proxy, &gateway.info) {
            self.set(base.names, &base.url);
        }
    }

    /// Adds the mark by which an inner `egret exec` finds the gateway with this data directory, unless the
    /// command is isolated, and knows what was set.
    pub fn mark(&mut self, control: Option<SocketAddr>, data_dir: &Path) {
        let names = self.changes.iter().map(|change| {
            let plus = if change.extends { "+" } else { "" };
            format!(" {plus}{}", change.name)
        });
        let control = control.map_or(ISOLATED.to_owned(), |control| match one_word(data_dir) {
            Some(data_dir) => format!("{control} {data_dir}"),
            None => control.to_string(),
        });
        let properties = self.properties.iter().map(|option| format!(" {}", word(option)));
        let mark = names.chain(properties).fold(control, |mark, word| mark + &word);
        self.changes.push(Change::new(MARK, mark));
    }

    /// Sets variables that mean the same, unless the user has set one of them.
    fn set(&mut self, names: &[&str], value: &str) {
        if let Some(own) = names.iter().find(|name| self.inherited.own(name).is_some()) {
            self.kept.push(format!("{own} is set already and stays"));
            return;
        }
        self.changes.extend(names.iter().map(|name| Change::new(name, value)));
    }

    /// Sets a variable to a file with the authorities of the file that it names, or else of the `usual` one.
    fn set_file(
        &mut self,
        name: &str,
        usual: Option<&Path>,
        file: impl Fn(Option<&Path>) -> Result<PathBuf, TrustError>,
    ) -> Result<(), TrustError> {
        let inherited = self.inherited.get(name).map(Path::new);
        match file(inherited.or(usual)) {
            Ok(path) => {
                let (name, extends) = (name.to_owned(), self.inherited.partly_own(name).is_some());
                self.changes.push(Change { name, value: path.into(), extends });
                Ok(())
            }
            Err(TrustError::Bundle(error)) if inherited.is_some() => {
                self.kept.push(format!("{name} stays, so its programs refuse intercepted calls: {error}"));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn no_proxy(&self, called: &[Host]) -> NoProxy {
        let lists = NO_PROXY.iter().filter_map(|name| self.inherited.get(name));
        let lists: Vec<String> = lists.map(|list| list.to_string_lossy().into_owned()).collect();
        NoProxy::merged(&lists, called)
    }

    /// Adds system properties to those of the user. Of two values, Java takes the last, so a property that
    /// the user has set is not added.
    fn add_java(&mut self, properties: &[(&'static str, &str)]) {
        let user = self.inherited.java_options().map(OsStr::to_owned).unwrap_or_default();
        let others =
            ["JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"].into_iter().filter_map(|name| self.inherited.own(name));
        let own: Vec<String> =
            others.chain([user.as_os_str()]).map(|options| options.to_string_lossy().into_owned()).collect();
        let index = self.changes.iter().position(|change| change.name == JAVA).unwrap_or_else(|| {
            let extends = !user.is_empty();
            self.changes.push(Change { name: JAVA.to_owned(), value: user, extends });
            self.changes.len().saturating_sub(1)
        });
        let Some(change) = self.changes.get_mut(index) else { return };
        for &(property, value) in properties {
            let option = format!("{JAVA_PROPERTY}{property}=");
            if own.iter().any(|options| options.contains(&option)) {
                self.kept.push(format!("Java's property {property} is set already and stays"));
                continue;
            }
            if !change.value.is_empty() {
                change.value.push(" ");
            }
            let option = option + &java_word(value);
            change.value.push(&option);
            self.properties.push(option);
        }
    }
}

/// Returns an absolute path if it is one word. With another one, the mark has none: an inner command then
/// relies on its own config.
fn one_word(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| path.starts_with('/') && !path.contains(char::is_whitespace))
}

/// Returns a value of an option. Words are separated by spaces, unless they are in quotes.
fn java_word(value: &str) -> String {
    if value.contains(char::is_whitespace) { format!("\"{value}\"") } else { value.to_owned() }
}

/// Returns the hosts whose calls must not go round the gateway: those of providers, and those named by the
/// user.
fn called(gateway: &Gateway, wanted: Option<&Wanted>) -> Vec<Host> {
    let providers = gateway.info.providers.values();
    let hosts =
        providers.filter_map(|provider| Some(ProviderUrl::parse(&provider.url).ok()?.origin.authority.host));
    hosts.chain(wanted.into_iter().flat_map(Wanted::names)).collect()
}
