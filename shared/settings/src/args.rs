//! The settings flags of every server and worker.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use super::{ConfigError, LoadedSettings, SettingsLayers, layers::ConfigFile};

/// The file in the working directory that is read if no other file is named.
const FILE_NAME: &str = "dueline.toml";
/// Most bytes of the file. The file with all settings and their comments has a hundredth of it.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The environment variable with the path of a file.
const FILE_VARIABLE: &str = "DUELINE_CONFIG";

/// Flags that set settings; add them to a command with `#[command(flatten)]`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Settings (flag > DUELINE_* variable > file > default)")]
pub struct ConfigArgs {
    /// Configuration file [default: DUELINE_CONFIG, or ./dueline.toml if there is one]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    /// Print the effective settings, each with its origin, and exit
    #[arg(long)]
    pub print_config: bool,

    /// Address to listen on [server.listen]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,

    /// Allow an address that other machines can reach, without authentication [server.allow_remote]
    #[arg(long)]
    pub allow_remote_without_authentication: bool,

    /// SQLite file [server.data]
    #[arg(long, value_name = "FILE")]
    pub data: Option<String>,

    /// URI of the store, instead of --data [store]
    #[arg(long, value_name = "URI")]
    pub store: Option<String>,

    /// URI of the queue [queue]
    #[arg(long, value_name = "URI")]
    pub queue: Option<String>,

    /// What an accepted write survives: full (a power loss) or normal (a crash of the process) [durability]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<String>,

    /// Greatest total weight of the tasks that run at once in this process [worker.concurrency]
    #[arg(long, value_name = "N")]
    pub concurrency: Option<String>,

    /// Name of this worker in lists [worker.name]
    #[arg(long, value_name = "NAME")]
    pub worker_name: Option<String>,

    /// Built-in handlers of this worker, separated by commas [worker.handlers]
    #[arg(long, value_name = "KINDS")]
    pub handlers: Option<String>,

    /// Lowest level that is logged, or directives [log.level]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Format of log lines: human or json [log.format]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,

    /// Any other setting by its dotted name; may be repeated
    #[arg(long = "set", value_name = "SETTING=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.trim().to_owned(), value.to_owned()))
        .ok_or_else(|| "write it as section.setting=value".into())
}

impl ConfigArgs {
    /// The settings of these flags, the environment of this process and the file. Relations are not checked yet.
    pub fn load(&self) -> Result<LoadedSettings, ConfigError> {
        // Variables that are not UTF-8 are ignored.
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        self.load_from(env, Path::new(""))
    }

