//! Advice about the control port.

use egret_config::Problem;

use crate::config::Config;

/// Returns a warning for an earlier name of `control.config_changes`.
pub fn advise(config: &Config) -> Vec<Problem> {
    let advice = config.control.config_changes.advice();
    advice.map(|advice| Problem::new("control.config_changes", advice)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_name_warns_and_is_read() {
        for (word, current) in [
            ("off", "off"),
            ("tune", "tune"),
            ("all", "all"),
            ("restricted", "tune"),
            ("unrestricted", "all"),
        ] {
            let text = format!("control: {{ config_changes: {word} }}");
            let config = Config::parse("egret.yaml", &text).unwrap();
            assert_eq!(serde_json::to_value(config.control.config_changes).unwrap(), current, "{word}");
            assert_eq!(advise(&config).is_empty(), word == current, "{word}");
        }
    }

    #[test]
    fn another_word_is_refused_with_those_of_today() {
        let report = Config::parse("egret.yaml", "control: { config_changes: tun }").unwrap_err().to_string();
        assert!(
            report.contains("expected one of `off`, `tune`, `all`, found `tun`; did you mean `tune`?"),
            "{report}"
        );
    }
}
