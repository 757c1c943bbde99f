//! The flags that every server and worker takes.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::{ConfigError, Layers, Loaded};

/// The file that is read when it lies in the working directory and no other is named.
const FILE_NAME: &str = "dueline.toml";
/// The variable that names a file.
const FILE_VARIABLE: &str = "DUELINE_CONFIG";

/// Flags that set settings; add them to a command with `#[command(flatten)]`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Settings (flag > DUELINE_* variable > file > default)")]
pub struct ConfigArgs {
    /// Configuration file [default: DUELINE_CONFIG, or ./dueline.toml if there is one]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    /// Print the settings that hold, each with its origin, and exit
    #[arg(long)]
    pub print_config: bool,

    /// Address to listen on [server.listen]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,

    /// Let other machines reach the server although nobody has to log in [server.allow_remote]
    #[arg(long)]
    pub allow_remote_without_authentication: bool,

    /// SQLite file [server.data]
    #[arg(long, value_name = "FILE")]
    pub data: Option<String>,

    /// Store by URI, instead of --data [store]
    #[arg(long, value_name = "URI")]
    pub store: Option<String>,

    /// Queue by URI [queue]
    #[arg(long, value_name = "URI")]
    pub queue: Option<String>,

    /// What an accepted write survives: full (a loss of power) or normal (a crash) [durability]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<String>,

    /// Most weight that runs at once in this process [worker.concurrency]
    #[arg(long, value_name = "N")]
    pub concurrency: Option<String>,

    /// Name of this worker in lists [worker.name]
    #[arg(long, value_name = "NAME")]
    pub worker_name: Option<String>,

    /// Built-in handlers that run here, separated by commas [worker.handlers]
    #[arg(long, value_name = "KINDS")]
    pub handlers: Option<String>,

    /// Least level that is logged, or directives [log.level]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// How log lines look: human or json [log.format]
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
    /// The settings of these flags, this process's environment and the file. Relations are not checked yet.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        // Variables that are not UTF-8 can set nothing.
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
    ) -> Result<Loaded, ConfigError> {
        let named = self.config.clone().or_else(|| {
            let path = env.get(FILE_VARIABLE).filter(|path| !path.is_empty())?;
            Some(path.into())
        });
        let file = match named {
            Some(path) => {
                let path = directory.join(path);
                let text = read(&path)?;
                Some((path, text))
            }
            None => {
                let path = directory.join(FILE_NAME);
                match read(&path) {
                    Ok(text) => Some((path, text)),
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
        Layers { file, env, flags }.load()
    }

    /// The flags given. `--set` comes first, so that a setting's own flag wins over it.
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

fn read(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::config::Origin;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        config: ConfigArgs,
    }

    fn args(words: &[&str]) -> ConfigArgs {
        let words = std::iter::once("test").chain(words.iter().copied());
        Command::try_parse_from(words).unwrap().config
    }

    fn env(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn the_file_is_the_flags_then_the_variables_then_the_one_lying_there() {
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
    fn a_named_file_that_is_not_there_is_an_error() {
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
            .filter(|origin| matches!(origin, Origin::Flag(_)));
        assert_eq!(flags.count(), 12);
        assert!(loaded.settings.server.allow_remote);
        assert_eq!(loaded.settings.worker.kill_grace_ms, 1);
        assert_eq!(loaded.settings.worker.concurrency, 7);
    }
}
