use super::*;

fn layers(file: &str, env: &[(&str, &str)], flags: &[(&str, &str, &str)]) -> SettingsLayers {
    SettingsLayers {
        file: (!file.is_empty()).then(|| ConfigFile {
            path: "d.toml".into(),
            text: file.to_owned(),
            named: true,
        }),
        env: env
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect(),
        flags: flags
            .iter()
            .map(|(f, k, v)| ((*f).into(), (*k).into(), (*v).into()))
            .collect(),
    }
}

#[track_caller]
fn refused(layers: SettingsLayers) -> String {
    layers.load().expect_err("refused").to_string()
}

#[test]
fn f_143_a_flag_overrides_the_environment_which_overrides_the_file_and_the_default() {
    let file = "[worker]\nconcurrency = 20\nconcurrency_min = 2\nname = \"file\"\n";
    let env = [
        ("DUELINE_WORKER_CONCURRENCY", "30"),
        ("DUELINE_WORKER_NAME", "env"),
    ];
    let flags = [("--concurrency", "worker.concurrency", "40")];
    let loaded = layers(file, &env, &flags).load().unwrap();
    let worker = &loaded.settings.worker;
    assert_eq!(worker.concurrency, 40);
    assert_eq!(worker.name, "env");
    assert_eq!(worker.concurrency_min, 2);
    assert_eq!(worker.kill_grace_ms, 5_000);
    let origin = |key: &str| loaded.origins[key].to_string();
    assert_eq!(origin("worker.concurrency"), "flag --concurrency");
    assert_eq!(origin("worker.name"), "environment DUELINE_WORKER_NAME");
    assert_eq!(origin("worker.concurrency_min"), "file d.toml");
    assert_eq!(origin("worker.kill_grace_ms"), "default");
}

#[test]
fn without_layers_all_settings_have_their_defaults() {
    let loaded = SettingsLayers::default().load().unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert!(
        loaded
            .origins
            .values()
            .all(|origin| *origin == SettingOrigin::Default)
    );
}

#[test]
fn f_143_false_as_text_means_false() {
    for text in ["false", "False", "no", "0", "off"] {
        let file = "[server]\nallow_remote = true\n";
        let env = [("DUELINE_SERVER_ALLOW_REMOTE", text)];
        let loaded = layers(file, &env, &[]).load().unwrap();
        assert!(!loaded.settings.server.allow_remote, "{text}");
    }
    let error = refused(layers("", &[("DUELINE_SERVER_ALLOW_REMOTE", "maybe")], &[]));
    assert!(error.contains("neither true nor false"), "{error}");
}

#[test]
fn an_unknown_setting_in_the_file_is_refused_with_the_nearest_one() {
    let cases = [
        (
            "[server]\nlissten = \"x\"\n",
            "server.lissten",
            "server.listen",
        ),
        ("[servr]\nlisten = \"x\"\n", "servr.listen", "server.listen"),
        ("listen = \"x\"\n", "listen", "server.listen"),
        ("stroe = \"x\"\n", "stroe", "store"),
        (
            "[worker]\npoll_period_ms = 5\n",
            "worker.poll_period_ms",
            "scheduler.poll_period_ms",
        ),
    ];
    for (file, key, nearest) in cases {
        let error = refused(layers(file, &[], &[]));
        assert!(
            error.contains(&format!("unknown setting '{key}' (file d.toml)")),
            "{error}"
        );
        assert!(
            error.contains(&format!("did you mean '{nearest}'?")),
            "{error}"
        );
    }
}

#[test]
fn an_unknown_flag_value_and_a_misspelt_variable_are_refused() {
    let error = refused(layers("", &[], &[("--set", "worker.concurency", "1")]));
    assert!(
        error.contains("did you mean 'worker.concurrency'?"),
        "{error}"
    );
    let error = refused(layers("", &[("DUELINE_WORKER_CONCURENCY", "1")], &[]));
    assert!(
        error.contains("did you mean 'DUELINE_WORKER_CONCURRENCY'?"),
        "{error}"
    );
}

#[test]
fn a_variable_unlike_any_setting_is_noted_and_variables_of_other_programs_are_ignored() {
    let env = [
        ("DUELINE_PORT_7070_TCP_ADDR", "10.0.0.1"),
        ("DUELINE_SERVER", "http://x"),
        ("PATH", "/bin"),
    ];
    let loaded = layers("", &env, &[]).load().unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.notes.len(), 1, "{:?}", loaded.notes);
    assert!(loaded.notes[0].contains("DUELINE_PORT_7070_TCP_ADDR"));
}

#[test]
fn an_invalid_value_is_refused_with_its_setting_and_its_origin() {
    let cases = [
        ("[worker]\nconcurrency = \"many\"\n", "worker.concurrency"),
        ("[worker]\nconcurrency = -1\n", "worker.concurrency"),
        ("[server]\nlisten = \"nowhere\"\n", "server.listen"),
        ("[log]\nformat = \"xml\"\n", "log.format"),
        ("[worker]\nhandlers = [1]\n", "worker.handlers"),
        ("server = \"x\"\n", "server"),
        ("store = { uri = \"x\" }\n", "store"),
    ];
    for (file, key) in cases {
        let error = refused(layers(file, &[], &[]));
        assert!(
            error.contains(&format!("setting '{key}' (file d.toml)")),
            "{error}"
        );
    }
    let error = refused(layers("", &[("DUELINE_WORKER_CONCURRENCY", "1.5")], &[]));
    assert!(
        error.contains("environment DUELINE_WORKER_CONCURRENCY"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_the_line() {
    let error = refused(layers("[server\n", &[], &[]));
    assert!(
        error.contains("d.toml") && error.contains("line 1"),
        "{error}"
    );
}

#[test]
fn a_list_from_the_environment_is_split_at_commas() {
    let env = [("DUELINE_WORKER_HANDLERS", "exec, noop")];
    let loaded = layers("", &env, &[]).load().unwrap();
    assert_eq!(loaded.settings.worker.handlers, ["exec", "noop"]);
}

#[test]
fn contradicting_settings_are_refused_after_loading() {
    let file = "[defaults]\nheartbeat_timeout_ms = 5000\n";
    let error = layers(file, &[], &[])
        .load()
        .unwrap()
        .checked()
        .expect_err("refused");
    assert!(
        error
            .to_string()
            .contains("defaults.heartbeat_timeout_ms = 5000"),
        "{error}"
    );
}

const DEFAULT_FILE: &str = include_str!("../../../config.default.toml");

#[test]
fn the_default_file_is_the_default_settings() {
    let from_file: Settings = toml::from_str(DEFAULT_FILE).unwrap();
    assert_eq!(from_file, Settings::default());
    let loaded = layers(DEFAULT_FILE, &[], &[]).load().unwrap();
    // The file contains every setting, so that it is the list of all settings.
    let missing: Vec<_> = loaded
        .origins
        .iter()
        .filter(|(_, origin)| **origin == SettingOrigin::Default)
        .collect();
    assert!(
        missing.is_empty(),
        "not in config.default.toml: {missing:?}"
    );
}

#[test]
fn every_setting_of_the_default_file_is_explained_above_it() {
    let mut explained = false;
    for line in DEFAULT_FILE.lines() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(explained, "no comment above: {line}");
        }
        explained = line.starts_with('#');
    }
}