    /// As [`ConfigArgs::load`], with the environment and the working directory given.
    pub fn load_from(
        &self,
        env: BTreeMap<String, String>,
        directory: &Path,
    ) -> Result<LoadedSettings, ConfigError> {
        let named = self.config.clone().or_else(|| {
            let path = env.get(FILE_VARIABLE).filter(|path| !path.is_empty())?;
            Some(path.into())
        });
        let file = match named {
            Some(path) => {
                let path = directory.join(path);
                let text = read(&path)?;
                Some(ConfigFile {
                    path,
                    text,
                    named: true,
                })
            }
            None => {
                let path = directory.join(FILE_NAME);
                match read(&path) {
                    Ok(text) => Some(ConfigFile {
                        path,
                        text,
                        named: false,
                    }),
                    Err(ConfigError::Read { source, .. })
                        if source.kind() == ErrorKind::NotFound =>
                    {
                        None
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let flags = self.flags();
        SettingsLayers { file, env, flags }.load()
    }

    /// The flags that were given. `--set` comes first, so that the flag of a setting overrides it.
    fn flags(&self) -> Vec<(String, String, String)> {
        let allow_remote = self
            .allow_remote_without_authentication
            .then(|| "true".into());
        let own = [
            ("--listen", "server.listen", &self.listen),
            (
                "--allow-remote-without-authentication",
                "server.allow_remote",
                &allow_remote,
            ),
            ("--data", "server.data", &self.data),
            ("--store", "store", &self.store),
            ("--queue", "queue", &self.queue),
            ("--durability", "durability", &self.durability),
            ("--concurrency", "worker.concurrency", &self.concurrency),
            ("--worker-name", "worker.name", &self.worker_name),
            ("--handlers", "worker.handlers", &self.handlers),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ];
        let set = self
            .settings
            .iter()
            .map(|(key, value)| ("--set".into(), key.clone(), value.clone()));
        let own = own.into_iter().filter_map(|(flag, key, value)| {
            Some((flag.to_owned(), key.to_owned(), value.clone()?))
        });
        set.chain(own).collect()
    }
}

/// Reads at most [`FILE_BYTES_MAX`], because the path may name a device without an end.
fn read(path: &Path) -> Result<String, ConfigError> {
    let mut text = String::new();
    let result = fs::File::open(path).and_then(|file| {
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if read as u64 > FILE_BYTES_MAX {
            let message = format!("it has more than {FILE_BYTES_MAX} bytes");
            return Err(io::Error::new(ErrorKind::FileTooLarge, message));
        }
        Ok(())
    });
    result.map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::SettingOrigin;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        config: ConfigArgs,
    }

    fn args(words: &[&str]) -> ConfigArgs {
        let words = std::iter::once("test").chain(words.iter().copied());
        Command::try_parse_from(words).unwrap().config
    }

    fn env(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let variables = variables.iter();
        variables.map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn the_file_of_the_flag_precedes_that_of_the_variable_and_that_of_the_working_directory() {
        let directory = tempfile::tempdir().unwrap();
        let name = |args: &ConfigArgs, env| {
            let loaded = args.load_from(env, directory.path()).unwrap();
            loaded.settings.worker.name
        };
        assert_eq!(name(&args(&[]), env(&[])), "");
        for file in ["dueline.toml", "variable.toml", "flag.toml"] {
            let text = format!("[worker]\nname = \"{file}\"\n");
            fs::write(directory.path().join(file), text).unwrap();
        }
        let variable = env(&[("DUELINE_CONFIG", "variable.toml")]);
        assert_eq!(name(&args(&[]), env(&[])), "dueline.toml");
        assert_eq!(name(&args(&[]), variable.clone()), "variable.toml");
        assert_eq!(
            name(&args(&["--config", "flag.toml"]), variable),
            "flag.toml"
        );
    }

    #[test]
    fn g_13_a_file_that_is_only_in_the_working_directory_does_not_open_the_server_to_the_network() {
        let directory = tempfile::tempdir().unwrap();
        let open = "[server]\nlisten = \"0.0.0.0:7070\"\nallow_remote = true\n";
        fs::write(directory.path().join("dueline.toml"), open).unwrap();
        let load = |words: &[&str], variables: &[(&str, &str)]| {
            let env = env(variables);
            let loaded = args(words).load_from(env, directory.path()).unwrap();
            loaded.checked().map_err(|error| error.to_string())
        };
        let error = load(&[], &[]).expect_err("refused");
        assert!(
            error.contains("server.listen") && error.contains("--config"),
            "{error}"
        );
        // Both settings must come from a flag, a variable or a named file.
        let error = load(&["--listen=0.0.0.0:1"], &[]).expect_err("refused");
        assert!(error.contains("server.allow_remote"), "{error}");
        assert!(load(&["--allow-remote-without-authentication"], &[]).is_err());

        assert!(load(&["--config=dueline.toml"], &[]).is_ok());
        assert!(load(&[], &[("DUELINE_CONFIG", "dueline.toml")]).is_ok());
        assert!(load(&["--listen=127.0.0.1:1"], &[]).is_ok());
        let flags = [
            "--listen=0.0.0.0:1",
            "--allow-remote-without-authentication",
        ];
        assert!(load(&flags, &[]).is_ok());
        let variables = [
            ("DUELINE_SERVER_LISTEN", "0.0.0.0:1"),
            ("DUELINE_SERVER_ALLOW_REMOTE", "true"),
        ];
        assert!(load(&[], &variables).is_ok());
    }

    #[test]
    fn a_named_file_that_does_not_exist_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let error = args(&["--config", "no.toml"]).load_from(env(&[]), directory.path());
        assert!(error.expect_err("refused").to_string().contains("no.toml"));
    }

    #[test]
    fn every_flag_sets_its_setting() {
        let directory = tempfile::tempdir().unwrap();
        let words = [
            "--listen=0.0.0.0:1",
            "--allow-remote-without-authentication",
            "--data=x.db",
            "--store=sqlite:y",
            "--queue=local:x",
            "--durability=normal",
            "--concurrency=7",
            "--worker-name=w",
            "--handlers=noop",
            "--log-level=debug",
            "--log-format=json",
            "--set",
            "worker.kill_grace_ms=1",
        ];
        let args = args(&words);
        let loaded = args.load_from(env(&[]), directory.path()).unwrap();
        let flags = loaded
            .origins
            .values()
            .filter(|origin| matches!(origin, SettingOrigin::Flag(_)));
        assert_eq!(flags.count(), 12);
        assert!(loaded.settings.server.allow_remote);
        assert_eq!(loaded.settings.worker.kill_grace_ms, 1);
        assert_eq!(loaded.settings.worker.concurrency, 7);
    }
}
