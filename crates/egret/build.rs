//! Lets a debug build start sooner: at a fixed address, the system need not adjust 300,000 addresses in it.
//! Tests start it thousands of times. Other builds keep the address that an attacker cannot know.
//!
//! A build with a sanitizer, `make sanitize`, has the `cfg` `sanitized`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    let is_plain = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    println!("cargo:rustc-check-cfg=cfg(sanitized)");
    let is_sanitized = std::env::var_os("CARGO_CFG_SANITIZE").is_some();
    if is_sanitized {
        println!("cargo:rustc-cfg=sanitized");
    }
    if is("PROFILE", "debug") && is_plain && !is_sanitized {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
