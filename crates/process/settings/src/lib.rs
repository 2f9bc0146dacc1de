//! The config of a process: its files and their versions, what is said about them, the rules for changes over
//! the API, and the files in the data directory that commands and the gateway share.
#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the stream is closed: see `egret_measure::streams`"
)]

pub mod advice;
pub mod authority;
mod bounded_command;
mod cluster_advice;
pub mod config;
pub mod config_advice;
pub mod config_draft;
pub mod config_file;
pub mod config_path;
pub mod config_rule;
pub mod config_versions;
pub mod control_key;
pub mod control_token;
pub mod data_dir;
pub mod failure;
pub mod fetched_secrets;
mod foreign_keys;
pub mod location;
pub mod output;
pub mod schema;
pub mod secret_commands;
pub mod secret_files;
pub mod secret_managers;
pub mod secrets_config;
#[cfg(test)]
mod shown_keys;
pub mod unopened;
mod written_texts;
