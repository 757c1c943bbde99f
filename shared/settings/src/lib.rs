#![doc = include_str!("../README.md")]

mod args;
mod check;
mod layers;
mod nearest;
mod print;
mod settings;

pub use args::ConfigArgs;
pub use check::ConfigProblem;
pub use dueline_telemetry::{LogFormat, LogSettings};
pub use layers::{ConfigError, LoadedSettings, SettingOrigin, SettingsLayers};
pub use settings::{
    DefaultsSettings, Durability, SchedulerSettings, ServerSettings, Settings, ShutdownSettings,
    SinkSettings, WorkerSettings,
};
