//! `--print-config`: the effective settings and where they come from.

use std::fmt::Write as _;

use toml::Table;

use super::{
    LoadedSettings,
    layers::{get, keys},
};

impl LoadedSettings {
    /// The effective settings as a configuration file, each with its origin as a comment.
    pub fn to_toml(&self) -> String {
        let table = Table::try_from(&self.settings).unwrap_or_default();
        let (mut text, mut section) = (String::new(), String::new());
        for key in keys(&table) {
            let (section_of_key, name) = key.split_once('.').unwrap_or(("", &key));
            if section_of_key != section {
                section_of_key.clone_into(&mut section);
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
            // A path may contain a line break, which would end the comment.
            let origin = origin.replace(['\n', '\r'], " ");
            let _ = writeln!(text, "{name} = {value}  # {origin}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, SettingsLayers, layers::ConfigFile};

    #[test]
    fn the_printed_configuration_is_a_file_with_the_same_settings_and_their_origins() {
        let layers = SettingsLayers {
            file: Some(ConfigFile {
                path: "a\nb.toml".into(),
                text: "store = \"sqlite:a \\\"b\\\".db\"\n".into(),
                named: true,
            }),
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
