//! `egret ca init`: makes an authority.

use clap::Args;
use egret_ca::{Authority, Constraints, ConstraintsError, INIT_DAYS};
use egret_measure::streams::say;
use egret_message::host_pattern::HostPattern;
use egret_settings::authority::{configured, now, owner, tunnelled};
use egret_settings::config::Config;
use egret_settings::failure::Failure;
use egret_settings::output::print;

use super::place::{AuthorityPlace, absolute, bundle};
use super::show;

/// Arguments of `egret ca init`.
#[derive(Debug, Args)]
pub struct Init {
    #[command(flatten)]
    place: AuthorityPlace,
    /// A host that the authority may speak for, besides those of the config, written as in
    /// `interception.hosts`; may be repeated.
    #[arg(long = "host", value_name = "HOST", value_parser = HostPattern::parse)]
    hosts: Vec<HostPattern>,
    /// Days for which the authority is valid.
    #[arg(long, value_name = "DAYS", default_value_t = INIT_DAYS, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Make an authority that may speak for every host. A thief of its key can impersonate every host to the
    /// programs that trust it.
    #[arg(long)]
    unconstrained: bool,
    /// Replace the authority. Programs that trust the former one must be given the new one.
    #[arg(long)]
    force: bool,
}

impl Init {
    /// Makes the authority and prints what it is and what to do next.
    pub fn run(self) -> Result<(), Failure> {
        let config = self.place.config()?;
        let directory = absolute(&config.data_dir)?;
        let constraints = self.constraints(&config)?;
        let bundle = bundle(&directory).map_err(Failure::failed)?;
        // Read before it is replaced. One that cannot be read is trusted nowhere by its name.
        let former = directory.root().ok().flatten();
        let authority = Authority::make(&constraints, &owner(), self.days, now()).map_err(Failure::failed)?;
        directory.create(&authority, &bundle, self.force).map_err(Failure::failed)?;
        if let Some(former) = former {
            say(format_args!(
                "warning: programs may still trust the former root, `{}`: remove it where it was installed",
                former.name()
            ));
        }
        let (install, path) = (self.place.command("install"), self.place.command("path"));
        let next = format!(
            "\nA gateway that runs uses it after a restart. Programs must trust it:\n\n  \
             curl --cacert \"$({path})\" ...    # one program\n  \
             {install}    # all programs of this system\n"
        );
        print(&(show::text(&authority, &directory) + &next))
    }

    fn constraints(&self, config: &Config) -> Result<Constraints, Failure> {
        if self.unconstrained {
            return Ok(Constraints::NONE);
        }
        let hosts: Vec<HostPattern> = self.hosts.iter().cloned().chain(configured(config)).collect();
        if hosts.contains(&HostPattern::Any) {
            return Err(Failure::misused(
                "`*` needs an authority for every host, and a thief of its key could impersonate every host: list the hosts, \
                 or confirm it with `--unconstrained`",
            ));
        }
        let is_certifiable = |host: &&HostPattern| match Constraints::new([(*host).clone()]) {
            Ok(_) => true,
            Err(error) => {
                say(format_args!("warning: {error}; its tunnels will pass through unread"));
                false
            }
        };
        let certifiable = hosts.iter().filter(is_certifiable).cloned();
        let constraints = Constraints::new(certifiable).map_err(|error| match error {
            ConstraintsError::Empty => Failure::misused(
                "no host is to be intercepted: configure providers or `interception.hosts` and name the file with `--config`, \
                 or name hosts with `--host`",
            ),
            error => Failure::misused(error),
        })?;
        Ok(constraints.without(&tunnelled(config), &hosts))
    }
}
