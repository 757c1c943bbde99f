//! Configuration: flag over environment over file over default, and nothing unknown is let through.

mod args;
mod check;
mod layers;
mod nearest;
mod print;
mod settings;

pub use args::ConfigArgs;
pub use check::ConfigProblem;
pub use layers::{ConfigError, Layers, Loaded, Origin};
pub use settings::{
    DefaultsSettings, Durability, LogFormat, LogSettings, SchedulerSettings, ServerSettings,
    Settings, ShutdownSettings, WorkerSettings,
};
