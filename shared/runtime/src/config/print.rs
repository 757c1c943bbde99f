//! `--print-config`: what holds, and why.

use std::fmt::Write as _;

use toml::Table;

use super::{
    Loaded,
    layers::{get, keys},
};

impl Loaded {
    /// The settings that hold as a configuration file, each with its origin as a comment.
    pub fn to_toml(&self) -> String {
        let table = Table::try_from(&self.settings).unwrap_or_default();
        let (mut text, mut section) = (String::new(), String::new());
        for key in keys(&table) {
            let (of, name) = key.split_once('.').unwrap_or(("", &key));
            if of != section {
                of.clone_into(&mut section);
                let _ = write!(text, "\n[{section}]\n");
            }
            let value = get(&table, &key)
                .map(ToString::to_string)
                .unwrap_or_default();
            let origin = self
                .origins
                .get(&key)
                .map(ToString::to_string)
                .unwrap_or_default();
            // A path may hold anything, and a line break would end the comment.
            let origin = origin.replace(['\n', '\r'], " ");
            let _ = writeln!(text, "{name} = {value}  # {origin}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layers, Settings};

    #[test]
    fn the_printed_configuration_is_a_file_that_sets_the_same_with_its_origins() {
        let layers = Layers {
            file: Some((
                "a\nb.toml".into(),
                "store = \"sqlite:a \\\"b\\\".db\"\n".into(),
            )),
            env: [("DUELINE_WORKER_HANDLERS".into(), "exec,noop".into())].into(),
            flags: vec![("--listen".into(), "server.listen".into(), "[::1]:80".into())],
        };
        let loaded = layers.load().unwrap();
        let text = loaded.to_toml();
        assert_eq!(toml::from_str::<Settings>(&text).unwrap(), loaded.settings);
        for line in [
            "listen = \"[::1]:80\"  # flag --listen",
            "handlers = [\"exec\", \"noop\"]  # environment DUELINE_WORKER_HANDLERS",
            "poll_period_ms = 1000  # default",
            "  # file a b.toml",
        ] {
            assert!(text.contains(line), "'{line}' is not in:\n{text}");
        }
    }
}
